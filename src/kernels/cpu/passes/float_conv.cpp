// Convolutions of floats as plain loops.
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

struct Outputs {
  const float* bias;
  float* y;
  std::int64_t stride;

  void put(int row, const float* sums, const FloatBlock& block) const {
    float* to = y + row * stride + block.to;
    if (block.lanes == 0xffff && bias != nullptr) {
      for (int j = 0; j < 16; ++j) to[j] = sums[j] + bias[row];
    } else {
      for (int j = 0; j < 16; ++j)
        if ((block.lanes >> j & 1) != 0) *to++ = bias == nullptr ? sums[j] : sums[j] + bias[row];
    }
  }
};

template <int rows>
void one_block(const float* a, const float* from, const std::int64_t* offsets, std::int64_t k, const FloatBlock& block,
               const Outputs& out) {
  float acc[rows][16] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    const float* const x = from + block.from + offsets[i];
    for (int r = 0; r < rows; ++r) {
      const float w = a[r * k + i];
      for (int j = 0; j < 16; ++j) acc[r][j] = __builtin_fmaf(w, x[j], acc[r][j]);
    }
  }
  for (int r = 0; r < rows; ++r) out.put(r, acc[r], block);
}

/// One output of few terms keeps four blocks busy.
void four_blocks(const float* a, const float* from, const std::int64_t* offsets, std::int64_t k,
                 const FloatBlock* blocks, const Outputs& out) {
  float acc[4][16] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    const float* const x = from + offsets[i];
    const float w = a[i];
    for (int b = 0; b < 4; ++b)
      for (int j = 0; j < 16; ++j) acc[b][j] = __builtin_fmaf(w, x[blocks[b].from + j], acc[b][j]);
  }
  for (int b = 0; b < 4; ++b) out.put(0, acc[b], blocks[b]);
}

void windows(const float* a, int rows, const float* bias, const float* from, const std::int64_t* offsets,
             std::int64_t k, const FloatBlock* blocks, std::int64_t count, float* y, std::int64_t y_stride) {
  const Outputs out{bias, y, y_stride};
  std::int64_t b = 0;
  if (rows == 1)
    for (; b + 4 <= count; b += 4) four_blocks(a, from, offsets, k, blocks + b, out);
  for (; b < count; ++b) switch (rows) {
      case 1: one_block<1>(a, from, offsets, k, blocks[b], out); break;
      case 2: one_block<2>(a, from, offsets, k, blocks[b], out); break;
      case 3: one_block<3>(a, from, offsets, k, blocks[b], out); break;
      case 4: one_block<4>(a, from, offsets, k, blocks[b], out); break;
      case 5: one_block<5>(a, from, offsets, k, blocks[b], out); break;
      default: one_block<6>(a, from, offsets, k, blocks[b], out); break;
    }
}

void pixels(const float* from, const std::int64_t* offsets, std::int64_t count, const float* panel, std::int64_t k,
            float* y, std::int64_t y_stride) {
  for (std::int64_t first = 0; first < count; first += 4) {
    float acc[4][16] = {};
    for (std::int64_t i = 0; i < k; ++i) {
      const float* const at = from + first + offsets[i];
      for (int p = 0; p < 4; ++p)
        for (int j = 0; j < 16; ++j) acc[p][j] = __builtin_fmaf(at[p], panel[i * 16 + j], acc[p][j]);
    }
    for (int p = 0; p < 4; ++p)
      for (int j = 0; j < 16; ++j) y[(first + p) * y_stride + j] = acc[p][j];
  }
}

}  // namespace

const FloatConvPasses BIE_PASS_SET::float_conv_passes = {6, windows, pixels};

}  // namespace bie::kernels::cpu
