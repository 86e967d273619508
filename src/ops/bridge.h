// Between tensors and kernels: dtypes, rows, scalars, threads, panels, and statuses turned into sentences.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/gemm.h"
#include "bie/kernels/parallel.h"

namespace bie::ops {

using OptTensor = std::optional<at::Tensor>;

/// The tensor, or an undefined one.
inline at::Tensor value_or_none(const OptTensor& tensor) { return tensor.has_value() ? *tensor : at::Tensor(); }
/// nullopt for an undefined tensor, as the dispatcher wants it.
inline OptTensor none_if_undefined(const at::Tensor& tensor) {
  return tensor.defined() ? OptTensor(tensor) : std::nullopt;
}

/// The dispatcher's entry of an operator of ours; look it up once.
template <class Signature>
auto find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

kernels::Parallel torch_parallel();
bool is_float_type(at::ScalarType type);

/// float32, bfloat16, float16 or int8 as a kernel sees it; a sentence for anything else.
kernels::Dtype kernel_dtype(const char* op, const char* name, const at::Tensor& tensor);

/// TypeError unless the tensor is float32, bfloat16 or float16.
void check_float(const char* op, const char* name, const at::Tensor& tensor);

/// A size that the operator's checks or the result depend on; in a traced graph it becomes a constant.
std::int64_t fixed_size(const at::Tensor& tensor, std::int64_t axis);

/// For Meta kernels, which run as soon as one argument is a meta tensor: a sentence unless `tensor`, which a result is
/// allocated like or which the operator writes, is one. Fake tensors look like meta tensors here.
void check_meta(const char* op, const char* name, const at::Tensor& tensor);

/// The only element of a scale, widened to float32; a sentence unless it is one finite floating-point number.
float scale_value(const char* op, const char* name, const at::Tensor& scale);

/// ValueError, with the kernel's reason, unless ok.
void check_status(const char* op, kernels::Status status);
/// The instruction set in use; a sentence when BIE_MAX_ISA is not understood.
kernels::Isa host_isa(const char* op);

/// bias_a as dense float32 [k], or undefined.
at::Tensor float_bias(const char* op, const at::Tensor& bias, std::int64_t k);

/// A tensor seen as rows of its last axis; copied only where its rows are not dense.
struct Rows {
  at::Tensor data;
  std::int64_t count;
  std::int64_t stride;  ///< bytes
};
Rows rows_of(const at::Tensor& x);

/// The weight of a GEMM or convolution in its checkpoint layout, and perhaps already arranged.
struct Weight {
  at::Tensor packed;
  at::Tensor panels;  ///< undefined, or from prepack
};

/// Ids below this one leave the choice to the table; this one names its first row, the next the second.
inline constexpr std::int64_t first_kernel_id = 100;

/// The row an id names, or the table's choice. An id of a row that is not there, not for this machine or not for this
/// shape is the table's choice too, with one warning.
const kernels::GemmKernel& gemm_row(const char* op, const kernels::GemmTable& table, const kernels::GemmShape& shape,
                                    std::int64_t kernel_id);

/// acc or y of shape [m, n] written into `out`; `step` and `bias` as in GemmInput. Panels bring their own row.
void run_gemm(const char* op, const kernels::GemmTable& table, const kernels::GemmShape& shape,
              const kernels::GemmInput& x, const Weight& weight, float scale, const at::Tensor& out,
              std::int64_t kernel_id = 0);
void run_conv2d(const char* op, const kernels::Conv2dTable& table, const kernels::Conv2dShape& shape,
                const kernels::Conv2dInput& x, const Weight& weight, float scale, const at::Tensor& out);

/// Panels of the weight, on its device; without values for a meta tensor.
at::Tensor prepack_gemm(const char* op, const kernels::GemmTable& table, const at::Tensor& weight, std::int64_t n,
                        std::int64_t k, std::int64_t kernel_id = 0);
at::Tensor prepack_conv2d(const char* op, const kernels::Conv2dTable& table, const at::Tensor& weight,
                          const kernels::Conv2dShape& shape);

}  // namespace bie::ops
