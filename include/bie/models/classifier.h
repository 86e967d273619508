// The architectures of `bie train`: image classifiers whose inner layers have 32, 8, 4 or 1 bit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bie/layers/integer_layer.h"
#include "bie/models/model.h"
#include "bie/models/model_config.h"
#include "bie/runtime/net_builder.h"

namespace bie::models {

/// Sees the input of each linear and convolution while a classifier runs.
using Probe = std::function<void(const std::string& layer, const at::Tensor& input)>;

/// A linear or convolution of a classifier.
struct ProductLayer {
  std::string name;                          ///< as in layer_names
  std::shared_ptr<torch::nn::Module> layer;  ///< torch's Linear or Conv2d, or a layers::QuantLayer
  std::shared_ptr<torch::nn::Module> norm;   ///< the BatchNorm behind it; undefined where there is none
};

class Product;

inline constexpr const char* classifier_kind = "classifier";

/// [batch, channels, height, width] float to [batch, classes] logits. The last layer is float, the first too, unless
/// the configuration says otherwise.
class Classifier : public Model {
 public:
  const char* kind() const override { return classifier_kind; }
  std::string description() const override { return config_json(config_); }

  const ModelConfig& config() const { return config_; }
  /// Quantised layers in the order of the forward pass; none at 32 bits.
  const std::vector<std::shared_ptr<layers::IntegerLayer>>& quant_layers() const { return quant_layers_; }
  /// All linears and convolutions in the order of the forward pass, the head last.
  std::vector<ProductLayer> products() const;
  /// An empty one takes it away.
  void set_probe(const Probe& probe);
  /// Emits the nodes of a net that compute forward in evaluation on the CPU: from an image (or the features, if the net
  /// begins with a linear) to the logits.
  virtual runtime::Symbol trace(runtime::NetBuilder& net) const = 0;
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
