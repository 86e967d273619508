// The kernels of the GEMM tables: encode the activations, then a product; or both at once for few rows.
#pragma once

#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/tables.cuh"

namespace bie::kernels::cuda {

inline Results results_of(const GemmOutput& y) {
  const std::int64_t element = row_bytes(y.dtype, 1);
  return {y.data,
          y.dtype,
          y.row_stride,
          1,
          y.scale_a,
          y.scale_w,
          aligned(y.data, y.row_stride, 2 * element),
          aligned(y.data, y.row_stride,
                  y.dtype == Dtype::bits ? 4
                  : y.dtype == Dtype::s8 ? 8
                                         : 16),
          /*plane_run=*/0,
          y.bias,
          y.next_scale,
          y.next_eps};
}

/// The preconditions of the contract that can be seen without the device.
inline Status check_call(const GemmShape& shape, const Rows& x, const GemmOutput& y, Dtype packed, std::int64_t max_k) {
  const float step = y.next_scale.device != nullptr ? 1 : fmaxf(y.next_scale.value, y.next_eps);
  const Status checked = check_gemm(shape, {x.data, x.dtype, x.row_stride, x.bias, 1},
                                    {y.data, y.dtype, y.row_stride, 1, y.bias, step}, packed, max_k);
  if (checked != Status::ok) return checked;
  return shape.m > most_rows || shape.n > most_rows ? Status::bad_shape : Status::ok;
}

/// Traits of a code width: the packed `dtype` of the table and `max_k`, the greatest depth it accepts.
template <class Product>
struct Family;

/// Whether the activations are the codes that the product reads, in whole chunks.
template <class Product>
bool serves_as_it_is(const Rows& x, std::int64_t k) {
  return Product::a_format == Format::bytes && x.dtype == Dtype::s8 && k % chunk_bytes == 0 &&
         aligned(x.data, x.row_stride, chunk_bytes);
}

template <class Product, Status (*product)(const TileArgs<MatrixRows>&, const Queue&)>
Status run_gemm(const GemmShape& shape, const Rows& x, const Panels& panels, const GemmOutput& y, void* workspace,
                const Queue& queue) {
  const Status checked = check_call(shape, x, y, Family<Product>::packed, Family<Product>::max_k);
  if (checked != Status::ok || shape.m == 0 || shape.n == 0) return checked;
  const char* codes = static_cast<const char*>(x.data);
  std::int64_t a_stride = x.row_stride;
  Flags flags{static_cast<const int*>(workspace), 0};
  if (!serves_as_it_is<Product>(x, shape.k)) {
    char* const encoded = static_cast<char*>(workspace) + flag_bytes;
    codes = encoded;
    a_stride = row_stride(Product::a_format, shape.k);
    const Status status = encode_rows(x, shape.m, shape.k, Product::a_format, encoded, a_stride,
                                      static_cast<int*>(workspace), &flags.count, queue);
    if (status != Status::ok) return status;
    if (!is_float(x.dtype)) flags.count = 0;
  }
  const std::int64_t b_stride = row_stride(Product::b_format, shape.k);
  const char* const rows = static_cast<const char*>(panels.data);
  return product({{codes, a_stride, static_cast<int>(row_chunks(Product::a_format, shape.k))},
                  rows,
                  b_stride,
                  static_cast<int>(row_chunks(Product::b_format, shape.k)),
                  static_cast<int>(shape.m),
                  static_cast<int>(shape.n),
                  static_cast<int>(shape.k),
                  results_of(y),
                  flags,
                  {panels.flags, panels.flag_count},
                  reinterpret_cast<const int*>(codes + shape.m * a_stride),
                  reinterpret_cast<const int*>(rows + shape.n * b_stride)},
                 queue);
}

template <class Product>
bool accepts_gemv(const GemmShape& shape) {
  constexpr std::int64_t most_columns = std::int64_t{1} << 30;
  return shape.m <= gemv::most_rows && shape.n <= most_columns &&
         gemv_shared<Product>(shape.m, shape.k) <= gemv::most_shared;
}

template <class Product, class Packed>
Status run_gemv(const GemmShape& shape, const Rows& x, const Panels& panels, const GemmOutput& y, void*,
                const Queue& queue) {
  const Status checked = check_call(shape, x, y, Family<Product>::packed, Family<Product>::max_k);
  if (checked != Status::ok || shape.m == 0 || shape.n == 0) return checked;
  if (!accepts_gemv<Product>(shape)) return Status::bad_shape;
  const Gpu* facts = nullptr;
  const Status found = gpu(queue.device, &facts);
  if (found != Status::ok) return found;
  return launch_gemv<Product, Packed>({x,
                                       static_cast<const char*>(panels.data),
                                       row_stride(Product::b_format, shape.k),
                                       static_cast<int>(row_chunks(Product::b_format, shape.k)),
                                       static_cast<int>(shape.m),
                                       static_cast<int>(shape.n),
                                       static_cast<int>(shape.k),
                                       aligned(x.data, x.row_stride, 16),
                                       Family<Product>::range,
                                       results_of(y),
                                       {panels.flags, panels.flag_count}},
                                      *facts, queue);
}

/// Accept a tile if the grid fills all multiprocessors, or if it is the smallest tile.
template <class Shape>
bool fills(const GemmShape& s, const Gpu& gpu) {
  return (s.m + Shape::rows - 1) / Shape::rows * ((s.n + Shape::columns - 1) / Shape::columns) >= gpu.multiprocessors;
}
inline bool few_rows(const GemmShape& s, const Gpu&) { return s.m <= 2 * ThinTile::rows; }

/// The TMA takes no empty matrices.
inline bool has_depth(const GemmShape& s) { return s.k > 0; }

/// Where wgmma is available, gemv is faster only while the single launch dominates; with more rows than a warp takes,
/// that ends early, as on other GPUs.
template <class Product>
bool little_work(const GemmShape& s, const Gpu& gpu) {
  if (gpu.sm != 90) return s.m <= gemv::most_of_warp;
  constexpr std::int64_t unit = 1 << 24;
  const std::int64_t most = s.m > gemv::most_of_warp ? unit : Product::counts ? 4 * unit : 3 * unit;
  return s.n <= most && s.k <= most && s.m * s.n <= most && s.m * s.n * s.k <= most;
}

inline bool one_thin_tile(const GemmShape& s, const Gpu&) { return s.m <= WgmmaWeightThin::right; }

using MixedWgmma = WgmmaTiles<WgmmaWeightSmall, WgmmaWeightHalf, WgmmaMedium, WgmmaLarge>;
using WeightWgmma = WgmmaTiles<WgmmaWeightSmall, WgmmaWeightHalf, WgmmaWeightMedium, WgmmaWeightLarge>;

template <Format format>
std::int64_t gemm_panel_row(std::int64_t k) {
  return whole_row(format, k);
}

template <Format format>
std::int64_t gemm_workspace(std::int64_t m, std::int64_t k) {
  return flag_bytes + m * whole_row(format, k);
}

template <Format format>
Status prepack_gemm(const Rows& weight, std::int64_t n, std::int64_t k, void* panels, int* flags, int* flag_count,
                    const Queue& queue) {
  return encode_weight(weight, n, k, format, panels, row_stride(format, k), flags, flag_count, queue);
}

}  // namespace bie::kernels::cuda
