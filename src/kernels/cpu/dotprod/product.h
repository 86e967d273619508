// SDOT: four codes per lane. Private to this folder.
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/portable/byte_tile.h"

namespace bie::kernels::cpu::dotprod {
namespace {

struct Product {
  using Vector = int32x4_t;
  using Operand = int8x16_t;
  static constexpr int rows = 6, lanes = 4, vectors = 4, unit_bytes = 4, parts = 1;
  static constexpr std::int64_t max_units = INT64_MAX;  // int32 sums need no flush
  static Vector zero() { return vdupq_n_s32(0); }
  static Operand weights(const char* at, int) { return vld1q_s8(reinterpret_cast<const std::int8_t*>(at)); }
  static Operand broadcast(const char* row, std::int64_t unit, int) {
    return vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const std::int32_t*>(row) + unit));
  }
  static Vector add(Vector sum, Operand x, Operand w) { return vdotq_s32(sum, w, x); }
  static void flush(Vector sum, std::int32_t* acc) { vst1q_s32(acc, vaddq_s32(vld1q_s32(acc), sum)); }
  static std::int32_t finish(std::int32_t sum, std::int32_t init) { return sum + init; }
  static constexpr auto store = neon::store;
  static constexpr auto signs_of = neon::signs_of;
};

}  // namespace
}  // namespace bie::kernels::cpu::dotprod
