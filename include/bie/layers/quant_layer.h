// What all quantised layers share: the activation's bias and step size, the forms of the weight, the kernel's panels.
#pragma once

#include <torch/nn/module.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bie/ops.h"

namespace bie::layers {

/// Which values a layer computes where ours differ from BITorch Engine 0.2.6 on purpose (docs/spec/index.md, marked
/// with a dagger there). bie_0_2_6: x + bias_a is rounded back to a 16-bit x's dtype, gradients are
/// GradMode::reference, and the first batch of a 4-bit layer sets scale_a with the 8-bit constant 11.269.
enum class Compat { none, bie_0_2_6 };
/// "none" or "bie-0.2.6"; a ValueError for anything else.
Compat compat_of(const std::string& name);

/// Keeps a learned step size away from zero in training: scale_a >= floor * its first-batch value, whatever the
/// optimizer did. Never applied to a loaded scale, nor to a layer that has not trained. docs/training.md says why.
struct StepSizeGuard {
  float floor = 0.03f;  ///< in [0, 1]; 0 turns the guard off
};

/// Tensors by name.
using StateDict = std::map<std::string, at::Tensor>;

/// State (names are the state-dict keys of BITorch Engine 0.2.6):
///   weight   float, or int8 once prepared for an integer optimizer; undefined once only qweight is kept
///   qweight  the packed weight, where it was asked for
///   bias_a   [in] zeros, learnable, added to the activation before it is quantised
///   scale_a  0-dim float32, learnable; 0 means that the first batch sets it
///   scale_w  0-dim float32, not learned
///   eps      0-dim float32, the smallest step size (8- and 4-bit layers)
///   bias     [out] added to the output, where the layer was made with one (ours: BITorch Engine has none)
///   channel_scale  [out] float32, the output is multiplied by it before the bias, where the layer was made with one
///            (ours): weight[o] = channel_scale[o] * scale_w * code. Not learned; ones until it is set.
/// Scales stay float32 whatever `to` is asked for.
///
/// Training uses `weight`. Evaluation uses the packed form of the current weight: packed on first use, packed anew
/// when the weight is another tensor or was changed (told by its version), forgotten by train(). A write through
/// weight.data() in evaluation cannot be seen: call repack(). A layer's own tensors are ordinary ones, also where it is
/// made, loaded or first trained in inference mode.
///
/// Several threads may call forward in evaluation side by side, the first time too. Everything else, training among it,
/// belongs to one thread at a time.
class QuantLayer : public torch::nn::Module {
 public:
  at::Tensor weight, qweight, bias_a, scale_a, scale_w, eps, bias, channel_scale;

  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// Makes the weight ready for training; acts once, on a float weight.
  virtual void prepare_params() = 0;
  /// Replaces the weight by a float one of the layer's shape and prepares it. Where there is a channel_scale it is
  /// split: channel_scale[o] = mean|data[o]| / mean|data| (1 for a channel of zeros), and the weight is data[o] /
  /// channel_scale[o]. A DiodeMix that has stepped keeps the old weight's moments: make a new one.
  /// @throws c10::ValueError for another shape or dtype, NaN and infinity.
  void set_weight_data(const at::Tensor& data);
  /// Packs the weight into `qweight` (and sets scale_w); with qweight_only the training weight is dropped.
  void generate_quantized_weight(bool qweight_only = false);
  /// Takes a packed weight, in place of any other form. A sentence if its shape or dtype is not the layer's.
  /// scale_w stays where `weight_scale` is undefined.
  void set_quantized_weight_data(const at::Tensor& packed, const at::Tensor& weight_scale = {});
  /// weight in training, the packed form of the current weight in evaluation.
  at::Tensor opt_weight();
  /// Forgets every derived form of the weight.
  void repack();

  /// The layer's tensors by their keys; with `packed` the weight as qweight. The layer is not changed. In training
  /// scale_a is what the next forward pass computes with: an optimizer may have left it below its floor.
  StateDict state(bool packed) const;
  /// A state that has been checked and can be taken without an error.
  struct Staged {
    at::Tensor weight, qweight, bias_a, scale_a, scale_w, eps, bias, channel_scale;
    bool prepared;
  };
  /// Takes the layer's entries ("<prefix>weight" and so on) out of `entries` in whichever form they are: float, int8,
  /// or packed in any layout that BITorch Engine or we write; the float weight of a CPP class, which has no
  /// scales, as its signs, packed. A sentence that names the entry for anything else, NaN and infinity included.
  Staged check_state(StateDict& entries, const std::string& prefix) const;
  /// Takes the form of a checked state. A loaded scale has no guard.
  void take_state(const Staged& staged);

  void set_grad_mode(ops::GradMode mode) { grad_mode_ = mode; }
  ops::GradMode grad_mode() const { return compat_ == Compat::none ? grad_mode_ : ops::GradMode::reference; }
  void set_compat(Compat compat) { compat_ = compat; }
  Compat compat() const { return compat_; }
  /// A ValueError unless the floor is a number in [0, 1].
  void set_step_size_guard(StepSizeGuard guard);
  StepSizeGuard step_size_guard() const { return guard_; }
  /// Whether training makes a gradient for the weight, float or integer; it does unless told otherwise.
  void set_weight_trainable(bool trainable);
  bool weight_trainable() const { return weight_trainable_; }
  /// First-batch value of scale_a that the guard is relative to; 0 where there is none. A training checkpoint keeps it.
  float guarded_scale() const { return guarded_scale_; }
  void set_guarded_scale(float value);

  void train(bool on = true) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  /// One line: BinaryLinear(1000, 37, int8 weight).
  void pretty_print(std::ostream& stream) const override;

  int weight_bits() const { return traits_.bits; }
  /// Elements of the weight.
  std::int64_t weight_count() const { return weight_count_; }
  const std::vector<std::int64_t>& weight_shape() const { return traits_.weight_shape; }
  /// Bytes that evaluation holds besides the layer's tensors: the packed form of a weight, the kernel's panels.
  std::int64_t derived_bytes() const;
  /// "BinaryLinear", "Q4Conv2d".
  const char* kind() const { return traits_.kind; }
  /// "float", "int8" or "packed".
  const char* weight_form() const;

 protected:
  struct Packed {
    at::Tensor qweight, scale_w;
  };
  /// What distinguishes one kind of layer from the others.
  struct Traits {
    const char* kind;  ///< "Q4Linear"
    int bits;
    std::vector<std::int64_t> weight_shape, packed_shape;
    at::ScalarType packed_type;
    std::int64_t feature_axis;  ///< of x
    bool latent;                ///< the weight is trained as a float
    bool has_bias;
    std::string geometry;  ///< further sizes for the description, ", stride=[2, 2]"
    bool has_channel_scale = false;
    std::int64_t groups = 1;  ///< of a convolution: x has groups times the channels of the weight
  };

  explicit QuantLayer(Traits traits);

  virtual Packed pack() const = 0;
  virtual at::Tensor prepack(const at::Tensor& packed) const = 0;
  /// Whether scale_w belongs to the float weight that was put in place.
  virtual void set_prepared(bool /*prepared*/) {}
  /// The scale that a float weight trains with; undefined where the operator computes it.
  virtual at::Tensor float_weight_scale() const = 0;
  /// First-batch scale_a / mean|x|.
  virtual double first_batch_factor() const = 0;
  /// Refuses a float x whose shape this layer cannot take, before it leaves a scale behind.
  virtual void check_input(const at::Tensor& x) const;
  /// A packed weight of a file in the layer's own layout; undefined where it is none that is known. `has_scales` tells
  /// BITorch Engine's flat layouts apart: its CPU class has none.
  virtual at::Tensor known_layout(const at::Tensor& packed, bool has_scales) const;
  /// The same for a convolution, whose packed shape is a label: the bytes may also come as flat rows, or all flat.
  at::Tensor known_filter_layout(const at::Tensor& packed) const;

  const Traits& traits() const { return traits_; }
  bool latent() const { return traits_.latent; }

  /// x and its bias as the operator wants them, the step size initialised and guarded.
  struct Activation {
    at::Tensor x, bias_a;
  };
  Activation activation(const at::Tensor& x);

  /// The weight, its scale and its panels as an operator wants them in this mode.
  struct Operand {
    at::Tensor weight, scale_w, panels, anchor;
  };
  Operand operand();
  /// y * channel_scale + bias, along the feature axis, of a product y.
  at::Tensor finish(const at::Tensor& y) const;
  /// Puts integer codes or signs in place of a float weight.
  void make_integer(const at::Tensor& codes, const at::Tensor& scale);

  /// A tensor as it was when something was derived from it. Its memory is held, so that no other gets the address.
  class Seen {
   public:
    Seen() = default;
    explicit Seen(const at::Tensor& tensor);
    /// Whether it is that tensor, unchanged. Never for one of inference mode, which counts no versions.
    bool operator==(const at::Tensor& tensor) const;

   private:
    at::Tensor tensor_;
    c10::Storage memory_;
    const void* data_ = nullptr;
    std::uint32_t version_ = 0;
  };

 private:
  void refresh();
  /// What the guard keeps scale_a from falling below; 0 where nothing does.
  float least_scale() const { return is_training() ? guard_.floor * guarded_scale_ : 0; }
  void guard_scale();
  void first_batch_scale(const at::Tensor& x);
  void set_weight(const at::Tensor& value);
  void set_qweight(const at::Tensor& value);

  Traits traits_;
  std::int64_t weight_count_;
  ops::GradMode grad_mode_ = ops::GradMode::exact;
  Compat compat_ = Compat::none;
  StepSizeGuard guard_;
  float guarded_scale_ = 0;
  std::atomic<bool> scale_ready_ = false;
  bool weight_trainable_ = true;
  std::mutex derived_;  // what evaluation derives: the next five, and the first batch's scale
  Packed current_;      // packed form of the weight weight_seen_, or of qweight alone
  Seen weight_seen_;
  at::Tensor panels_;  // of current_.qweight
  Seen panels_seen_;
  at::Tensor anchor_;
};

/// Every quantised layer inside a module, itself included, by name.
std::map<std::string, QuantLayer*> quant_layers(torch::nn::Module& module);

void set_grad_mode(torch::nn::Module& module, ops::GradMode mode);
void set_compat(torch::nn::Module& module, Compat compat);
/// A ValueError as the layer's, also where there is none.
void set_step_size_guard(torch::nn::Module& module, StepSizeGuard guard);
/// prepare_params and generate_quantized_weight of every quantised layer inside a module.
void prepare_layers(torch::nn::Module& module);
void pack_layers(torch::nn::Module& module, bool qweight_only = true);

}  // namespace bie::layers
