// Between tensors and kernels: dtypes, rows, scalars, threads, panels, and statuses turned into sentences.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <initializer_list>
#include <optional>
#include <string>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/cuda/conv2d.h"
#include "bie/kernels/cuda/gemm.h"
#include "bie/kernels/gemm.h"

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

bool is_float_type(at::ScalarType type);

/// float32, bfloat16, float16 or int8 as a kernel sees it; a sentence for anything else.
kernels::Dtype kernel_dtype(const char* op, const char* name, const at::Tensor& tensor);

/// The dtype of a result, int32 included, and the order of an image's bytes.
kernels::Dtype out_dtype(const at::Tensor& out);
kernels::ImageLayout layout_of(const at::Tensor& x);

/// TypeError unless the tensor is float32, bfloat16 or float16.
void check_float(const char* op, const char* name, const at::Tensor& tensor);

/// A size that the operator's checks or the result depend on; in a traced graph it becomes a constant.
std::int64_t fixed_size(const at::Tensor& tensor, std::int64_t axis);

/// For Meta kernels, which run as soon as one argument is a meta tensor: a sentence unless `tensor`, which a result is
/// allocated like or which the operator writes, is one. Fake tensors look like meta tensors here.
void check_meta(const char* op, const char* name, const at::Tensor& tensor);

/// The only element of a scale, widened to float32; a sentence unless it is one finite floating-point number.
float scale_value(const char* op, const char* name, const at::Tensor& scale);

/// Whether this build has CUDA kernels. `if constexpr (with_cuda)` around what calls them keeps the others linking.
inline constexpr bool with_cuda = BIE_WITH_CUDA;

/// A scale as the kernels of its device take it: a number on the CPU, left where it is on CUDA, because reading it
/// would wait for the device.
struct Scale {
  float value = 0;    ///< where `device` is undefined
  at::Tensor device;  ///< one float32 on CUDA, or undefined

  kernels::cuda::Scalar scalar() const { return {device.defined() ? device.const_data_ptr<float>() : nullptr, value}; }
};

inline const Scale unit_scale{1, {}};

/// values * scale, not multiplied yet: the pass that reads them does it.
struct Scaled {
  at::Tensor values;
  Scale scale = unit_scale;
  at::Tensor totals{};  ///< undefined, or on CUDA an int8_grad's workspace
  int total_count = 0;  ///< of totals of the values there

  /// Multiplies in place.
  at::Tensor multiplied() const;
};

/// The scale for tensors on `where`: scale_value on the CPU. On CUDA one element on that device, or a 0-dimensional one
/// on the CPU, as torch allows; that it is finite is then not checked.
Scale scale_of(const char* op, const char* name, const at::Tensor& scale, at::Device where);

/// The current stream of the device.
kernels::cuda::Queue cuda_queue(at::Device device);

/// A ValueError unless all defined tensors are on the device of the first.
void check_one_device(const char* op, std::initializer_list<at::Tensor> tensors);

/// ValueError, with the kernel's reason, unless ok.
void check_status(const char* op, kernels::Status status);
/// The instruction sets in use; a sentence when BIE_MAX_ISA is not understood.
kernels::IsaSet host_isas(const char* op);
/// The row that this CPU runs.
template <class Row, class Shape>
const Row& chosen(const char* op, const kernels::Table<Row>& table, const Shape& shape) {
  return kernels::choose(table, shape, host_isas(op));
}

/// bias_a as dense float32 [k], or undefined.
at::Tensor float_bias(const char* op, const at::Tensor& bias, std::int64_t k);

/// A tensor seen as rows of its last axis; copied only where its rows are not dense.
struct Rows {
  at::Tensor data;
  std::int64_t count;
  std::int64_t stride;  ///< bytes
};
Rows rows_of(const at::Tensor& x);

/// What the activation of a product is quantised with, step = max(scale, floor), and what its result is scaled by.
struct Quantiser {
  at::Tensor bias;  ///< float32 or undefined
  Scale scale_a, scale_w;
  float floor = 1;

  float step() const { return scale_a.value > floor ? scale_a.value : floor; }  ///< on the CPU
  float result_scale() const { return scale_a.value * scale_w.value; }          ///< on the CPU
  const float* bias_data() const { return bias.defined() ? bias.const_data_ptr<float>() : nullptr; }
};

/// The panels that came with a packed weight, undefined where the weight was written to since they were made: a
/// compiled graph goes on handing them over. Not told for panels on CUDA, which have no header, nor where the weight is
/// there for its shape alone (strides of 0).
at::Tensor panels_of(const at::Tensor& weight, const OptTensor& panels);

/// The weight of a GEMM or convolution, and perhaps already arranged.
struct Weight {
  at::Tensor values;  ///< on the CPU in the checkpoint layout; on CUDA that, int8 codes of one byte, or floats
  kernels::Dtype dtype = kernels::Dtype::f32;  ///< of `values`
  Scale scale;                                 ///< floats become codes with max(scale, floor)
  float floor = 1;
  at::Tensor panels;  ///< undefined, or from prepack (see panels_of): `values` is not read then
};

/// The tables of one product on every device.
struct GemmTables {
  kernels::GemmTable cpu;
  kernels::cuda::GemmTable cuda;
};
/// Those of operands in codes of this type: bits, s8 or s4.
GemmTables gemm_tables(kernels::Dtype code);

struct Conv2dTables {
  kernels::Conv2dTable cpu;
  kernels::cuda::Conv2dTable cuda;
};
Conv2dTables conv2d_tables(kernels::Dtype code);  ///< As gemm_tables.

/// Ids below this one leave the choice to the table; this one names its first row, the next the second.
inline constexpr std::int64_t first_kernel_id = 100;
/// The same for the rows of CUDA. An id of the other kind of device is automatic, so that a layer can move.
inline constexpr std::int64_t first_cuda_kernel_id = 200, last_cuda_kernel_id = 299;

/// The row an id names, or the one that tuning found fastest, or the table's choice. An id of a row that is not
/// there, not for this machine or not for this shape names none, with one warning.
const kernels::GemmKernel& gemm_row(const char* op, const kernels::GemmTable& table, const kernels::GemmShape& shape,
                                    std::int64_t kernel_id);
/// Warns once of an id that is of no kind of device.
void warn_of_id(const char* op, const kernels::GemmShape& shape, std::int64_t kernel_id);

/// acc or y of shape [m, n] written into `out`. Panels bring their own row on the CPU; on CUDA all rows read the same.
void run_gemm(const char* op, const GemmTables& tables, const kernels::GemmShape& shape, const Rows& x,
              kernels::Dtype dtype, const Quantiser& quantiser, const Weight& weight, const at::Tensor& out,
              std::int64_t kernel_id = 0);
/// x is dense in its suggested memory format, and so is out.
void run_conv2d(const char* op, const Conv2dTables& tables, const kernels::Conv2dShape& shape, const at::Tensor& x,
                const Quantiser& quantiser, const Weight& weight, const at::Tensor& out);

/// Panels of the weight, on its device; without values for a meta tensor.
at::Tensor prepack_gemm(const char* op, const GemmTables& tables, const at::Tensor& weight, kernels::Dtype dtype,
                        std::int64_t n, std::int64_t k, std::int64_t kernel_id = 0);
at::Tensor prepack_conv2d(const char* op, const Conv2dTables& tables, const at::Tensor& weight, kernels::Dtype dtype,
                          const kernels::Conv2dShape& shape);

}  // namespace bie::ops
