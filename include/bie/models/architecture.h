// The table of architectures. classifier.h says what each computes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bie::models {

struct ModelConfig;
struct PlannedLayer;
class Classifier;

/// The linear of ModelConfig::hidden outputs between the features of a convolutional net and its head: where_given is
/// where linear_bits is.
enum class InnerLinear : std::uint8_t { never, where_given, always };

struct Architecture {
  const char* name;               ///< ModelConfig::arch
  std::int64_t depth = 0;         ///< ModelConfig's where it is not given; 0: it has no such size
  const char* depth_counts = "";  ///< what it is a number of
  std::int64_t width = 0;         ///< as depth
  InnerLinear inner = InnerLinear::never;
  bool all_linear = false;  ///< its inner layers are linears of ModelConfig::hidden outputs, which are its width
  bool described = false;   ///< ModelConfig::layers are its layers
  bool deep = false;        ///< many convolutions: normalises its input, trains with BatchNorm alone and at high rates
  bool narrow = false;      ///< few weights a layer: binary ones have to flip sooner
  /// Adds the layers up to the head and returns the features of an image behind them. @throws c10::ValueError
  std::int64_t (*add_layers)(const ModelConfig&, std::vector<PlannedLayer>&);
  std::shared_ptr<Classifier> (*make)(const ModelConfig&);
};

const std::vector<const Architecture*>& architectures();
/// "mlp, lenet, vgg-small or resnet20": those that need no description.
std::string architecture_names();
/// Null for a name that none has.
const Architecture* find_architecture(const std::string& name);
/// @throws c10::ValueError, naming those there are.
const Architecture& architecture_of(const ModelConfig& config);

}  // namespace bie::models
