// Configuration of a classifier: its architecture, sizes and bits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/picture.h"
#include "bie/formats/table.h"

namespace bie::models {

/// How the weights of the quantised layers are held in training.
enum class WeightForm {
  usual,     ///< int8 at 1 bit, float at 8 and 4
  floating,  ///< float, quantised in each forward pass (latent)
  integer,   ///< int8, moved by DiodeMix
};
/// "usual", "float" or "int8".
const char* name(WeightForm form);
WeightForm weight_form_of(const std::string& name);  ///< A ValueError for any other name.

enum class Activation { none, relu, prelu };

/// A layer of a net that a user describes (arch "custom"); see net_description.h.
struct LayerSpec {
  enum class Type { conv, linear, pool };
  Type type = Type::linear;
  std::int64_t out = 0;   ///< channels or features; a pool has as many as came
  std::int64_t size = 0;  ///< of the square kernel, or of the square that a pool takes the largest value of
  std::int64_t stride = 1, padding = 0;
  int bits = 0;  ///< 0: ModelConfig::bits, 32 in the first layer
  Activation activation = Activation::prelu;
};

struct ModelConfig {
  std::string arch = "mlp";                    ///< mlp, lenet, vgg-small, resnet20 or custom
  int bits = 32;                               ///< of inner layers, weights and activations: 32 (float), 8, 4 or 1
  std::array<std::int64_t, 3> image{1, 8, 8};  ///< channels, height, width
  std::int64_t classes = 10;
  std::int64_t hidden = 1024;  ///< outputs of the inner linears
  /// Inner linears of an mlp (3 unless given), convolutions of a stage of vgg-small (2), blocks of a stage of
  /// resnet20 (3). The others have none.
  std::optional<std::int64_t> depth = {};
  bool norm = true;             ///< BatchNorm after each layer but the last; without it layers have an output bias
  bool quantise_first = false;  ///< the first layer is quantised too, its input normalised; all but the last layer then
  WeightForm weights = WeightForm::usual;
  int linear_bits = 0;  ///< of the inner linear: 0 is `bits` for lenet, and none such layer for vgg-small and resnet20
  std::map<std::string, int> bits_of = {};  ///< of single layers by name, in place of what the fields above say
  bool normalise = false;  ///< the input goes through a BatchNorm without learned numbers; vgg-small's always does
  std::vector<LayerSpec> layers = {};         ///< of a custom net; a linear for the logits follows them
  std::vector<std::string> class_names = {};  ///< empty where the classes are numbers
  /// Channels of the first stage, of which the next ones have 2 and 4 times as many: lenet (32 unless given), vgg-small
  /// (128), resnet20 (16). The others have none.
  std::optional<std::int64_t> width = {};
  /// 8- and 4-bit layers without a BatchNorm behind them have a scale for each output channel.
  bool channel_scales = false;
  std::optional<formats::TableForm> table = {};  ///< of the table it was trained with

  std::optional<formats::Fit> fit = {};  ///< how pictures of other sizes than `image` are brought to it

  /// Whether inputs are any numbers, as of a table, and not pixels in [0, 1].
  bool takes_numbers() const { return normalise || table; }
  /// Whether the one output is a number, table->answer(output) in the table's unit.
  bool is_regression() const { return table && table->regression; }
  /// Name of a class; its number if it has none.
  std::string class_name(std::int64_t index) const {
    return class_names.empty() ? std::to_string(index) : class_names[static_cast<std::size_t>(index)];
  }
};

/// The names of the linears and convolutions, first to last: "conv1", "block3.conv2", "head". A ValueError as
/// weight_count's.
std::vector<std::string> layer_names(const ModelConfig& config);

/// Elements of all weights of such a model (matrices and filters; biases, scales and norms do not count), from the
/// sizes alone. Throws a ValueError for an unknown architecture, bit width or size.
std::int64_t weight_count(const ModelConfig& config);

/// A configuration as the JSON object of a model's file, with "format_version", and back. A training checkpoint holds
/// it too. @throws c10::ValueError, one sentence that names the field.
std::string config_json(const ModelConfig& config);
ModelConfig parse_config(const std::string& json);

}  // namespace bie::models
