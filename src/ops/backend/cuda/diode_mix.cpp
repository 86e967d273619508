// One launch for many parameters.
#include "ops/backend/diode_mix.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <map>
#include <utility>

#include "bie/kernels/cuda/diode_mix.h"
#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/checks.h"
#include "ops/optim/diode_mix_step.h"

namespace bie::ops::cuda {
namespace {

using Items = std::vector<DiodeMixItem>;

/// Parameters of one launch: the dtypes of their gradients and of their moments are the same.
struct Batch {
  std::vector<const DiodeMixItem*> items;
  std::vector<kernels::cuda::DiodeMixTensor> tensors;
  int count() const { return static_cast<int>(tensors.size()); }
};

/// A step of some items, and the tensors that it needs for itself.
class Step {
 public:
  Step(const char* op, const Items& items, const DiodeMixStep& o) : call_(op, items.front().param.device()) {
    for (const DiodeMixItem& item : items) add(op, item, o);
  }

  /// Leaves out integer weights whose gradient is not finite.
  void skip_not_finite() {
    for (auto& [dtypes, batch] : batches_) {
      const at::Device device = batch.items.front()->param.device();
      const int before = dtypes.first == kernels::Dtype::s8 ? 1 : 0;
      kept_.push_back(at::full({batch.count()}, before, at::TensorOptions(at::kInt).device(device)));
      auto* left_out = kept_.back().mutable_data_ptr<std::int32_t>();
      call_(kernels::cuda::mark_left_out, batch.tensors.data(), batch.count(), dtypes.first, left_out);
      for (kernels::cuda::DiodeMixTensor& tensor : batch.tensors) tensor.left_out = left_out++;
    }
  }

  /// Computes the renewed scales that were requested.
  void renew_scales(const char* op) {
    for (auto& [dtypes, batch] : batches_)
      for (std::size_t i = 0; i < batch.items.size(); ++i) {
        const DiodeMixItem& item = *batch.items[i];
        if (!item.renew_scale) continue;
        check_one_device(op, {item.param, item.scale_w});
        renewed_.emplace_back(item.scale_w, at::empty_like(item.scale_w));
        auto* next = renewed_.back().second.mutable_data_ptr<float>();
        const at::Tensor workspace = call_.workspace();
        call_(kernels::cuda::renewed_scale, batch.tensors[i], mean_to_step(item.bits), next,
              workspace.mutable_data_ptr());
        batch.tensors[i].next = {next, 0};
      }
  }
  void keep_scales() const {
    for (const auto& [scale_w, next] : renewed_) scale_w.copy_(next);
  }

  template <class Kernel, class Numbers>
  void run(Kernel* kernel, const Numbers& numbers) const {
    for (const auto& [dtypes, batch] : batches_)
      call_(kernel, batch.tensors.data(), batch.count(), dtypes.first, dtypes.second, numbers);
  }

 private:
  void add(const char* op, const DiodeMixItem& item, const DiodeMixStep& o) {
    const at::Tensor grad = gradient_in_order(item);
    kept_.push_back(grad);
    kernels::cuda::DiodeMixTensor t{tensor_of(item, grad, o), nullptr, {}, {}};
    if (item.scale_w.defined()) {
      const Scale scale = scale_of(op, "scale_w", item.scale_w, item.param.device());
      kept_.push_back(scale.device);
      t.scale = t.next = scale.scalar();
    }
    Batch& batch = batches_[{kernel_dtype(op, "grad", grad), kernel_dtype(op, "exp_avg_l", item.exp_avg_l)}];
    batch.items.push_back(&item);
    batch.tensors.push_back(t);
  }

  CudaCall call_;
  std::vector<at::Tensor> kept_;  ///< what the batches point to beside the items
  std::map<std::pair<kernels::Dtype, kernels::Dtype>, Batch> batches_;
  std::vector<std::pair<at::Tensor, at::Tensor>> renewed_;  ///< scale_w and its next value
};

class CudaDiodeMix final : public DiodeMixSteps {
  void floats(const char* op, const Items& items, const DiodeMixStep& o) const override {
    Step(op, items, o).run(kernels::cuda::diode_mix_floats, adam_numbers(o));
  }

  void codes(const char* op, const Items& items, const DiodeMixStep& o) const override {
    Step step(op, items, o);
    step.skip_not_finite();
    step.renew_scales(op);
    step.run(kernels::cuda::diode_mix_codes, adam_numbers(o));
    step.keep_scales();
  }

  void signs(const char* op, const Items& items, const DiodeMixStep& o) const override {
    Step step(op, items, o);
    step.skip_not_finite();
    step.run(kernels::cuda::diode_mix_signs, sign_numbers(o));
  }

  void first_moment(const char* op, const at::Tensor& signs, std::uint64_t random,
                    const at::Tensor& moment) const override {
    const CudaCall call(op, signs.device());
    call(kernels::cuda::diode_mix_first_moment, signs.const_data_ptr<std::int8_t>(), signs.numel(), random,
         moment.mutable_data_ptr(), kernel_dtype(op, "a moment", moment));
  }
};

}  // namespace

const DiodeMixSteps& diode_mix() {
  static const CudaDiodeMix it;
  return it;
}

}  // namespace bie::ops::cuda
