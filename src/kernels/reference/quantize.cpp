// The definition of the row quantiser: one dull loop.
#include "bie/kernels/quantize.h"

#include <atomic>
#include <cmath>

#include "kernels/check.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

Status run(const RowsShape& shape, const void* x, Dtype dtype, std::int64_t row_stride, const float* bias, float step,
           int lo, int hi, std::int8_t* q, const Parallel&) {
  if (check_rows(shape) != Status::ok) return Status::bad_shape;
  if (!is_float(dtype)) return Status::bad_dtype;
  if (!(std::isfinite(step) && step > 0)) return Status::bad_scale;
  for (std::int64_t row = 0; row < shape.rows; ++row)
    for (std::int64_t i = 0; i < shape.k; ++i) {
      const float value = load_float(static_cast<const char*>(x) + row * row_stride, dtype, i);
      const float xs = value + (bias == nullptr ? 0.0f : bias[i]);
      if (!std::isfinite(xs)) return Status::not_finite;
      q[row * shape.k + i] =
          static_cast<std::int8_t>(quantize(xs, step, static_cast<float>(lo), static_cast<float>(hi)));
    }
  return Status::ok;
}

}  // namespace

const QuantizeKernel quantize_rows = {"quantize_reference", Isa::reference, nullptr, run};

}  // namespace bie::kernels::reference

namespace bie::kernels {

bool codes_within(const std::int8_t* codes, std::int64_t count, int lo, int hi, const Parallel& parallel) {
  const auto span = static_cast<std::uint8_t>(hi - lo);
  std::atomic<bool> within{true};
  parallel_for(parallel, count, 16384, [&](std::int64_t begin, std::int64_t end) {
    std::uint8_t any = 0;
    for (std::int64_t i = begin; i < end; ++i) any |= static_cast<std::uint8_t>(codes[i] - lo) > span;
    if (any != 0) within.store(false, std::memory_order_relaxed);
  });
  return within.load();
}

}  // namespace bie::kernels
