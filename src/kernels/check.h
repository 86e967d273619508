// The preconditions every kernel of a table shares, so that all kernels refuse the same inputs alike.
#pragma once

#include <cmath>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/gemm.h"
#include "bie/kernels/packing.h"

namespace bie::kernels {

inline Status check_rows(const RowsShape& shape) {
  return shape.rows < 0 || shape.k < 0 ? Status::bad_shape : Status::ok;
}

/// Whether results of this dtype are codes of the next layer.
inline bool is_code(Dtype dtype) { return dtype == Dtype::bits || dtype == Dtype::s8; }

/// A GEMM on `code` activations (bits, s8 or s4) with a contraction of at most `max_k`.
inline Status check_gemm(const GemmShape& shape, const GemmInput& x, const GemmOutput& y, Dtype code,
                         std::int64_t max_k) {
  if (shape.m < 0 || shape.n < 0 || shape.k < 0) return Status::bad_shape;
  if (shape.k > max_k) return Status::too_deep;
  if (!is_float(x.dtype) && x.dtype != code) return Status::bad_dtype;
  if (!is_float(y.dtype) && y.dtype != Dtype::s32 && !is_code(y.dtype)) return Status::bad_dtype;
  if (code != Dtype::bits && is_float(x.dtype) && !(std::isfinite(x.step) && x.step > 0)) return Status::bad_scale;
  if (y.dtype == Dtype::s8 && !(std::isfinite(y.step) && y.step > 0)) return Status::bad_scale;
  return Status::ok;
}

/// A convolution of `code` activations (bits, s8 or s4) with a contraction of at most `max_k`.
inline Status check_conv2d(const Conv2dShape& s, const Conv2dInput& x, const Conv2dOutput& y, Dtype code,
                           std::int64_t max_k) {
  if (s.batch < 0 || s.in_c < 0 || s.in_h < 0 || s.in_w < 0 || s.out_c < 0) return Status::bad_shape;
  if (s.kernel_h < 1 || s.kernel_w < 1 || s.stride_h < 1 || s.stride_w < 1 || s.dil_h < 1 || s.dil_w < 1)
    return Status::bad_shape;
  if (s.pad_h < 0 || s.pad_w < 0) return Status::bad_shape;
  if (s.groups < 1 || s.in_c % s.groups != 0 || s.out_c % s.groups != 0) return Status::bad_shape;
  if (s.pad_code != 0 && !(code == Dtype::bits && s.pad_code == -1)) return Status::bad_shape;
  if (s.depth() > max_k) return Status::too_deep;
  if (!is_float(x.dtype) && x.dtype != Dtype::s8) return Status::bad_dtype;
  if (!is_float(y.dtype) && y.dtype != Dtype::s32) return Status::bad_dtype;
  if (code != Dtype::bits && is_float(x.dtype) && !(std::isfinite(x.step) && x.step > 0)) return Status::bad_scale;
  if (y.tail == nullptr) return Status::ok;
  if (y.dtype != Dtype::f32 || y.layout != ImageLayout::nhwc) return Status::bad_dtype;
  const bool steps = y.tail->codes != nullptr && !y.tail->signs;
  return steps && !(std::isfinite(y.tail->step) && y.tail->step > 0) ? Status::bad_scale : Status::ok;
}

}  // namespace bie::kernels
