// Dtypes, sizes, devices and statuses of an operator's arguments, each refused with one sentence.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <initializer_list>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/dtype.h"
#include "bie/kernels/status.h"

namespace bie::ops {

bool is_float_type(at::ScalarType type);

/// float32, bfloat16, float16 or int8 as a kernel sees it; throws for anything else.
kernels::Dtype kernel_dtype(const char* op, const char* name, const at::Tensor& tensor);

/// The dtype of a result, int32 included, and the order of an image's bytes.
kernels::Dtype out_dtype(const at::Tensor& out);
kernels::ImageLayout layout_of(const at::Tensor& x);

/// Throws a TypeError unless the tensor is float32, bfloat16 or float16.
void check_float(const char* op, const char* name, const at::Tensor& tensor);

/// A size that the operator's checks or the result depend on; in a traced graph it becomes a constant.
std::int64_t fixed_size(const at::Tensor& tensor, std::int64_t axis);

/// For Meta kernels, which run as soon as one argument is a meta tensor: throws unless `tensor`, which a result is
/// allocated like or which the operator writes, is one. Fake tensors look like meta tensors here.
void check_meta(const char* op, const char* name, const at::Tensor& tensor);

/// Throws a ValueError unless all defined tensors are on the device of the first.
void check_one_device(const char* op, std::initializer_list<at::Tensor> tensors);

/// ValueError, with the kernel's reason, unless ok.
void check_status(const char* op, kernels::Status status);

/// bias_a as dense float32 [k], or undefined.
at::Tensor float_bias(const char* op, const at::Tensor& bias, std::int64_t k);

/// A tensor seen as rows of its last axis; copied only where its rows are not dense.
struct Rows {
  at::Tensor data;
  std::int64_t count;
  std::int64_t stride;  ///< bytes
};
Rows rows_of(const at::Tensor& x);

}  // namespace bie::ops
