#include "kernels/cpu/gemm_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/check.h"

namespace bie::kernels::cpu {
namespace {

constexpr int max_tile = 512;             // mr * nr of the largest tile
constexpr std::int64_t block_tiles = 16;  // tiles of rows that a task takes per panel

/// Packed sign bits of a row, pad bits cleared.
void copy_bits(const void* row, std::int64_t k, void* out, std::int64_t out_bytes) {
  const std::int64_t bytes = (k + 7) / 8;
  std::memcpy(out, row, static_cast<std::size_t>(bytes));
  std::memset(static_cast<char*>(out) + bytes, 0, static_cast<std::size_t>(out_bytes - bytes));
  if (k % 8 != 0) static_cast<std::uint8_t*>(out)[bytes - 1] &= static_cast<std::uint8_t>((1 << (k % 8)) - 1);
}

/// Packed nibbles of a row to bytes q + 8.
void expand_int4(const void* row, std::int64_t k, std::uint8_t* out) {
  const std::uint8_t* packed = static_cast<const std::uint8_t*>(row);
  for (std::int64_t i = 0; i < k; ++i) {
    const int nibble = i % 2 == 0 ? packed[i / 2] >> 4 : packed[i / 2] & 15;
    out[i] = static_cast<std::uint8_t>(nibble ^ 8);
  }
}

bool encode_row(const Tile& tile, const Width& width, std::int64_t k, const GemmInput& x, std::int64_t row,
                std::int64_t code_bytes, char* out) {
  const char* from = static_cast<const char*>(x.data) + row * x.row_stride;
  if (x.dtype == Dtype::bits) {
    copy_bits(from, k, out, code_bytes);
    return true;
  }
  bool finite = true;
  if (x.dtype == Dtype::s4)
    expand_int4(from, k, reinterpret_cast<std::uint8_t*>(out));
  else
    finite = tile.encode({from, x.dtype, k, x.bias, 1, x.step, width.lo, width.hi, tile.code, out});
  // Codes beyond k meet zero weights; they are only kept defined. Sign words are padded by the encoder.
  const std::int64_t written = tile.code == Code::bits ? (k + 31) / 32 * 4 : code_size(tile.code, k);
  std::memset(out + written, 0, static_cast<std::size_t>(code_bytes - written));
  return finite;
}

}  // namespace

Status run_gemm(const Tile& tile, const Width& width, const GemmShape& shape, const GemmInput& x, const void* packed,
                const GemmOutput& y, const Parallel& parallel) {
  const Status checked = check_gemm(shape, x, y, width.code, width.max_k);
  if (checked != Status::ok || shape.m == 0 || shape.n == 0) return checked;
  const PanelLayout layout(tile, shape.n, shape.k, 1);
  const std::int64_t m = shape.m;
  char* codes = static_cast<char*>(workspace(static_cast<std::size_t>(m * layout.code_bytes)));
  if (codes == nullptr && layout.code_bytes > 0) return Status::out_of_memory;

  std::atomic<bool> finite{true};
  const std::int64_t encode_grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, shape.k));
  const std::int64_t encoded = shape.k == 0 ? 0 : m;  // empty rows may lie nowhere: x and codes can be null
  parallel_for(parallel, encoded, encode_grain, [&](std::int64_t begin, std::int64_t end) {
    bool all = true;
    for (std::int64_t row = begin; row < end; ++row)
      all &= encode_row(tile, width, shape.k, x, row, layout.code_bytes, codes + row * layout.code_bytes);
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  if (!finite.load()) return Status::not_finite;

  const std::int64_t block_rows = tile.mr * block_tiles;
  const std::int64_t blocks = (m + block_rows - 1) / block_rows;
  const std::int64_t item_work = std::min(m, block_rows) * tile.nr * std::max<std::int64_t>(1, shape.k);
  const std::int64_t grain = std::max<std::int64_t>(1, width.task_work / item_work);
  const std::int64_t element = row_bytes(y.dtype, 1);
  const bool direct = y.dtype == Dtype::f32 && y.row_stride % 4 == 0;  // written by the tile itself
  parallel_for(parallel, layout.panels * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::int32_t acc[max_tile];
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t p = item / blocks;
      const char* panel = static_cast<const char*>(packed) + p * layout.panel_bytes;
      const std::int64_t column = p * tile.nr;
      const int columns = static_cast<int>(std::min<std::int64_t>(tile.nr, shape.n - column));
      const std::int64_t first = item % blocks * block_rows;
      const std::int64_t last = std::min(m, first + block_rows);
      for (std::int64_t row = first; row < last; row += tile.mr) {
        const int rows = static_cast<int>(std::min<std::int64_t>(tile.mr, last - row));
        const void* pointers[16];
        for (int r = 0; r < rows; ++r) pointers[r] = codes + (row + r) * layout.code_bytes;
        char* out = static_cast<char*>(y.data) + row * y.row_stride + column * element;
        float* at_once = direct ? reinterpret_cast<float*>(out) : nullptr;
        tile.run({pointers, 1, layout.units, rows, columns, reinterpret_cast<const std::int32_t*>(panel),
                  panel + tile.nr * 4, acc, at_once, y.row_stride / 4, y.scale});
        for (int r = 0; r < rows && !direct; ++r)
          tile.store({acc + r * tile.nr, columns, y.scale, y.dtype, out + r * y.row_stride});
      }
    }
  });
  return Status::ok;
}

}  // namespace bie::kernels::cpu
