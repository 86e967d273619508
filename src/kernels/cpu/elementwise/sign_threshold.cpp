// The kernels of sign_threshold, best first, and their driver.
#include "bie/kernels/sign_threshold.h"

#include <algorithm>

#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t elements_a_task = 1 << 15, chunk = 1024, largest_pool = 16;

std::int64_t grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, elements_a_task / std::max<std::int64_t>(1, elements));
}

void rows(const cpu::CodeTailPasses& passes, const SignThresholdShape& s, const SignThresholdCall& call,
          std::int64_t begin, std::int64_t end) {
  std::int8_t signs[chunk];
  for (std::int64_t r = begin; r < end; ++r)
    for (std::int64_t c = 0; c < s.channels; c += chunk) {
      const std::int64_t count = std::min(chunk, s.channels - c);
      const bool bytes = call.dtype == Dtype::s8;
      std::int8_t* const y = bytes ? static_cast<std::int8_t*>(call.y) + r * s.channels + c : signs;
      passes.row_signs(call.acc + r * s.channels + c, call.threshold + c, call.flip + c, count, y);
      if (bytes) continue;
      std::uint8_t* const packed = static_cast<std::uint8_t*>(call.y) + r * row_bytes(Dtype::bits, s.channels) + c / 8;
      for (std::int64_t byte = 0; byte < (count + 7) / 8; ++byte) {
        unsigned value = 0;
        for (std::int64_t bit = 0; bit < std::min<std::int64_t>(8, count - 8 * byte); ++bit)
          value |= static_cast<unsigned>(signs[8 * byte + bit] > 0) << bit;
        packed[byte] = static_cast<std::uint8_t>(value);
      }
    }
}

void plane(const cpu::CodeTailPasses& passes, const SignThresholdShape& s, const SignThresholdCall& call,
           std::int64_t i) {
  const std::int64_t size = s.height * s.width, out_h = s.height / s.pool, out_w = s.width / s.pool;
  const std::int64_t c = i % s.channels;
  std::int8_t* const y = static_cast<std::int8_t*>(call.y) + i * out_h * out_w;
  const auto signs = [&](std::int64_t first, std::int64_t count, std::int8_t* to) {
    passes.plane_signs(call.acc + i * size + first, call.threshold[c], call.flip[c] != 0, count, to);
  };
  if (s.pool == 1) return signs(0, size, y);
  std::int8_t larger[chunk], line[chunk];
  const std::int64_t most = chunk / s.pool;
  for (std::int64_t row = 0; row < out_h; ++row)
    for (std::int64_t column = 0; column < out_w; column += most) {
      const std::int64_t count = std::min(most, out_w - column);
      for (std::int64_t j = 0; j < s.pool; ++j) {
        signs((row * s.pool + j) * s.width + column * s.pool, count * s.pool, j == 0 ? larger : line);
        if (j > 0) passes.keep_larger(line, count * s.pool, larger);
      }
      if (s.pool == 2) {
        passes.pool_pairs(larger, count, y + row * out_w + column);
        continue;
      }
      for (std::int64_t p = 0; p < count; ++p) {
        std::int8_t largest = larger[p * s.pool];
        for (std::int64_t j = 1; j < s.pool; ++j) largest = std::max(largest, larger[p * s.pool + j]);
        y[row * out_w + column + p] = largest;
      }
    }
}

template <const cpu::CodeTailPasses& passes>
Status run(const SignThresholdShape& s, const SignThresholdCall& call, const Parallel& parallel) {
  if (s.images < 0 || s.channels < 0 || s.height < 0 || s.width < 0) return Status::bad_shape;
  if (s.pool < 1 || s.pool > largest_pool) return Status::bad_shape;
  const bool one_pixel = s.height == 1 && s.width == 1 && s.pool == 1;
  if (call.dtype != Dtype::s8 && call.dtype != Dtype::bits) return Status::bad_dtype;
  if (call.dtype == Dtype::bits && !one_pixel) return Status::bad_shape;
  const std::int64_t count = one_pixel ? s.images : s.images * s.channels;
  parallel_for(parallel, count, grain(one_pixel ? s.channels : s.height * s.width),
               [&](std::int64_t begin, std::int64_t end) {
                 if (one_pixel) return rows(passes, s, call, begin, end);
                 for (std::int64_t i = begin; i < end; ++i) plane(passes, s, call, i);
               });
  return Status::ok;
}

}  // namespace

Table<SignThresholdKernel> sign_threshold_table() {
  static const SignThresholdKernel best_first[] = {
#if defined(BIE_X86)
    {"sign_threshold_avx2", Isa::avx2, nullptr, run<cpu::avx2::code_tail_passes>},
#endif
    {"sign_threshold_reference", Isa::reference, nullptr, run<cpu::plain::code_tail_passes>},
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
