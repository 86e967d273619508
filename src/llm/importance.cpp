#include "bie/llm/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "llm/model_tensors.h"
#include "llm/square_sums.h"

namespace bie::llm {
namespace {

constexpr const char* kind = "importance file";
constexpr std::string_view sums_end = ".in_sum2", counts_end = ".counts";

/// The names of linears that read the same rows.
std::map<const weights::Linear*, std::vector<std::string>> names_of(const Model& model) {
  std::map<const weights::Linear*, std::vector<std::string>> names;
  for (std::size_t i = 0; i < model.layers().size(); ++i)
    for (const LinearPart& part : linear_parts(model.config()))
      names[&(model.layers()[i].*part.linear)].push_back(layer_prefix(static_cast<std::int64_t>(i)) + part.name +
                                                         ".weight");
  const bool is_tied = model.file().is_tied();
  names[&model.head()] = {is_tied ? "token_embd.weight" : "output.weight"};
  return names;
}

}  // namespace

Importance importance_of(Session& session, const std::vector<std::int32_t>& tokens, std::int64_t window,
                         const std::function<bool(std::int64_t)>& go_on) {
  const Model& model = session.model();
  if (window < 1 || window > model.config().context)
    throw formats::Error(formats::joined("expected windows of 1 to ", model.config().context,
                                         " tokens, the context of the model, got ", window));
  std::map<const weights::Linear*, SquareSums> sums;
  const auto watch = [&](const weights::Linear& linear, const float* x, std::int64_t rows) {
    sums[&linear].add(x, rows, linear.inputs());
  };
  const auto count = std::ssize(tokens);
  for (std::int64_t at = 0; at < count && go_on(at); at += window) {
    Sequence sequence = session.sequence();
    const std::int64_t of_window = std::min(window, count - at);
    // The head's input is the state of every row; what would become logits is left out.
    const std::vector<float> states =
        session.read({{&sequence, tokens.data() + at, of_window, true}}, Session::Result::states, watch);
    sums[&model.head()].add(states.data(), of_window, model.config().width);
  }
  Importance importance;
  for (const auto& [linear, names] : names_of(model)) {
    const std::vector<float> means = sums[linear].means();
    if (!std::all_of(means.begin(), means.end(), [](float mean) { return std::isfinite(mean); }))
      throw formats::Error(formats::joined("the inputs of ", names.front(), " are NaN or infinite on this text"));
    for (const std::string& name : names) importance[name] = means;
  }
  return importance;
}

void save_importance(const std::string& path, const Importance& importance, std::int64_t tokens, std::int64_t window) {
  using formats::GgufValueType;
  const auto count = static_cast<float>(tokens);
  std::vector<std::vector<float>> sums;
  for (const auto& [name, means] : importance) {
    sums.push_back(means);
    for (float& sum : sums.back()) sum *= count;
  }
  std::vector<formats::GgufOutput> outputs;
  const auto* const f32 = formats::gguf_type("F32");
  const auto add = [&](const std::string& name, std::vector<std::int64_t> sizes, const float* values) {
    std::int64_t bytes = 4;
    for (const std::int64_t size : sizes) bytes *= size;
    outputs.push_back({name, std::move(sizes), f32, reinterpret_cast<const std::uint8_t*>(values), bytes});
  };
  for (std::size_t i = 0; const auto& [name, means] : importance) {
    add(name + std::string(sums_end), {1, std::ssize(means)}, sums[i++].data());
    add(name + std::string(counts_end), {1, 1}, &count);
  }
  const auto u32 = [](std::int64_t value) {
    return formats::GgufValue{GgufValueType::u32, static_cast<std::uint64_t>(value)};
  };
  formats::save_gguf(path,
                     {{"general.type", {GgufValueType::string, std::string("imatrix")}},
                      {"imatrix.datasets", {GgufValueType::string, std::vector<std::string>{"--calibrate"}}},
                      {"imatrix.chunk_count", u32((tokens + window - 1) / window)},
                      {"imatrix.chunk_size", u32(window)}},
                     outputs);
}

Importance load_importance(const std::string& path) {
  const formats::GgufFile file = formats::load_gguf(path);
  const auto fail = [&](const auto&... parts) { formats::fail_file(kind, path, parts...); };
  Importance importance;
  for (const formats::GgufTensor& tensor : file.tensors) {
    if (!tensor.name.ends_with(sums_end)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - sums_end.size());
    const formats::GgufTensor* const counts = file.find(name + std::string(counts_end));
    if (counts == nullptr) fail("the tensor ", formats::in_quotes(name + std::string(counts_end)), " is missing");
    for (const formats::GgufTensor* each : {&tensor, counts})
      if (each->type->name != "F32")
        fail("tensor ", formats::in_quotes(each->name), ": expected F32, got ", each->type->name);
    if (counts->count() != 1 || tensor.rows() != 1)
      fail("tensor ", formats::in_quotes(tensor.name), ": expected the inputs of one matrix, got those of ",
           tensor.rows());
    float count;
    std::memcpy(&count, counts->bytes->data, 4);
    std::vector<float> means(static_cast<std::size_t>(tensor.count()));
    std::memcpy(means.data(), tensor.bytes->data, 4 * means.size());
    for (float& mean : means) {
      mean = count > 0 ? mean / count : 0;
      if (!(mean >= 0 && std::isfinite(mean)))
        fail("tensor ", formats::in_quotes(tensor.name), ": expected numbers of 0 or more, got others");
    }
    importance[name] = std::move(means);
  }
  if (importance.empty()) fail("expected sums of squares of inputs, as llama.cpp's imatrix has them, got none");
  return importance;
}

}  // namespace bie::llm
