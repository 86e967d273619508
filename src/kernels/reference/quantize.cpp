// The definition of the row quantiser (one dull loop) and of the mean that chooses step sizes.
#include "bie/kernels/quantize.h"

#include <atomic>
#include <cmath>
#include <vector>

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

namespace {

template <class Value>
float mean_of(std::int64_t count, const Parallel& parallel, const Value& value) {
  constexpr std::int64_t block = 4096, lane_count = 8;  // the order of the sums depends on these alone
  if (count <= 0) return 0.0f;
  std::vector<double> sums(static_cast<std::size_t>((count + block - 1) / block));
  parallel_for(parallel, static_cast<std::int64_t>(sums.size()), 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      double lanes[lane_count] = {};
      const std::int64_t last = count < (b + 1) * block ? count : (b + 1) * block;
      std::int64_t i = b * block;
      for (; i + lane_count <= last; i += lane_count)
        for (std::int64_t lane = 0; lane < lane_count; ++lane) lanes[lane] += static_cast<double>(value(i + lane));
      for (; i < last; ++i) lanes[i % lane_count] += static_cast<double>(value(i));
      double sum = 0;
      for (const double lane : lanes) sum += lane;
      sums[static_cast<std::size_t>(b)] = sum;
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return static_cast<float>(sum / static_cast<double>(count));
}

/// The mean of change(element).
template <class Change>
float mean_changed(const void* x, Dtype dtype, std::int64_t count, const Parallel& parallel, const Change& change) {
  if (dtype == Dtype::f32) {  // no question of the dtype in the loop
    const float* const floats = static_cast<const float*>(x);
    return mean_of(count, parallel, [=](std::int64_t i) { return change(floats[i]); });
  }
  return mean_of(count, parallel, [=](std::int64_t i) { return change(load_float(x, dtype, i)); });
}

}  // namespace

float mean_abs(const void* x, Dtype dtype, std::int64_t count, const Parallel& parallel) {
  return mean_changed(x, dtype, count, parallel, [](float value) { return std::fabs(value); });
}

float mean(const void* x, Dtype dtype, std::int64_t count, const Parallel& parallel) {
  return mean_changed(x, dtype, count, parallel, [](float value) { return value; });
}

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
