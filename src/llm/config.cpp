#include "bie/llm/config.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"
#include "llm/architectures.h"
#include "llm/metadata.h"

namespace bie::llm {
namespace {

using kernels::exact_exp;
using kernels::exact_log;

constexpr std::int64_t most_layers = 4096, most_width = 1 << 20, most_heads = 4096, most_head_size = 4096,
                       most_context = std::int64_t{1} << 30, most_vocabulary = 1 << 24;
constexpr double most_frequency = 1e6;  // times most_context it is an angle that exact_cos takes
constexpr double pi = 3.141592653589793;

/// base^(-2 i / d) for each pair of d elements, by exact functions.
std::vector<double> plain_frequencies(double base, std::int64_t pairs) {
  std::vector<double> frequencies;
  const double log_base = exact_log(base), size = static_cast<double>(2 * pairs);
  for (std::int64_t i = 0; i < pairs; ++i)
    frequencies.push_back(exact_exp(static_cast<double>(-2 * i) / size * log_base));
  return frequencies;
}

/// YaRN: pairs that turn often enough in the original context stay, slow ones are divided by the factor, and between
/// them is a ramp. Source: Peng et al. 2023, <https://arxiv.org/abs/2309.00071>, section 3.2 and 3.4.
void scale_by_yarn(const Metadata& data, const std::string& prefix, double base, double factor, std::int64_t context,
                   Rotation* rotation) {
  const double original =
      data.real(prefix + "rope.scaling.original_context_length", 1, 1e9, static_cast<double>(context) / factor);
  const double fast = data.real(prefix + "rope.scaling.yarn_beta_fast", 0, 1e6, 32),
               slow = data.real(prefix + "rope.scaling.yarn_beta_slow", 0, 1e6, 1);
  const double size = static_cast<double>(2 * rotation->frequencies.size());
  const auto pair_of_turns = [&](double turns) {
    return size * exact_log(original / (turns * 2 * pi)) / (2 * exact_log(base));
  };
  const double low = std::max(std::floor(pair_of_turns(fast)), 0.0),
               high = std::min(std::ceil(pair_of_turns(slow)), size - 1);
  const double width = high == low ? 0.001 : high - low;
  for (std::size_t i = 0; i < rotation->frequencies.size(); ++i) {
    const double ramp = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / width));
    const double f = rotation->frequencies[i];
    rotation->frequencies[i] = f / factor * ramp + f * (1 - ramp);
  }
  rotation->size = static_cast<float>(0.1 * exact_log(factor) + 1);
}

void scale_frequencies(const Metadata& data, const std::string& prefix, double base, std::int64_t context,
                       Rotation* rotation) {
  const std::string type = data.text(prefix + "rope.scaling.type").value_or("none");
  const double factor = data.real(prefix + "rope.scaling.factor", 1e-6, 1e6, 1);
  if (type == "linear") {
    for (double& f : rotation->frequencies) f = f / factor;
  } else if (type == "yarn") {
    scale_by_yarn(data, prefix, base, factor, context, rotation);
  } else if (type != "none") {
    data.fail("expected a scaling of rotations of none, linear or yarn, got " + formats::in_quotes(type));
  }
}

/// A file's own divisors of the frequencies, as llama 3.1 has them.
void divide_frequencies(const ModelFile& file, const Metadata& data, Rotation* rotation) {
  const formats::GgufTensor* const tensor = file.gguf.find("rope_freqs.weight");
  if (tensor == nullptr) return;
  const auto pairs = static_cast<std::int64_t>(rotation->frequencies.size());
  if (tensor->type->name != "F32" || tensor->count() != pairs)
    data.fail(formats::joined("the tensor \"rope_freqs.weight\": expected ", pairs, " numbers of F32, got ",
                              formats::listed(tensor->sizes), " of ", tensor->type->name));
  const formats::Array values = formats::gguf_array(file.gguf, *tensor);
  for (std::size_t i = 0; i < rotation->frequencies.size(); ++i) {
    const auto divisor = static_cast<double>(values.data<float>()[i]);
    if (!(divisor > 0 && std::isfinite(divisor)))
      data.fail("the tensor \"rope_freqs.weight\" holds a number that is not positive");
    rotation->frequencies[i] = rotation->frequencies[i] / divisor;
    if (!(rotation->frequencies[i] <= most_frequency))
      data.fail(formats::joined("the tensor \"rope_freqs.weight\": expected rotations of at most ", most_frequency,
                                " a position, got ", rotation->frequencies[i]));
  }
}

/// Soft caps, of which those of Gemma 2 are known where its files do not say them.
void read_caps(const Metadata& data, const std::string& prefix, Config* c) {
  const bool has_caps = c->architecture->has_caps;
  const auto cap = [&](const std::string& key, double otherwise) {
    const double value = data.real(prefix + key, 0, 1e30, has_caps ? otherwise : 0);
    if (!has_caps && value != 0) data.fail(formats::joined("expected no soft caps, got ", prefix, key, " of ", value));
    return static_cast<float>(value);
  };
  c->score_cap = cap("attn_logit_softcapping", 50);
  c->logit_cap = cap("final_logit_softcapping", 30);
}

Activation read_activation(const Metadata& data, const std::string& prefix, const Architecture& architecture) {
  const std::optional<std::string> name = data.text(prefix + "hidden_activation");
  if (!name) return architecture.activation;
  if (*name == "silu") return Activation::silu;
  if (*name == "relu2") return Activation::relu2;
  if (*name == "gelu_pytorch_tanh") return Activation::gelu;
  data.fail("expected an activation of silu, relu2 or gelu_pytorch_tanh, got " + formats::in_quotes(*name));
}

/// Windows and rotations of all layers.
void read_layers(const ModelFile& file, const Metadata& data, const std::string& prefix, Config* c) {
  const std::int64_t rotated = data.whole(prefix + "rope.dimension_count", 0, c->head_size, c->head_size);
  if (rotated % 2 != 0) data.fail(formats::joined("expected an even number of rotated elements, got ", rotated));
  const double base = data.real(prefix + "rope.freq_base", 1 + 1e-6, 1e15, 10000);
  Rotation rotation{plain_frequencies(base, rotated / 2)};
  scale_frequencies(data, prefix, base, c->context, &rotation);
  divide_frequencies(file, data, &rotation);
  c->rotations.push_back(rotation);
  const std::int64_t window = data.whole(prefix + "attention.sliding_window", 0, most_context, c->architecture->window);
  const std::int64_t pattern = c->architecture->pattern;
  const bool turns_windows = c->architecture->turns_windows;
  if (turns_windows) {
    const double of_windows = data.real(prefix + "rope.freq_base_swa", 1 + 1e-6, 1e15, 10000);
    c->rotations.push_back({plain_frequencies(of_windows, rotated / 2)});
  }
  for (std::int64_t i = 0; i < c->layers; ++i) {
    const bool sees_all = pattern > 0 && i % pattern == pattern - 1;
    c->per_layer.push_back({sees_all ? 0 : window, turns_windows && !sees_all ? std::size_t{1} : 0});
  }
}

/// Rows of the embedding, which the files hold as a matrix or as codes.
std::int64_t read_vocabulary(const ModelFile& file, const Metadata& data, std::int64_t width) {
  const formats::GgufTensor* const embedding = file.gguf.find("token_embd.weight");
  const auto coded = file.codes.find("token_embd");
  const std::string name = formats::in_quotes(file.called("token_embd.weight"));
  if (embedding == nullptr && coded == file.codes.end()) data.fail("the tensor " + name + " is missing");
  const std::vector<std::int64_t> sizes =
      embedding != nullptr ? embedding->sizes
                           : std::vector<std::int64_t>{coded->second.out_features, coded->second.in_features};
  if (sizes.size() != 2 || sizes[1] != width || sizes[0] > most_vocabulary)
    data.fail(formats::joined("the tensor ", name, ": expected [tokens, ", width, "], got ", formats::listed(sizes)));
  return sizes[0];
}

}  // namespace

std::int64_t Config::window() const {
  std::int64_t most = 0;
  for (const LayerConfig& of_layer : per_layer) {
    if (of_layer.window == 0) return 0;
    most = std::max(most, of_layer.window);
  }
  return most;
}

Config read_config(const ModelFile& file) {
  const Metadata data(file);
  const std::optional<std::string> name = data.text("general.architecture");
  if (!name) data.fail("the metadata \"general.architecture\" is missing: expected the file of a language model");
  Config c;
  c.architecture = architecture(*name);
  if (c.architecture == nullptr)
    data.fail(
        formats::joined("expected an architecture among ", architecture_names(), ", got ", formats::in_quotes(*name)));
  const std::string prefix = *name + ".";
  c.layers = data.whole(prefix + "block_count", 1, most_layers);
  c.width = data.whole(prefix + "embedding_length", 1, most_width);
  c.inner = data.whole(prefix + "feed_forward_length", 1, most_width);
  c.context = data.whole(prefix + "context_length", 1, most_context);
  c.heads = data.whole(prefix + "attention.head_count", 1, most_heads);
  c.kv_heads = data.whole(prefix + "attention.head_count_kv", 1, c.heads, c.heads);
  if (c.heads % c.kv_heads != 0)
    data.fail(formats::joined("expected a number of heads that ", c.kv_heads, " KV heads divide, got ", c.heads));
  if (!data.whole(prefix + "attention.key_length") && c.width % c.heads != 0)
    data.fail(formats::joined("expected a width that ", c.heads, " heads divide, got ", c.width));
  c.head_size = data.whole(prefix + "attention.key_length", 1, most_head_size, c.width / c.heads);
  if (const std::int64_t size = data.whole(prefix + "attention.value_length", 1, most_head_size, c.head_size);
      size != c.head_size)
    data.fail(formats::joined("expected values as long as keys, ", c.head_size, ", got ", size));
  if (data.whole(prefix + "expert_count").value_or(0) != 0) data.fail("expected a model without experts, got one with");
  c.pooling = static_cast<Pooling>(data.whole(prefix + "pooling_type", 0, static_cast<std::int64_t>(Pooling::rank), 0));
  c.eps = static_cast<float>(data.real(prefix + "attention.layer_norm_rms_epsilon", 0, 1));
  read_caps(data, prefix, &c);
  c.activation = read_activation(data, prefix, *c.architecture);
  const double scale = data.real(prefix + "attention.scale", 0, 1e6, 0);
  // Gemma of 27B scales by width / heads, which its files do not say: llama.cpp knows it by its number of layers.
  const bool by_width = c.layers == c.architecture->by_width;
  const auto divided = static_cast<double>(by_width ? c.width / c.heads : c.head_size);
  c.scale = static_cast<float>(scale == 0 ? 1 / std::sqrt(divided) : scale);
  if (c.architecture->scales_embedding)
    c.embedding_factor = static_cast<float>(std::sqrt(static_cast<double>(c.width)));
  read_layers(file, data, prefix, &c);
  c.neighbours = c.architecture->neighbours && !file.is_folder();
  c.vocabulary = read_vocabulary(file, data, c.width);
  return c;
}

}  // namespace bie::llm
