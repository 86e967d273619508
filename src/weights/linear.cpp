#include "bie/weights/linear.h"

#include <cstdlib>
#include <new>
#include <vector>

#include "bie/formats/error.h"
#include "bie/kernels/float_gemm.h"
#include "bie/kernels/huge_pages.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/weight_only_gemm.h"
#include "bie/kernels/weight_only_q8.h"

namespace bie::weights {
namespace {

using kernels::FloatGemmKernel;
using kernels::GemmShape;
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

}  // namespace

Linear::Linear(const FileMatrix& matrix, Arithmetic arithmetic, std::shared_ptr<const float[]> bias,
               const kernels::Parallel& parallel)
    : inputs_(matrix.columns()), outputs_(matrix.rows()), is_coded_(matrix.is_coded()), bias_(std::move(bias)) {
  const GemmShape shape{1, outputs_, inputs_};
  const kernels::IsaSet isas = kernels::host().isas;
  if (!is_coded_) {
    const FloatGemmKernel& kernel = kernels::choose(kernels::float_gemm_table(), shape, isas);
    std::vector<float> values(static_cast<std::size_t>(inputs_ * outputs_));
    for (std::int64_t j = 0; j < outputs_; ++j) matrix.read_row(j, values.data() + j * inputs_);
    const std::size_t bytes = kernel.packed_bytes(outputs_, inputs_);
    const std::shared_ptr<void> memory = panel_memory(bytes);
    kernel.prepack(values.data(), outputs_, inputs_, static_cast<float*>(memory.get()));
    kernel_ = &kernel;
    panels_ = memory;
    bytes_ = static_cast<std::int64_t>(bytes);
    return;
  }
  const bool int8 = arithmetic == Arithmetic::int8;
  const kernels::WeightRows rows = matrix.coded();
  const Status status = int8 ? kernels::check_q8_weight(rows) : kernels::check_weight(rows);
  if (status != Status::ok) throw formats::Error(formats::joined(matrix.what(), ": ", kernels::describe(status)));
  const WeightOnlyGemmKernel& kernel =
      kernels::choose(int8 ? kernels::weight_only_q8_table() : kernels::weight_only_gemm_table(), shape, isas);
  const std::size_t bytes = kernel.rows_bytes(rows);
  const std::shared_ptr<void> memory = panel_memory(bytes);
  kernel.prepack_rows(rows, memory.get(), parallel);
  matrix.check_opened();
  kernel_ = &kernel;
  panels_ = memory;
  bytes_ = static_cast<std::int64_t>(bytes);
}

Status Linear::run(std::int64_t m, const float* x, float* y, const kernels::Parallel& parallel) const {
  const GemmShape shape{m, outputs_, inputs_};
  if (!is_coded_)
    return static_cast<const FloatGemmKernel*>(kernel_)->run(shape, x, static_cast<const float*>(panels_.get()),
                                                             bias_.get(), y, parallel);
  return static_cast<const WeightOnlyGemmKernel*>(kernel_)->run(
      shape, {x, kernels::Dtype::f32, 4 * inputs_, nullptr}, panels_.get(),
      {y, kernels::Dtype::f32, 4 * outputs_, bias_.get()}, parallel);
}

}  // namespace bie::weights
