#include "ops/backend/training_tails.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "bie/kernels/cuda/training_tail.h"
#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/tail/composed_training_tail.h"
#include "ops/tail/tail_arguments.h"

namespace bie::ops::cuda {
namespace {

const float* floats(const at::Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; }
float* mutable_floats(const at::Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }

bool is_dense_float(const at::Tensor& t) {
  return !t.defined() || (t.scalar_type() == at::kFloat && t.is_contiguous());
}
bool begins_on_chunk(const at::Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % 16 == 0; }

/// Pixels with their channels side by side.
bool is_rows_of_channels(const at::Tensor& t) {
  return t.dim() == 2 ? t.is_contiguous() : t.is_contiguous(at::MemoryFormat::ChannelsLast);
}
at::Tensor as_rows_of_channels(const at::Tensor& t) {
  const at::Tensor dense = t.contiguous(t.dim() == 2 ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast);
  return begins_on_chunk(dense) ? dense : dense.clone();
}

kernels::cuda::TrainingTail kernel_tail(const TrainingTailInput& in) {
  const at::Tensor& x = in.x;
  const bool is_image = x.dim() == 4;
  kernels::cuda::TrainingTail t{};
  t.images = x.size(0);
  t.height = is_image ? x.size(2) : 1;
  t.width = is_image ? x.size(3) : 1;
  t.channels = x.size(1);
  t.pool = static_cast<int>(std::min<std::int64_t>(in.pool, 3));  // any that has no kernel
  t.dtype = kernel_dtype("training_tail", "x", x);
  t.x = x.const_data_ptr();
  t.shortcut = in.shortcut.defined() ? in.shortcut.const_data_ptr() : nullptr;
  t.weight = floats(in.weight);
  t.bias = floats(in.bias);
  t.relu = in.act.kind == TailActivation::relu;
  t.slope = floats(in.act.slope);
  return t;
}

class CudaTrainingTails final : public TrainingTails {
  bool has_kernels(const TrainingTailInput& in) const override {
    const at::Tensor &x = in.x, &shortcut = in.shortcut;
    if (!is_rows_of_channels(x) || !begins_on_chunk(x)) return false;
    if (shortcut.defined() &&
        (shortcut.scalar_type() != x.scalar_type() || !is_rows_of_channels(shortcut) || !begins_on_chunk(shortcut)))
      return false;
    return is_dense_float(in.weight) && is_dense_float(in.bias) && kernels::cuda::has_training_tail(kernel_tail(in));
  }

  void run(const char* op, const TrainingTailInput& in, double eps, const RunningStatistics& running,
           const at::Tensor& y, const BatchStatistics& batch) const override {
    if (!has_kernels(in) || !is_rows_of_channels(y) || !is_dense_float(running.mean) || !is_dense_float(running.var)) {
      composed_training_tail(in, eps, running, y, batch);
      return;
    }
    kernels::cuda::TrainingTail t = kernel_tail(in);
    t.eps = static_cast<float>(eps);
    t.mean = batch.mean.mutable_data_ptr<float>();
    t.rstd = batch.rstd.mutable_data_ptr<float>();
    const CudaCall call(op, in.x.device());
    const at::Tensor workspace = workspace_of(t, in.x);
    call(kernels::cuda::training_tail, t,
         kernels::cuda::RunningStatistics{mutable_floats(running.mean), mutable_floats(running.var),
                                          static_cast<float>(running.momentum)},
         y.mutable_data_ptr(), workspace.mutable_data_ptr());
  }

  TrainingTailGrads grads(const char* op, const at::Tensor& g, const TrainingTailInput& in,
                          const BatchStatistics& batch, bool want_shortcut) const override {
    if (!has_kernels(in)) return composed_training_tail_grads(g, in, batch, want_shortcut);
    kernels::cuda::TrainingTail t = kernel_tail(in);
    t.mean = batch.mean.mutable_data_ptr<float>();
    t.rstd = batch.rstd.mutable_data_ptr<float>();
    const at::Tensor up = as_rows_of_channels(g.to(in.x.scalar_type()));
    const auto of_channels = [&](const at::Tensor& t) {
      return t.defined() ? at::empty({in.x.size(1)}, t.options().dtype(at::kFloat)) : at::Tensor();
    };
    TrainingTailGrads grads{at::empty_like(in.x), of_channels(in.weight), of_channels(in.bias), {}, {}};
    if (want_shortcut) grads.shortcut = at::empty_like(in.shortcut);
    if (in.act.slope.defined()) grads.slope = at::empty_like(in.act.slope);
    const CudaCall call(op, in.x.device());
    const at::Tensor workspace = workspace_of(t, in.x);
    call(kernels::cuda::training_tail_grads, t,
         kernels::cuda::TrainingTailGrads{up.const_data_ptr(), grads.x.mutable_data_ptr(),
                                          want_shortcut ? grads.shortcut.mutable_data_ptr() : nullptr,
                                          mutable_floats(grads.weight), mutable_floats(grads.bias),
                                          mutable_floats(grads.slope)},
         workspace.mutable_data_ptr());
    return grads;
  }

  static at::Tensor workspace_of(const kernels::cuda::TrainingTail& t, const at::Tensor& x) {
    return at::empty({kernels::cuda::training_tail_bytes(t)}, x.options().dtype(at::kByte).requires_grad(false));
  }
};

}  // namespace

const TrainingTails& training_tails() {
  static const CudaTrainingTails it;
  return it;
}

}  // namespace bie::ops::cuda
