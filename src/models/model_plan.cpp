#include "models/model_plan.h"

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "bie/models/architecture.h"

namespace bie::models {
namespace {

void check_width(const std::string& name, int bits) {
  TORCH_CHECK_VALUE(bits == 32 || bits == 8 || bits == 4 || bits == 1, name, ": expected 32, 8, 4 or 1, got ", bits);
}

/// A size that is given must be one that the architecture has.
void check_size(const char* name, const ModelConfig& c, const std::optional<std::int64_t>& size,
                std::int64_t Architecture::*own, std::int64_t most) {
  if (!size) return;
  std::string others;
  for (const Architecture* architecture : architectures())
    if (architecture->*own > 0) others += (others.empty() ? "" : ", ") + std::string(architecture->name);
  TORCH_CHECK_VALUE(architecture_of(c).*own > 0, name, " is ", *size, ", but ", c.arch, " has no ", name,
                    "; these have one: ", others);
  TORCH_CHECK_VALUE(*size >= 1 && *size <= most, name, ": expected 1 to ", most, ", got ", *size);
}

void check_sizes(const ModelConfig& c) {
  check_width("bits", c.bits);
  if (c.linear_bits != 0) check_width("linear_bits", c.linear_bits);
  for (const std::int64_t size : {c.classes, c.hidden})
    TORCH_CHECK_VALUE(size > 0 && size <= 1 << 20, "a model size: expected 1 to 1048576, got ", size);
  for (const std::int64_t size : {c.image[0], c.image[1]})
    TORCH_CHECK_VALUE(size > 0 && size <= 1 << 12, "an image size: expected 1 to 4096, got ", size);
  // The third may be the features of a table, of which there can be more.
  TORCH_CHECK_VALUE(c.image[2] > 0 && c.image[2] <= 1 << 16, "an image size: expected 1 to 65536, got ", c.image[2]);
  constexpr std::int64_t most_values = 1 << 26;
  TORCH_CHECK_VALUE(c.image[0] * c.image[1] * c.image[2] <= most_values, "an image: expected at most ", most_values,
                    " values, got ", at::IntArrayRef(c.image));
  check_size("depth", c, c.depth, &Architecture::depth, 1000);
  check_size("width", c, c.width, &Architecture::width, 1 << 14);
}

/// The bits of the inner linear; 0 where there is none.
int inner_bits(const ModelConfig& c) {
  const InnerLinear inner = architecture_of(c).inner;
  if (inner == InnerLinear::never) return 0;
  return c.linear_bits == 0 && inner == InnerLinear::always ? c.bits : c.linear_bits;
}

std::string names_of(const std::vector<PlannedLayer>& layers) {
  std::string names;
  for (const PlannedLayer& layer : layers) names += (names.empty() ? "" : ", ") + layer.name;
  return names;
}

}  // namespace

std::int64_t depth_of(const ModelConfig& c) {
  const Architecture* const own = find_architecture(c.arch);
  return c.depth.value_or(own == nullptr ? 0 : own->depth);
}

std::int64_t width_of(const ModelConfig& c) {
  const Architecture* const own = find_architecture(c.arch);
  return c.width.value_or(own == nullptr ? 0 : own->width);
}

bool has_own_sizes(const ModelConfig& c) {
  const Architecture* const own = find_architecture(c.arch);
  return own == nullptr || (depth_of(c) == own->depth && width_of(c) == own->width);
}

std::vector<PlannedLayer> plan(const ModelConfig& c) {
  const Architecture& architecture = architecture_of(c);
  check_sizes(c);
  std::vector<PlannedLayer> layers;
  std::int64_t features = architecture.add_layers(c, layers);
  if (const int bits = inner_bits(c); bits != 0) {
    layers.push_back({.name = "inner", .in = features, .out = c.hidden, .bits = bits});
    features = c.hidden;
  }
  const bool own_bits = !c.layers.empty() && c.layers.front().bits != 0;
  if (!c.quantise_first && !own_bits) layers.front().bits = 32;
  layers.push_back({.name = "head", .in = features, .out = c.classes});
  // Beyond all memories, and far from where a sum of them overflows.
  constexpr double most_weights = 1e15;
  for (const PlannedLayer& layer : layers) {
    const std::int64_t area = layer.is_conv() ? layer.kernel * layer.kernel : 1;
    TORCH_CHECK_VALUE(
        static_cast<double>(layer.in) * static_cast<double>(layer.out) * static_cast<double>(area) <= most_weights,
        "layer '", layer.name, "' has ", layer.in, " inputs and ", layer.out,
        " outputs, more than there is memory for");
  }
  for (const auto& [name, bits] : c.bits_of) {
    const auto found =
        std::find_if(layers.begin(), layers.end(), [&, &wanted = name](auto& layer) { return layer.name == wanted; });
    TORCH_CHECK_VALUE(found != layers.end(), "there is no layer '", name, "'; the layers are ", names_of(layers));
    check_width("the width of layer '" + name + "'", bits);
    found->bits = bits;
  }
  return layers;
}

bool learns_input_norm(const ModelConfig& c, const PlannedLayer& first) {
  return !architecture_of(c).deep && (c.quantise_first || first.bits < 32);
}

bool normalises_input(const ModelConfig& c, const PlannedLayer& first) {
  return c.normalise || architecture_of(c).deep || learns_input_norm(c, first);
}

}  // namespace bie::models
