#include "nn/model_plan.h"

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace bie::nn {
namespace {

void check_width(const std::string& name, int bits) {
  TORCH_CHECK_VALUE(bits == 32 || bits == 8 || bits == 4 || bits == 1, name, " is ", bits, ", 32, 8, 4 or 1 is wanted");
}

/// An architecture's own sizes; 0 where it has no such size.
struct Arch {
  std::string_view name;
  std::int64_t depth, width;
};
constexpr Arch archs[] = {
    {"mlp", 3, 0}, {"lenet", 0, 32}, {"vgg-small", 2, 128}, {"resnet20", 3, 16}, {"custom", 0, 0}};

Arch arch_of(const ModelConfig& c) {
  const Arch* const found = std::find_if(std::begin(archs), std::end(archs), [&](auto& a) { return a.name == c.arch; });
  return found == std::end(archs) ? Arch{c.arch, 0, 0} : *found;
}

/// A size that is given must be one that the architecture has.
void check_size(const char* name, const ModelConfig& c, const std::optional<std::int64_t>& size,
                std::int64_t Arch::*own, std::int64_t most) {
  if (!size) return;
  std::string others;
  for (const Arch& arch : archs)
    if (arch.*own > 0) others += (others.empty() ? "" : ", ") + std::string(arch.name);
  TORCH_CHECK_VALUE(arch_of(c).*own > 0, name, " is ", *size, ", but ", c.arch, " has no ", name,
                    "; these have one: ", others);
  TORCH_CHECK_VALUE(*size >= 1 && *size <= most, name, " is ", *size, ", 1 to ", most, " is wanted");
}

void check_sizes(const ModelConfig& c) {
  check_width("bits", c.bits);
  if (c.linear_bits != 0) check_width("linear_bits", c.linear_bits);
  for (const std::int64_t size : {c.classes, c.hidden})
    TORCH_CHECK_VALUE(size > 0 && size <= 1 << 20, "a model size is ", size, ", 1 to 1048576 is wanted");
  for (const std::int64_t size : {c.image[0], c.image[1]})
    TORCH_CHECK_VALUE(size > 0 && size <= 1 << 12, "an image size is ", size, ", 1 to 4096 is wanted");
  // The third may be the features of a table, of which there can be more.
  TORCH_CHECK_VALUE(c.image[2] > 0 && c.image[2] <= 1 << 16, "an image size is ", c.image[2], ", 1 to 65536 is wanted");
  constexpr std::int64_t most_values = 1 << 26;
  TORCH_CHECK_VALUE(c.image[0] * c.image[1] * c.image[2] <= most_values, "an image is ", at::IntArrayRef(c.image),
                    ", at most ", most_values, " values are wanted");
  check_size("depth", c, c.depth, &Arch::depth, 1000);
  check_size("width", c, c.width, &Arch::width, 1 << 14);
}

/// The bits of the linear between the features of a convolutional net and its head; 0 where there is none.
int inner_bits(const ModelConfig& c) { return c.linear_bits == 0 && c.arch == "lenet" ? c.bits : c.linear_bits; }

/// Channels of the three stages of vgg-small and resnet20.
std::array<std::int64_t, 3> stages(const ModelConfig& c) { return {width_of(c), 2 * width_of(c), 4 * width_of(c)}; }

// Each of these adds the layers of an architecture and returns the features of an image behind them.

std::int64_t add_mlp(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  TORCH_CHECK_VALUE(c.linear_bits == 0, "linear_bits is ", c.linear_bits,
                    ", but all layers of an mlp are linear: bits is their width");
  std::int64_t in = c.image[0] * c.image[1] * c.image[2];
  for (std::int64_t i = 0; i <= depth_of(c); ++i) {
    layers.push_back({.name = "block" + std::to_string(i), .in = in, .out = c.hidden, .bits = c.bits});
    in = c.hidden;
  }
  return c.hidden;
}

std::int64_t add_lenet(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  const std::int64_t h = ((c.image[1] - 4) / 2 - 4) / 2, w = ((c.image[2] - 4) / 2 - 4) / 2;
  TORCH_CHECK_VALUE(h > 0 && w > 0, "lenet wants images of at least 16x16, these are ", c.image[1], "x", c.image[2]);
  const std::int64_t width = width_of(c);
  layers.push_back({.name = "conv1", .in = c.image[0], .out = width, .kernel = 5, .bits = c.bits});
  layers.push_back({.name = "conv2", .in = width, .out = 2 * width, .kernel = 5, .bits = c.bits});
  return 2 * width * h * w;
}

std::int64_t add_vgg(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  TORCH_CHECK_VALUE(c.image[1] >= 8 && c.image[2] >= 8, "vgg-small wants images of at least 8x8, these are ",
                    c.image[1], "x", c.image[2]);
  std::int64_t in = c.image[0];
  for (const std::int64_t out : stages(c))
    for (std::int64_t i = 0; i < depth_of(c); ++i) {
      const std::string name = "conv" + std::to_string(layers.size());
      layers.push_back({.name = name, .in = in, .out = out, .kernel = 3, .padding = 1, .bits = c.bits});
      in = out;
    }
  return in * (c.image[1] / 8) * (c.image[2] / 8);
}

std::int64_t add_resnet(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  std::int64_t in = width_of(c), block = 0;
  layers.push_back({.name = "conv", .in = c.image[0], .out = in, .kernel = 3, .padding = 1, .bits = c.bits});
  for (const std::int64_t out : stages(c))
    for (std::int64_t i = 0; i < depth_of(c); ++i, ++block) {
      const std::string name = "block" + std::to_string(block);
      const std::int64_t stride = in == out ? 1 : 2;
      layers.push_back({name + ".conv1", in, out, 3, stride, 1, c.bits});
      layers.push_back({name + ".conv2", out, out, 3, 1, 1, c.bits});
      in = out;
    }
  return in;
}

std::int64_t add_conv_net(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  const std::int64_t features = c.arch == "lenet"       ? add_lenet(c, layers)
                                : c.arch == "vgg-small" ? add_vgg(c, layers)
                                                        : add_resnet(c, layers);
  const int bits = inner_bits(c);
  if (bits == 0) return features;
  layers.push_back({.name = "inner", .in = features, .out = c.hidden, .bits = bits});
  return c.hidden;
}

std::int64_t add_custom(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  std::int64_t channels = c.image[0], height = c.image[1], width = c.image[2];
  bool flat = false;
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const LayerSpec& spec = c.layers[i];
    const std::string place = c10::str("layers[", i, "]");
    const int bits = spec.bits != 0 ? spec.bits : c.bits;
    if (spec.type == LayerSpec::Type::linear) {
      layers.push_back(
          {.name = "layer" + std::to_string(i), .in = channels * height * width, .out = spec.out, .bits = bits});
      channels = spec.out;
      height = width = 1;
      flat = true;
      continue;
    }
    const bool pool = spec.type == LayerSpec::Type::pool;
    TORCH_CHECK_VALUE(!flat, place, " is a ", pool ? "pool" : "conv", " behind a linear, which leaves no image");
    const std::int64_t high = height + 2 * spec.padding, wide = width + 2 * spec.padding;
    TORCH_CHECK_VALUE(spec.size <= high && spec.size <= wide, place, " takes squares of ", spec.size,
                      ", what reaches it is ", height, "x", width, " with a border of ", spec.padding);
    if (pool) {
      height /= spec.size;
      width /= spec.size;
      continue;
    }
    layers.push_back({.name = "layer" + std::to_string(i),
                      .in = channels,
                      .out = spec.out,
                      .kernel = spec.size,
                      .stride = spec.stride,
                      .padding = spec.padding,
                      .bits = bits});
    channels = spec.out;
    height = (high - spec.size) / spec.stride + 1;
    width = (wide - spec.size) / spec.stride + 1;
  }
  TORCH_CHECK_VALUE(!layers.empty(), "the net has no layers");
  return channels * height * width;
}

std::string names_of(const std::vector<PlannedLayer>& layers) {
  std::string names;
  for (const PlannedLayer& layer : layers) names += (names.empty() ? "" : ", ") + layer.name;
  return names;
}

}  // namespace

std::int64_t depth_of(const ModelConfig& c) { return c.depth.value_or(arch_of(c).depth); }
std::int64_t width_of(const ModelConfig& c) { return c.width.value_or(arch_of(c).width); }

bool has_own_sizes(const ModelConfig& c) {
  const Arch arch = arch_of(c);
  return depth_of(c) == arch.depth && width_of(c) == arch.width;
}

std::vector<PlannedLayer> plan(const ModelConfig& c) {
  TORCH_CHECK_VALUE(
      c.arch == "mlp" || c.arch == "lenet" || c.arch == "vgg-small" || c.arch == "resnet20" || c.arch == "custom",
      "the architecture is '", c.arch, "', mlp, lenet, vgg-small or resnet20 is wanted");
  check_sizes(c);
  std::vector<PlannedLayer> layers;
  const std::int64_t features = c.arch == "mlp"      ? add_mlp(c, layers)
                                : c.arch == "custom" ? add_custom(c, layers)
                                                     : add_conv_net(c, layers);
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
  return (c.arch == "mlp" || c.arch == "lenet" || c.arch == "custom") && (c.quantise_first || first.bits < 32);
}

bool normalises_input(const ModelConfig& c, const PlannedLayer& first) {
  return c.normalise || c.arch == "vgg-small" || c.arch == "resnet20" || learns_input_norm(c, first);
}

}  // namespace bie::nn
