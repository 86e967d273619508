// Interface between an ISA folder and the plain drivers (gemm_driver.cpp, conv2d_driver.cpp and their like). A tile is
// an encoder, an inner product over weight panels and a store, handed over as function pointers and numbers. Nothing
// here is inline code, so no function compiled with an ISA's flags can be merged with a plain one.
//
// The AVX-512 tiles are 6 rows of 64 outputs, or 7 to 12 rows of half a panel at a time if the panel fits into L2
// beside them.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"

namespace bie::kernels::cpu {

/// Layouts of activation codes that tiles read. A `unit` is what one broadcast reads: four bytes.
enum class Code : std::uint8_t {
  bits,    ///< 32 signs a unit, element 32u+i is bit i of word u
  u8_s8,   ///< q + 128, four codes per unit
  s16_s8,  ///< q as int16, two codes per unit
  u8_s4,   ///< q + 8, four codes per unit
  s8,      ///< q itself, for callers that want codes and no product
  u8_b1,   ///< signs only: 2 where x + bias >= 0, else 0, four codes per unit
  f32,     ///< q as float32, one code per unit
  f32_b1,  ///< signs only: 1 where x + bias >= 0, else -1, one code per unit
};

/// Codes of rows of activations: out[i] = code(float(x[i]) + bias[i]), and zeros from code `count` to byte `row_bytes`.
struct EncodeArgs {
  const void* x;
  Dtype dtype;  ///< f32, bf16, f16, or s8 (codes; bias and step ignored)
  std::int64_t count;
  const float* bias;       ///< null, or one value an element (bias_step 1) or one for all (bias_step 0)
  std::int64_t bias_step;  // the same biases in every row
  float step;
  int lo, hi;
  Code code;
  void* out;
  std::int64_t row_bytes;  ///< of `out`: whole words for bits
  std::int64_t rows = 1;
  std::int64_t x_stride = 0, out_stride = 0;  ///< bytes from one row to the next
};

/// Signs of neighbouring pixels of planes, a word of 32 channels at a time: bit i of out[u * word_stride + p] is
/// float(x[(32u+i) * plane + p]) + bias[32u+i] >= 0; the bits of channels that are not there are 0.
struct SignPlanesArgs {
  const void* x;
  Dtype dtype;  ///< f32, bf16, f16, or s8 (codes; bias ignored)
  std::int64_t channels, pixels;
  std::int64_t plane;  ///< elements from one channel to the next
  const float* bias;   ///< [channels] or null
  std::uint32_t* out;
  std::int64_t word_stride;
};

/// Codes of neighbouring pixels of planes as rows of pixels: byte c of out + p * pixel_bytes is the code of
/// float(x[c * plane + p]) + bias[c]; bytes from `channels` to `row_bytes` are 0.
struct CodePlanesArgs {
  const void* x;
  Dtype dtype;  ///< f32, bf16, f16, or s8 (codes; bias and step ignored)
  std::int64_t channels, pixels;
  std::int64_t plane;  ///< elements from one channel to the next
  const float* bias;   ///< [channels] or null
  float step;
  int lo, hi;
  Code code;  ///< of unsigned bytes
  void* out;
  std::int64_t pixel_bytes, row_bytes;  ///< row_bytes: a multiple of 4
  // Pixel p lies `gap` bytes further for each time that column + p passes a multiple of `width`.
  std::int64_t column, width, gap;
  /// For pixels of one unit, encoded in whole rows: 2 if every other element of a row is read (a stride of 2). Row r
  /// then begins at element r * row_step of a plane.
  std::int64_t pixel_step = 1, row_step = 0;
};

/// acc[r][c] = sum over taps t and units u of codes(rows[r] + tap_offsets[t])[u] . panel(t, u, c), exact.
struct TileArgs {
  const void* const* rows;          ///< [row_count] pointers to activation codes
  const std::int64_t* tap_offsets;  ///< [taps] bytes
  /// Bytes from each row's codes to the next row's, the same at every tap, for tiles that load rows by stride; 0 where
  /// they are not evenly spaced.
  std::int64_t row_stride;
  std::int64_t taps;
  std::int64_t units;         ///< units a tap
  int row_count;              ///< 1 .. mr, or any number where the tile does not load rows by stride
  int col_count;              ///< 1 .. nr: columns beyond it may be left uncomputed
  const std::int32_t* init;   ///< [nr] start values that undo the code's offset
  const void* panel;          ///< [taps][units][nr] weight units, 64-byte aligned; opened where the tile opens them
  std::int32_t* acc;          ///< [row_count][nr], 64-byte aligned; undefined afterwards where y or signs is not null
  float* y = nullptr;         ///< null, or where y[r * y_stride + c] = float(acc[r][c]) * scale goes, c < col_count
  std::int64_t y_stride = 0;  ///< elements
  float scale = 0;
  /// If not null, only signs are written, to this: bit c of signs[r] says whether float(acc[r][c]) * scale + bias[c] >=
  /// 0; it is 0 from col_count on.
  std::uint64_t* signs = nullptr;
  const float* bias = nullptr;  ///< signs only: [col_count] or null
  /// More than one, where y is not null and col_count is nr, are panels one after the other, `panel_bytes` from begin
  /// to begin, init included; each one's results stand nr further in y.
  std::int64_t panels = 1, panel_bytes = 0;
  /// For tiles that load rows by stride. Bit r says that row r has a result; acc and y hold only the rows that have
  /// one, without gaps.
  std::uint32_t kept = ~0u;
  bool streamed = false;  ///< y is more than a core's caches hold, and is written past them
};

/// out[i] = float(acc[i]) * scale in `dtype`, i < count.
struct StoreArgs {
  const std::int32_t* acc;
  std::int64_t count;
  float scale;
  Dtype dtype;
  void* out;
};

/// out[c * plane + p] = float(acc[p * acc_stride + c]) * scale in `dtype`, p < pixels, c < columns. Rows of acc up to
/// the next multiple of 16 pixels, and columns likewise, may be read.
struct StorePlanesArgs {
  const std::int32_t* acc;
  std::int64_t acc_stride, pixels, columns;
  float scale;
  Dtype dtype;
  void* out;
  std::int64_t plane;  ///< elements
};

/// Epilogue of some rows of a convolution (Conv2dTail in kernels/conv2d.h), with y = float(acc[r * acc_stride + c]) *
/// y_scale, or y = sums[r * acc_stride + c] + sum_bias[c] if sums is not null. Pointers point to the first row and
/// column.
struct TailArgs {
  const std::int32_t* acc;
  const float *sums, *sum_bias;  ///< sum_bias: null or [columns]
  std::int64_t acc_stride, rows;
  int columns;  ///< up to 64
  float y_scale;
  const float *scale, *shift;  ///< [columns] or null
  const float* add;
  float slope;
  bool cuts;
  float* v;
  std::int8_t* codes;
  std::int64_t stride;  ///< elements from one row of add, v and codes to the next
  const float* bias;
  float step;
  int lo, hi;
  bool signs;
};

struct Tile {
  Code code;
  int mr, nr;                                  ///< rows and outputs at most; nr up to 64, whose signs are one word
  int unit_codes;                              ///< elements of k in one weight unit of a panel
  int unit_bytes;                              ///< bytes of one weight unit of a panel
  bool (*encode)(const EncodeArgs&);           ///< false: a NaN or infinity was seen
  bool (*sign_planes)(const SignPlanesArgs&);  ///< the same of planes; of tiles of bits alone
  void (*run)(const TileArgs&);
  void (*store)(const StoreArgs&);
  // Null where a tile has none of its own and the driver turns pixels into planes.
  bool (*code_planes)(const CodePlanesArgs&) = nullptr;  ///< false: a NaN or infinity was seen
  void (*store_planes)(const StorePlanesArgs&) = nullptr;
  // Null where a thread needs no state: before its first run and after its last one.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;
  /// Opens a panel's weights before use: `units` weight units of all taps become as many units of opened_unit_bytes per
  /// output. Null: the tile reads them as they are.
  void (*open)(const void* units_of_panel, std::int64_t units, void* opened) = nullptr;
  int opened_unit_bytes = 0;
  bool strides = false;  ///< whether rows are loaded by stride: fast where they are evenly spaced, up to 32 of them
  bool (*tail)(const TailArgs&) = nullptr;  ///< false: a code had no number. Null: that of passes/
};

/// Most outputs of a pixel tile: pixels, and filters.
inline constexpr int pixel_lanes = 64, pixel_rows = 6;

/// out[(t * units + u) * pixel_lanes + p] = planes[u * plane + taps[t] + pixels[p]], p < count; what lies beside count
/// is undefined. 64 words behind the last one may be read.
struct WindowsArgs {
  const std::uint32_t* planes;
  std::int64_t plane, units;
  const std::int32_t* taps;
  std::int64_t tap_count;
  const std::int32_t* pixels;
  int count;
  std::uint32_t* out;  ///< 64-byte aligned
};

/// Byte i of out[u * plane + p] = from[4 * u + i][p], p < count. 16 bytes behind the last one may be read.
struct JoinBytesArgs {
  const std::uint8_t* const* from;
  std::int64_t units, count;
  std::uint32_t* out;
  std::int64_t plane;
};

/// acc[r][p] = sum over i < units of codes(windows[i][p]) . weights[i][r], exact.
struct PixelTileArgs {
  const std::uint32_t* windows;  ///< [units][words of a unit][pixel_lanes], 64-byte aligned
  std::int64_t units;            ///< of weights
  int count;                     ///< of pixels, 1 .. pixel_lanes
  const void* weights;
  std::int64_t weight_stride;  ///< bytes from weights[i] to weights[i + 1]; their rows lie side by side
  int rows;                    ///< 1 .. pixel_rows
  const std::int32_t* init;    ///< [rows] start values that undo the code's offset
  std::int32_t* acc;           ///< [pixel_rows][pixel_lanes], 64-byte aligned; not written where y is not null
  float* y;                    ///< null, or where y[r * y_stride + p] = float(acc[r][p]) * scale goes
  std::int64_t y_stride;       ///< elements
  float scale;
  /// Null, or of each tap: bit p says that pixel p reads it outside the image, where tap_sums[tap * sums_stride + r] is
  /// added. Signs only.
  const std::uint64_t* outside = nullptr;
  std::int64_t taps = 0;
  const std::int32_t* tap_sums = nullptr;
  std::int64_t sums_stride = 0;
};

/// A convolution with pixels as lanes: codes of 32 bits per pixel are multiplied with those of a weight. It reads a
/// tile's panels.
struct PixelTile {
  int lanes;  ///< per vector
  void (*gather)(const WindowsArgs&);
  void (*join)(const JoinBytesArgs&);
  void (*run)(const PixelTileArgs&);
};

/// Outputs of a grouped convolution that are multiplied side by side.
inline constexpr int grouped_lanes = 16;

/// A line of pixels as units that meet grouped_lanes outputs side by side: of pixel p, unit u and output i,
///     out[(p * units + u) * grouped_lanes + i] = bytes first ... first + held - 1 of pixel p, first = (lanes[i] + u) *
///     held,
/// and where held bytes do not fill a unit behind them those of pixels p + step, p + 2 * step, ..., 0 beyond the last.
struct SpreadArgs {
  const void* codes;  ///< 64 bytes behind the first code of a pixel may be read
  std::int64_t pixel_bytes, pixels;
  int held;            ///< bytes of one pixel in a unit: 1, 2 or 4
  std::int64_t units;  ///< per pixel; 1 where pixels share one
  std::int64_t step;
  const std::int32_t* lanes;  ///< [grouped_lanes], lanes[i] + units <= 16; null: output i reads unit i
  void* out;                  ///< 64-byte aligned
};

/// acc[r][p][i] = init[i] + sum over taps t of units(taps[r * row_taps + t] + p * step)[i] . panel(t, i), exact.
struct GroupedTileArgs {
  const void* const* taps;  ///< where the units of the first pixel lie, 64-byte aligned
  std::int64_t tap_count;
  int rows;                  ///< 1 or 2
  std::int64_t row_taps;     ///< up to tap_count
  std::int64_t step;         ///< bytes from a pixel's units to the next one's
  std::int64_t count;        ///< of pixels of a row
  const std::int32_t* init;  ///< [grouped_lanes]
  const void* panel;         ///< [tap_count][grouped_lanes] units, 64-byte aligned
  std::int32_t* acc;      ///< [rows][count][grouped_lanes], 64-byte aligned; undefined afterwards where y is not null
  float* y;               ///< null, or where y[(r * count + p) * y_stride + i] = float(acc[r][p][i]) * scale goes,
                          ///< i < columns
  std::int64_t y_stride;  ///< elements
  int columns;            ///< 1 .. grouped_lanes
  float scale;
};

/// A convolution of few channels or outputs per group, with neighbouring outputs as lanes. A unit is four bytes.
struct GroupedTile {
  Tile rows;  ///< what quantises and stores, of nr = grouped_lanes; it multiplies nothing
  void (*spread)(const SpreadArgs&);
  void (*run)(const GroupedTileArgs&);
  std::int64_t max_depth = INT64_MAX;  ///< the longest contraction
};

/// Signs of pixels whose channels are neighbours, as bits: bit i of byte j of a pixel is channel 8j+i. Pixel p goes to
/// out + p % phases * phase_bytes + p / phases * channels / 8.
struct PackPixelsArgs {
  const float* x;
  std::int64_t pixels, channels;  ///< channels a multiple of 8
  const float* bias;              ///< null, or [channels + 15], behind the last one the first ones again
  std::int64_t phases, phase_bytes;
  std::uint8_t* out;
};
/// Bit b of planes[k][v] is bit k of the number of taps whose bit differs from the weight's, in vectors of 64 bytes.
struct CountTapsArgs {
  const std::uint8_t* const* taps;     ///< 1 + a multiple of 8 of them, up to 57; 64 bytes of each vector are read
  const std::uint8_t* const* weights;  ///< of each tap 64 bytes, 64-byte aligned
  std::int64_t count;
  int vectors;                        ///< 1 or 2
  std::int64_t step;                  ///< bytes from a tap's first vector to its second
  const std::uint8_t* const* inside;  ///< null, or of each tap the bits that count
  std::uint8_t* planes;               ///< [count_planes][2] vectors, 64-byte aligned
};
inline constexpr int count_planes = 6;
/// y[i] = float(inside - 2 * count(i)) * scale.
struct WriteCountsArgs {
  const std::uint8_t* planes;  ///< the byte of the first bit, the planes 128 bytes apart; 8 bytes at a time are read
  std::int64_t count;
  int inside;  ///< taps inside the image
  float scale;
  float* y;
};
struct SignPixels {
  bool (*pack)(const PackPixelsArgs&);  ///< false where x + bias is not finite
  void (*count)(const CountTapsArgs&);
  void (*write)(const WriteCountsArgs&);
};

namespace portable {
extern const GroupedTile b1xb1_grouped_tile, s8xs8_grouped_tile, s4xs4_grouped_tile;
extern const Tile b1xb1_tile, s8xs8_tile, s4xs4_tile;
bool encode(const EncodeArgs& args);
void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed);
}  // namespace portable

/// Also holds the passes around the tiles of all ARM sets, where portable's would be slower.
namespace neon {
extern const Tile b1xb1_tile, s8xs8_tile, s4xs4_tile;
bool encode(const EncodeArgs& args);
bool sign_planes(const SignPlanesArgs& args);
bool code_planes(const CodePlanesArgs& args);
void store(const StoreArgs& args);
void store_planes(const StorePlanesArgs& args);
void spread(const SpreadArgs& args);
/// Bit c: float(acc[c]) * scale + bias[c] >= 0, c < count <= 64. bias may be null.
std::uint64_t signs_of(const std::int32_t* acc, int count, float scale, const float* bias);
void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed);
}  // namespace neon

namespace dotprod {
extern const GroupedTile b1xb1_grouped_tile, s8xs8_grouped_tile, s4xs4_grouped_tile;
extern const Tile s8xs8_tile, s4xs4_tile;
}  // namespace dotprod

namespace i8mm {
extern const Tile s8xs8_tile, s4xs4_tile;
}  // namespace i8mm

namespace avx2 {
extern const GroupedTile b1xb1_grouped_tile, s8xs8_grouped_tile, s4xs4_grouped_tile;
extern const Tile b1xb1_tile, s8xs8_tile, s4xs4_tile;
bool encode(const EncodeArgs& args);
bool sign_planes(const SignPlanesArgs& args);
void store(const StoreArgs& args);
void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed);
}  // namespace avx2

namespace avxvnni {
extern const Tile s8xs8_tile, s4xs4_tile;
inline constexpr int s8xs8_rows = 6, s4xs4_rows = 4;  // opening nibbles takes registers
namespace vex {
void s8xs8(const TileArgs& args);
void s4xs4(const TileArgs& args);
}  // namespace vex
namespace evex {
void s8xs8(const TileArgs& args);
void s4xs4(const TileArgs& args);
}  // namespace evex
}  // namespace avxvnni

namespace avx512bw {
extern const Tile b1xb1_tile, s8xs8_tile, s4xs4_tile;
}  // namespace avx512bw

namespace avx512 {
extern const Tile b1xb1_tile, s8xs8_tile, s4xs4_tile;
extern const PixelTile b1xb1_pixel_tile, s8xs8_pixel_tile, s4xs4_pixel_tile;
extern const GroupedTile b1xb1_grouped_tile, s8xs8_grouped_tile, s4xs4_grouped_tile;
extern const SignPixels sign_pixels;
void gather_windows(const WindowsArgs& args);
void join_bytes(const JoinBytesArgs& args);
bool encode(const EncodeArgs& args);
bool sign_planes(const SignPlanesArgs& args);
bool code_planes(const CodePlanesArgs& args);
bool tail(const TailArgs& args);
void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed);
void store(const StoreArgs& args);
void store_planes(const StorePlanesArgs& args);
}  // namespace avx512

/// Panels are those of the AVX-512 tiles.
namespace amx {
extern const Tile s8xs8_tile, s4xs4_tile;
}  // namespace amx

}  // namespace bie::kernels::cpu
