// Arguments that the host passes to the kernels of products of floats and codes (mixed_tile.cuh).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/cuda/input_grad.h"

namespace bie::kernels::cuda {

struct Extremes;

namespace mixed {

constexpr int depth = 64;  ///< per stage: 128 bytes of a float row, 64 rows of codes
constexpr int unit = 64;   ///< columns of codes a warpgroup
constexpr int warpgroups = 2, most_parts = 3;
constexpr int unit_bytes = depth * unit;
constexpr int consumer_warps = 4 * warpgroups;

/// Windows of an image, which the TMA reads tap by tap.
struct Windows {
  int kernel_w, out_w, plane;  ///< plane: windows of an image
  int stride_h, stride_w, pad_h, pad_w, dil_h, dil_w;
};
/// Which operand is read as windows of an image: none, the floats (taps are the depth), or the codes (taps are
/// columns).
enum class Reads { matrices, float_windows, code_windows };

struct Args {
  CUtensorMap codes, parts[most_parts];  ///< the floats are the sum of the parts
  Reads reads;
  Windows windows;
  int rows;                      ///< of the result: rows of floats
  int column_taps, tap_columns;  ///< columns of the result
  bool wide;                     ///< a box of codes serves both warpgroups
  int depth_taps, tap_stages;    ///< of the depth
  int splits;                    ///< parts of the depth, each with a result of its own
  Scalar gain;
  float* out;
  Extremes* totals;                   ///< null, or for a total of every warp
  std::int64_t stride, split_stride;  ///< elements from one row, or split, of the result to the next
  /// If pass.x is not null, the result becomes an activation's gradients instead of being written: one row of sums per
  /// tile and warpgroup, one term per warp.
  InputPass pass;
  InputRule rule;
  Scalar scale_a;
  double* terms;
  float* sums;
};

/// rows: of floats in a tile, 64, 128 or for one part 256. shared: the warpgroups have a unit of codes and half of the
/// rows each; of 128 rows of three parts or 256 of one. transposed: rows of memory are the depth. signs: codes stand
/// for their signs. Neither shared nor signs go with transposed.
struct Choice {
  int rows;
  bool shared, transposed, signs;
};
/// Units of codes in a tile.
constexpr int units_of(bool shared) { return shared ? 1 : warpgroups; }
/// Rows of a tile that a warpgroup has.
constexpr int rows_of_warpgroup(int rows, bool shared) { return shared ? rows / warpgroups : rows; }

Status launch_bf16(const Choice&, const Args&, std::int64_t blocks, const Queue&);
Status launch_bf16x3(const Choice&, const Args&, std::int64_t blocks, const Queue&);
Status launch_f16(const Choice&, const Args&, std::int64_t blocks, const Queue&);

}  // namespace mixed
}  // namespace bie::kernels::cuda
