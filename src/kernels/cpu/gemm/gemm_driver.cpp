#include "kernels/cpu/gemm/gemm_driver.h"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/arithmetic/float_bits.h"
#include "kernels/check.h"

namespace bie::kernels::cpu {
namespace {

constexpr std::int64_t no_offset = 0;          // of the one tap
constexpr std::int64_t block_tiles = 16;       // tiles of rows that meet one panel after the other,
constexpr std::int64_t block_most_rows = 96;   // of no more rows, where they are not loaded by stride,
constexpr std::int64_t block_bytes = 1 << 20;  // unless their codes are more than a core's second cache holds well

constexpr std::int64_t prefetch_tiles = 8, prefetch_rows = 96;  // fewer are too short for a panel to arrive meanwhile

/// Prefetches part `tile` of `tiles` of the panel that is read next.
void prefetch_part(const char* next, std::int64_t bytes, std::int64_t tile, std::int64_t tiles) {
  const std::int64_t lines = bytes / 64, last = (tile + 1) * lines / tiles;
  for (std::int64_t line = tile * lines / tiles; line < last; ++line) __builtin_prefetch(next + line * 64, 0, 2);
}

/// Packed sign bits of a row, pad bits cleared.
void copy_bits(const void* row, std::int64_t k, void* out, std::int64_t out_bytes) {
  const std::int64_t bytes = (k + 7) / 8;
  std::memcpy(out, row, static_cast<std::size_t>(bytes));
  std::memset(static_cast<char*>(out) + bytes, 0, static_cast<std::size_t>(out_bytes - bytes));
  if (k % 8 != 0) static_cast<std::uint8_t*>(out)[bytes - 1] &= static_cast<std::uint8_t>((1 << (k % 8)) - 1);
}

/// Packed nibbles of a row to bytes q + `offset`. Codes beyond k are multiplied with zero weights; they only have to be
/// defined.
void expand_int4(const void* row, std::int64_t k, int offset, char* out, std::int64_t out_bytes) {
  const std::uint8_t* packed = static_cast<const std::uint8_t*>(row);
  for (std::int64_t i = 0; i < k; ++i) {
    const int nibble = i % 2 == 0 ? packed[i / 2] >> 4 : packed[i / 2] & 15;
    out[i] = static_cast<char>((nibble ^ 8) - 8 + offset);
  }
  std::memset(out + k, 0, static_cast<std::size_t>(out_bytes - k));
}

/// Whether every result is finite, bias included, whatever the codes are.
bool surely_finite(const GemmOutput& y, const GemmShape& shape, const Width& width) {
  constexpr std::int32_t magnitude = 0x7fffffff, infinite = 0x7f800000;
  std::int32_t most = 0;  // magnitudes of floats have the order of their bits
  for (std::int64_t i = 0; i < shape.n && y.bias != nullptr; ++i)
    most = std::max(most, static_cast<std::int32_t>(bits_from_float(y.bias[i])) & magnitude);
  const double largest_sum = static_cast<double>(shape.k) * (width.code == Dtype::bits ? 1 : width.lo * width.lo);
  const double result = std::fabs(static_cast<double>(y.scale)) * largest_sum;
  return most < infinite && result + float_from_bits(static_cast<std::uint32_t>(most)) < 0.5 * FLT_MAX;
}

/// The next layer's codes of a tile of results [rows][tile.nr], through `codes` [tile.mr][tile.nr]; false where one is
/// not finite. `out` is their place in y.
bool store_codes(const Tile& tile, const GemmOutput& y, const float* results, char* codes, int rows,
                 std::int64_t column, int columns, char* out) {
  const bool bits = y.dtype == Dtype::bits;
  const std::int64_t stride = bits ? (tile.nr + 31) / 32 * 4 : tile.nr, wanted = row_bytes(y.dtype, columns);
  if (!tile.encode({results, Dtype::f32, columns, y.bias == nullptr ? nullptr : y.bias + column, 1, y.step, -128, 127,
                    bits ? Code::bits : Code::s8, codes, bits ? stride : columns, rows, tile.nr * 4, stride}))
    return false;
  for (int r = 0; r < rows; ++r)
    std::memcpy(out + r * y.row_stride, codes + r * stride, static_cast<std::size_t>(wanted));
  return true;
}

/// Scratch memory of a task for one tile.
struct TileMemory {
  std::int32_t* acc = nullptr;     ///< [mr][nr]
  float* results = nullptr;        ///< [mr][nr], that become codes
  char* codes = nullptr;           ///< [mr][nr]
  std::uint64_t* signs = nullptr;  ///< [mr]
  const void** rows = nullptr;     ///< [mr]

  /// Null pointers where there is no memory.
  explicit TileMemory(const Tile& tile) {
    const std::size_t results_count = static_cast<std::size_t>(tile.mr) * static_cast<std::size_t>(tile.nr);
    const std::size_t words = (results_count * 4 + 63) / 64 * 64, bytes = (results_count + 63) / 64 * 64;
    const std::size_t pointers = static_cast<std::size_t>(tile.mr) * 8;
    char* at = static_cast<char*>(workspace(2 * words + bytes + 2 * pointers, Buffer::tile));
    if (at == nullptr) return;
    acc = reinterpret_cast<std::int32_t*>(at);
    results = reinterpret_cast<float*>(at + words);
    codes = at + 2 * words;
    signs = reinterpret_cast<std::uint64_t*>(codes + bytes);
    rows = reinterpret_cast<const void**>(codes + bytes + pointers);
  }
};

/// Bytes from one row of codes to the next. A tile that loads many rows at once finds each in a cache line of its own,
/// and the lines of one column in different sets: an odd number of them apart.
std::int64_t stride_of_rows(const Tile& tile, std::int64_t code_bytes) {
  return tile.strides ? ((code_bytes + 63) / 64 | 1) * 64 : code_bytes;
}

/// Codes of rows begin ... end - 1; false where NaN or infinity was seen.
bool encode_rows(const Tile& tile, const Width& width, std::int64_t k, const GemmInput& x, std::int64_t begin,
                 std::int64_t end, std::int64_t code_bytes, std::int64_t code_stride, char* codes) {
  const char* from = static_cast<const char*>(x.data) + begin * x.row_stride;
  char* out = codes + begin * code_stride;
  if (is_float(x.dtype) || x.dtype == Dtype::s8)
    return tile.encode({from, x.dtype, k, x.bias, 1, x.step, width.lo, width.hi, tile.code, out, code_bytes,
                        end - begin, x.row_stride, code_stride});
  thread_local std::vector<std::int8_t> bytes;  // kept, as a workspace is
  for (std::int64_t row = begin; row < end; ++row, from += x.row_stride, out += code_stride) {
    if (x.dtype == Dtype::bits) {
      copy_bits(from, k, out, code_bytes);
    } else if (code_size(tile.code, 1) == 1) {
      expand_int4(from, k, zero_code(tile.code), out, code_bytes);
    } else {
      bytes.resize(static_cast<std::size_t>(k));
      expand_int4(from, k, 0, reinterpret_cast<char*>(bytes.data()), k);
      tile.encode({bytes.data(), Dtype::s8, k, nullptr, 1, x.step, width.lo, width.hi, tile.code, out, code_bytes});
    }
  }
  return true;
}

}  // namespace

Status run_gemm(const Tile& tile, const Width& width, const GemmShape& shape, const GemmInput& x, const void* packed,
                const GemmOutput& y, const Parallel& parallel) {
  const Status checked = check_gemm(shape, x, y, width.code, width.max_k);
  if (checked != Status::ok || shape.m == 0 || shape.n == 0) return checked;
  const PanelLayout layout(tile, shape.n, shape.k, 1);
  const std::int64_t m = shape.m, code_stride = stride_of_rows(tile, layout.code_bytes);
  char* codes = static_cast<char*>(workspace(static_cast<std::size_t>(m * code_stride + code_slack)));
  if (codes == nullptr) return Status::out_of_memory;

  std::atomic<bool> finite{true}, enough{true};  // enough memory
  const std::int64_t encode_grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, shape.k));
  const std::int64_t encoded = shape.k == 0 ? 0 : m;  // empty rows may lie nowhere: x and codes can be null
  parallel_for(parallel, encoded, encode_grain, [&](std::int64_t begin, std::int64_t end) {
    if (!encode_rows(tile, width, shape.k, x, begin, end, layout.code_bytes, code_stride, codes))
      finite.store(false, std::memory_order_relaxed);
  });
  if (!finite.load()) return Status::not_finite;

  const std::int64_t tile_bytes = tile.mr * std::max<std::int64_t>(1, code_stride);
  const std::int64_t most_tiles = tile.strides ? block_tiles : std::min(block_tiles, block_most_rows / tile.mr);
  const std::int64_t block_rows = tile.mr * std::clamp<std::int64_t>(block_bytes / tile_bytes, 1, most_tiles);
  const std::int64_t blocks = (m + block_rows - 1) / block_rows;
  const std::int64_t item_work = std::min(m, block_rows) * tile.nr * std::max<std::int64_t>(1, shape.k);
  const std::int64_t grain = std::max<std::int64_t>(1, width.task_work / item_work);
  const bool direct = y.dtype == Dtype::f32 && y.row_stride % 4 == 0;           // written by the tile itself
  const bool signs = y.dtype == Dtype::bits && surely_finite(y, shape, width);  // by the tile too
  const bool coded = is_code(y.dtype) && !signs;
  const bool streamed = tile.strides && direct && m * row_bytes(y.dtype, shape.n) >= huge_output;
  const bool fetch_output = !streamed && m * row_bytes(y.dtype, shape.n) >= large_output;
  const bool lone = m <= tile.mr && direct && !fetch_output;  // one tile, which takes neighbouring panels at once
  const WorkOrder order(blocks, layout.panels, parallel.threads);
  parallel_for(parallel, order.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    const TileMemory memory(tile);
    const OpenedPanel opened(tile, layout.units);
    if (memory.acc == nullptr || !opened.enough()) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    const TileState state(tile);
    bool all_finite = true;
    for (std::int64_t item = begin, run = 1; item < end; item += run) {
      const auto [block, p] = order.item(item);
      const char* panel = static_cast<const char*>(packed) + p * layout.panel_bytes;
      const std::int64_t column = p * tile.nr;
      const int columns = static_cast<int>(std::min<std::int64_t>(tile.nr, shape.n - column));
      const std::int64_t first = block * block_rows;
      const std::int64_t last = std::min(m, first + block_rows);
      run = lone && columns == tile.nr && tile.open == nullptr ? std::min(end - item, shape.n / tile.nr - p) : 1;
      const std::int64_t tiles = (last - first + tile.mr - 1) / tile.mr;
      const void* const weights = opened.open(panel + tile.nr * 4);
      for (std::int64_t row = first; row < last; row += tile.mr) {
        const int rows = static_cast<int>(std::min<std::int64_t>(tile.mr, last - row));
        if ((tiles >= prefetch_tiles || last - first >= prefetch_rows) && p + 1 < layout.panels)
          prefetch_part(panel + layout.panel_bytes, layout.panel_bytes, (row - first) / tile.mr, tiles);
        for (int r = 0; r < rows; ++r) memory.rows[r] = codes + (row + r) * code_stride;
        char* out = static_cast<char*>(y.data) + row * y.row_stride + row_bytes(y.dtype, column);
        if (fetch_output) prefetch_output(out, rows, y.row_stride, row_bytes(y.dtype, columns));
        float* at_once = direct ? reinterpret_cast<float*>(out) : coded ? memory.results : nullptr;
        tile.run({memory.rows, &no_offset, code_stride, 1, layout.units, rows, columns,
                  reinterpret_cast<const std::int32_t*>(panel), weights, memory.acc, at_once,
                  coded ? tile.nr : y.row_stride / 4, y.scale, signs ? memory.signs : nullptr,
                  y.bias == nullptr ? nullptr : y.bias + column, run, layout.panel_bytes, ~0u, streamed});
        if (signs) {
          for (int r = 0; r < rows; ++r)
            std::memcpy(out + r * y.row_stride, memory.signs + r,
                        static_cast<std::size_t>(row_bytes(y.dtype, columns)));
          continue;
        }
        if (coded)
          all_finite = store_codes(tile, y, memory.results, memory.codes, rows, column, columns, out) && all_finite;
        for (int r = 0; r < rows && at_once == nullptr; ++r)
          tile.store({memory.acc + r * tile.nr, columns, y.scale, y.dtype, out + r * y.row_stride});
      }
    }
    if (!all_finite) finite.store(false, std::memory_order_relaxed);
  });
  if (!enough.load()) return Status::out_of_memory;
  return finite.load() ? Status::ok : Status::not_finite;
}

}  // namespace bie::kernels::cpu
