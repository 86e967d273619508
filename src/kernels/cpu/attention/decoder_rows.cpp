// The kernels of decoder_rows, best first, and their driver.
#include "bie/kernels/decoder_rows.h"

#include <algorithm>

#include "kernels/cpu/attention/decoder_passes.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t elements_a_task = 16384;

std::int64_t grain(const Parallel& parallel, std::int64_t elements) {
  return std::max<std::int64_t>(1, elements_a_task / parallel.fineness / std::max<std::int64_t>(1, elements));
}

void run_gate(void (*gate)(std::int64_t, const float*, const float*, float*), std::int64_t count, const float* g,
              const float* u, float* y, const Parallel& parallel) {
  parallel_for(parallel, count, elements_a_task / 4 / parallel.fineness,
               [&](std::int64_t begin, std::int64_t end) { gate(end - begin, g + begin, u + begin, y + begin); });
}

template <const cpu::DecoderPasses& passes>
constexpr DecoderRowsKernel kernel(const char* name, Isa isa) {
  return {
      name,
      isa,
      nullptr,
      [](const RowVectors& v, const float* x, const float* w, float eps, float* y, const Parallel& parallel) {
        parallel_for(parallel, v.rows * v.per_row, grain(parallel, v.size), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t at = i / v.per_row * v.stride + i % v.per_row * v.size;
            passes.rms_norm(x + at, w, eps, v.size, y + at);
          }
        });
      },
      [](const RowVectors& v, std::int64_t pairs, bool neighbours, const float* cosine, const float* sine, float* x,
         const Parallel& parallel) {
        parallel_for(parallel, v.rows * v.per_row, grain(parallel, v.size), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t row = i / v.per_row;
            passes.rotate(pairs, neighbours, cosine + row * pairs, sine + row * pairs,
                          x + row * v.stride + i % v.per_row * v.size);
          }
        });
      },
      [](std::int64_t count, const float* g, const float* u, float* y, const Parallel& parallel) {
        run_gate(passes.silu_gate, count, g, u, y, parallel);
      },
      [](std::int64_t count, const float* g, const float* u, float* y, const Parallel& parallel) {
        run_gate(passes.gelu_gate, count, g, u, y, parallel);
      },
      [](std::int64_t count, const float* g, const float* u, float* y, const Parallel& parallel) {
        run_gate(passes.relu2_gate, count, g, u, y, parallel);
      },
      [](std::int64_t count, const float* y, float* x, const Parallel& parallel) {
        parallel_for(parallel, count, elements_a_task / parallel.fineness,
                     [&](std::int64_t begin, std::int64_t end) { passes.add(end - begin, y + begin, x + begin); });
      },
      [](std::int64_t count, float cap, float* x, const Parallel& parallel) {
        parallel_for(parallel, count, elements_a_task / 4 / parallel.fineness,
                     [&](std::int64_t begin, std::int64_t end) { passes.soft_cap(end - begin, cap, x + begin); });
      }};
}

}  // namespace

Table<DecoderRowsKernel> decoder_rows_table() {
  static const DecoderRowsKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx2::decoder_passes>("decoder_rows_avx2", Isa::avx2),
#endif
    kernel<cpu::plain::decoder_passes>("decoder_rows_portable", Isa::portable),
    reference::decoder_rows,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
