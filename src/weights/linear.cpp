#include "bie/weights/linear.h"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/kernels/float_gemm.h"
#include "bie/kernels/half_gemm.h"
#include "bie/kernels/huge_pages.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/weight_only_gemm.h"
#include "bie/kernels/weight_only_q8.h"
#include "bie/weights/rows_of_one_scale.h"

namespace bie::weights {
namespace {

using kernels::FloatGemmKernel;
using kernels::GemmShape;
using kernels::HalfGemmKernel;
using kernels::Status;
using kernels::WeightOnlyGemmKernel;

/// Memory for panels: aligned to their 64 bytes and backed by huge pages where there are such.
std::shared_ptr<void> panel_memory(std::size_t bytes) {
  constexpr std::size_t alignment = 64;
  void* const memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  kernels::prefer_huge_pages(memory, bytes);
  return {memory, std::free};
}

std::size_t packed_bytes(const WeightOnlyGemmKernel& kernel, const kernels::WeightRows& w) {
  return kernel.rows_bytes(w);
}
std::size_t packed_bytes(const WeightOnlyGemmKernel& kernel, const kernels::PackedWeight& w) {
  return kernel.packed_bytes(w);
}
void prepack(const WeightOnlyGemmKernel& kernel, const kernels::WeightRows& w, void* panels,
             const kernels::Parallel& parallel) {
  kernel.prepack_rows(w, panels, parallel);
}
void prepack(const WeightOnlyGemmKernel& kernel, const kernels::PackedWeight& w, void* panels,
             const kernels::Parallel& parallel) {
  kernel.prepack(w, panels, parallel);
}

}  // namespace

Linear::Linear(const FileMatrix& matrix, Arithmetic arithmetic, std::shared_ptr<const float[]> bias,
               const kernels::Parallel& parallel, bool one_scale)
    : inputs_(matrix.columns()), outputs_(matrix.rows()), bias_(std::move(bias)) {
  if (!matrix.is_coded()) {
    matrix.float_dtype() == kernels::Dtype::f32 ? arrange_floats(matrix) : arrange_halves(matrix, parallel);
    return;
  }
  const bool may_be_one = one_scale && arithmetic == Arithmetic::int8 && RowsOfOneScale::takes(matrix);
  if (!may_be_one || !arrange_as_one_scale(matrix, parallel))
    arrange(matrix.what(), matrix.coded(), arithmetic, parallel);
  matrix.check_opened();
}

void Linear::arrange_floats(const FileMatrix& matrix) {
  const FloatGemmKernel& kernel =
      kernels::choose(kernels::float_gemm_table(), GemmShape{1, outputs_, inputs_}, kernels::host().isas);
  const std::size_t bytes = kernel.packed_bytes(outputs_, inputs_);
  const std::shared_ptr<void> memory = panel_memory(bytes);
  const void* values = matrix.floats();
  std::vector<float> copy;
  if (reinterpret_cast<std::uintptr_t>(values) % alignof(float) != 0) {  // a file may align its tensors to less
    copy.resize(static_cast<std::size_t>(inputs_ * outputs_));
    for (std::int64_t j = 0; j < outputs_; ++j) matrix.read_row(j, copy.data() + j * inputs_);
    values = copy.data();
  }
  kernel.prepack(static_cast<const float*>(values), outputs_, inputs_, static_cast<float*>(memory.get()));
  keep(Kind::floats, &kernel, memory, bytes);
}

void Linear::arrange_halves(const FileMatrix& matrix, const kernels::Parallel& parallel) {
  const HalfGemmKernel& kernel = kernels::choose(
      matrix.float_dtype() == kernels::Dtype::f16 ? kernels::f16_gemm_table() : kernels::bf16_gemm_table(),
      GemmShape{1, outputs_, inputs_}, kernels::host().isas);
  const std::size_t bytes = kernel.packed_bytes(outputs_, inputs_);
  const std::shared_ptr<void> memory = panel_memory(bytes);
  kernel.prepack(matrix.floats(), outputs_, inputs_, memory.get(), parallel);
  keep(Kind::halves, &kernel, memory, bytes);
}

/// False where the scales are several.
bool Linear::arrange_as_one_scale(const FileMatrix& matrix, const kernels::Parallel& parallel) {
  const RowsOfOneScale rows(matrix);
  arrange(matrix.what(), rows.rows(), Arithmetic::int8, parallel);
  return rows.are_one();
}

Linear::Linear(const CodedColumns& columns, Arithmetic arithmetic, const std::shared_ptr<const float[]>& bias,
               const kernels::Parallel& parallel)
    : inputs_(columns.weight().k),
      outputs_(columns.weight().n),
      bias_(bias != nullptr ? bias : columns.bias()),
      channel_scale_(columns.channel_scale()) {
  arrange(columns.what(), columns.weight(), arithmetic, parallel);
}

/// Panels of a weight in either form.
template <class Weight>
void Linear::arrange(const std::string& what, const Weight& weight, Arithmetic arithmetic,
                     const kernels::Parallel& parallel) {
  const bool int8 = arithmetic == Arithmetic::int8;
  const Status status = int8 ? kernels::check_q8_weight(weight) : kernels::check_weight(weight);
  if (status != Status::ok) throw formats::Error(formats::joined(what, ": ", kernels::describe(status)));
  const WeightOnlyGemmKernel& kernel =
      kernels::choose(int8 ? kernels::weight_only_q8_table() : kernels::weight_only_gemm_table(),
                      GemmShape{1, outputs_, inputs_}, kernels::host().isas);
  const std::size_t bytes = packed_bytes(kernel, weight);
  const std::shared_ptr<void> memory = panel_memory(bytes);
  prepack(kernel, weight, memory.get(), parallel);
  keep(Kind::codes, &kernel, memory, bytes);
}

void Linear::keep(Kind kind, const void* kernel, std::shared_ptr<const void> panels, std::size_t bytes) {
  kind_ = kind;
  kernel_ = kernel;
  panels_ = std::move(panels);
  bytes_ = static_cast<std::int64_t>(bytes);
}

Status Linear::run(std::int64_t m, const float* x, float* y, const kernels::Parallel& parallel) const {
  const GemmShape shape{m, outputs_, inputs_};
  if (kind_ == Kind::floats)
    return static_cast<const FloatGemmKernel*>(kernel_)->run(shape, x, static_cast<const float*>(panels_.get()),
                                                             bias_.get(), y, parallel);
  if (kind_ == Kind::halves)
    return static_cast<const HalfGemmKernel*>(kernel_)->run(shape, x, panels_.get(), bias_.get(), y, parallel);
  return static_cast<const WeightOnlyGemmKernel*>(kernel_)->run(
      shape, {x, kernels::Dtype::f32, 4 * inputs_, channel_scale_.get()}, panels_.get(),
      {y, kernels::Dtype::f32, 4 * outputs_, bias_.get()}, parallel);
}

}  // namespace bie::weights
