// The architectures of `bie train`: image classifiers whose inner layers have 32, 8, 4 or 1 bit.
#pragma once

#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bie/layers/integer_layer.h"

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
};

/// The names of the linears and convolutions, first to last: "conv1", "block3.conv2", "head". A ValueError as
/// weight_count's.
std::vector<std::string> layer_names(const ModelConfig& config);

/// Elements of all weights of such a model (matrices and filters; biases, scales and norms do not count), from the
/// sizes alone. A ValueError for an unknown architecture, bit width or size.
std::int64_t weight_count(const ModelConfig& config);

/// Sees the input of each linear and convolution while a classifier runs.
using Probe = std::function<void(const std::string& layer, const at::Tensor& input)>;

/// A linear or convolution of a classifier.
struct ProductLayer {
  std::string name;                          ///< as in layer_names
  std::shared_ptr<torch::nn::Module> layer;  ///< torch's Linear or Conv2d, or a layers::QuantLayer
  std::shared_ptr<torch::nn::Module> norm;   ///< the BatchNorm behind it; undefined where there is none
};

class Product;

/// [batch, channels, height, width] float to [batch, classes] logits. The last layer is float, the first too, unless
/// the configuration says otherwise.
class Classifier : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& images) = 0;

  const ModelConfig& config() const { return config_; }
  /// Quantised layers in the order of the forward pass; none at 32 bits.
  const std::vector<std::shared_ptr<layers::IntegerLayer>>& quant_layers() const { return quant_layers_; }
  /// All linears and convolutions in the order of the forward pass, the head last.
  std::vector<ProductLayer> products() const;
  /// An empty one takes it away.
  void set_probe(const Probe& probe);
  std::int64_t weight_count() const { return models::weight_count(config_); }
  /// Elements of the quantised weights.
  std::int64_t quantised_count() const;

 protected:
  explicit Classifier(const ModelConfig& config) : config_(config) {}
  void add_product(const std::shared_ptr<Product>& product, const std::shared_ptr<torch::nn::Module>& norm);

 private:
  struct Member {
    std::shared_ptr<Product> product;
    std::shared_ptr<torch::nn::Module> norm;
  };
  ModelConfig config_;
  std::vector<Member> members_;
  std::vector<std::shared_ptr<layers::IntegerLayer>> quant_layers_;
};

/// With w for `width` and d for `depth`:
/// mlp:       linear, then d inner linears, then Linear; each but the last followed by BatchNorm and PReLU.
/// lenet:     5x5 conv w, pool, inner 5x5 conv 2w, pool, inner linear, Linear.
/// vgg-small: d 3x3 convs of w, pool, d of 2w, pool, d of 4w, pool, with BatchNorm and ReLU, Linear.
/// resnet20:  3x3 conv w, d residual blocks of two 3x3 convs of each of w, 2w and 4w with BatchNorm and ReLU, the mean
///            of each channel, Linear: 6d + 2 layers. Shortcuts have no weights: where a block halves the map, every
///            other pixel and channels of zeros (He et al. 2016, option A). A block of binary convolutions has a
///            shortcut round each and PReLU behind it (Bi-Real Net, Liu et al. 2018).
/// custom:    ModelConfig::layers, Linear.
/// vgg-small and resnet20 normalise their input, train with `norm` alone, and have an inner linear of `hidden` before
/// the last where linear_bits is given. A binary convolution, and a binary linear behind convolutions, reads normalised
/// features where the model has `norm`: a ReLU leaves it no signs. A ValueError as weight_count's.
std::shared_ptr<Classifier> make_model(const ModelConfig& config);

}  // namespace bie::models
