// The kernels of quantize, best first.
#include "bie/kernels/quantize.h"

#include <atomic>
#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/tile.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

template <bool (*encode)(const cpu::EncodeArgs&)>
Status quantize(const RowsShape& shape, const void* x, Dtype dtype, std::int64_t row_stride, const float* bias,
                float step, int lo, int hi, std::int8_t* q, const Parallel& parallel) {
  if (check_rows(shape) != Status::ok) return Status::bad_shape;
  if (!is_float(dtype)) return Status::bad_dtype;
  if (!(std::isfinite(step) && step > 0)) return Status::bad_scale;
  std::atomic<bool> finite{true};
  parallel_for(parallel, shape.rows, 1 + 65536 / (shape.k + 1), [&](std::int64_t begin, std::int64_t end) {
    if (!encode({static_cast<const char*>(x) + begin * row_stride, dtype, shape.k, bias, 1, step, lo, hi, cpu::Code::s8,
                 q + begin * shape.k, shape.k, end - begin, row_stride, shape.k}))
      finite.store(false, std::memory_order_relaxed);
  });
  return finite.load() ? Status::ok : Status::not_finite;
}

}  // namespace

Table<QuantizeKernel> quantize_table() {
  static const QuantizeKernel best_first[] = {
#if defined(BIE_X86)
    {"quantize_avx512", Isa::avx512, nullptr, quantize<cpu::avx512::encode>},
    {"quantize_avx2", Isa::avx2, nullptr, quantize<cpu::avx2::encode>},
#endif
#if defined(BIE_ARM)
    {"quantize_neon", Isa::neon, nullptr, quantize<cpu::neon::encode>},
#endif
    {"quantize_portable", Isa::portable, nullptr, quantize<cpu::portable::encode>},
    reference::quantize_rows,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
