// The kernels of the convolution tables: an implicit GEMM. The image becomes rows of codes, one per pixel, and the
// windows of the output pixels are read in place. Panels hold out_c rows of taps, each tap padded as a pixel is.
#pragma once

#include "kernels/cuda/tables.cuh"
#include "kernels/cuda/tensor_map.h"

namespace bie::kernels::cuda {

/// Checks common to all kernels: the arguments are valid, and sizes fit into the kernels' ints.
template <class Product>
Status check_product(const Conv2dShape& s, const Image& x, const Conv2dOutput& y, std::int64_t max_k) {
  const Status checked = check_conv2d(s, {x.data, x.dtype, x.layout, x.bias, 1}, {y.data, y.dtype, y.layout, 1},
                                      Product::counts ? Dtype::bits : Dtype::s8, max_k);
  if (checked != Status::ok) return checked;
  if (s.groups != 1) return Status::bad_shape;  // the windows read all channels of a pixel
  const bool pads = s.pad_h > 0 || s.pad_w > 0;
  if (Product::counts && pads && s.pad_code == 0) return Status::bad_shape;  // what is outside has code bits 0: -1
  const std::int64_t out_plane = s.out_h() * s.out_w();
  if (s.batch * out_plane > most_rows || s.batch * s.in_h * s.in_w > most_rows) return Status::bad_shape;
  const std::int64_t pixel_chunks = row_chunks(Product::a_format, s.in_c);
  for (const std::int64_t size : {s.in_h, s.in_w, out_plane, s.out_c, s.in_h * s.in_w, s.pad_h, s.pad_w, s.stride_h,
                                  s.stride_w, s.dil_h, s.dil_w, s.dil_h * s.kernel_h, s.dil_w * s.kernel_w,
                                  s.in_h + 2 * s.pad_h, s.in_w + 2 * s.pad_w, s.taps() * pixel_chunks * chunk_bytes})
    if (size > INT32_MAX / 2) return Status::bad_shape;
  return Status::ok;
}

inline int cut_to_int(std::int64_t value) { return static_cast<int>(value); }

/// Bytes from one row of panels to the next.
template <class Product>
std::int64_t panel_stride(const Conv2dShape& s) {
  return s.taps() * row_chunks(Product::b_format, s.in_c) * chunk_bytes;
}

/// Pointer to the popcounts of the panels' rows.
template <class Product>
const int* panel_ones(const Conv2dShape& s, const Panels& panels) {
  return reinterpret_cast<const int*>(static_cast<const char*>(panels.data) + s.out_c * panel_stride<Product>(s));
}

/// Upper bound on dynamic shared memory per block on sm_90; the rest of the 227 KiB is for static variables.
constexpr std::int64_t most_hopper_shared = 226 << 10;

/// 16-bit floats in and out, of one dtype, in NHWC.
inline bool takes_halves(const Image& x, const Conv2dOutput& y) {
  return (x.dtype == Dtype::f16 || x.dtype == Dtype::bf16) && y.dtype == x.dtype && x.layout == ImageLayout::nhwc &&
         y.layout == ImageLayout::nhwc && aligned(x.data, 0, 16) && aligned(y.data, 0, 16) && aligned(x.bias, 0, 16);
}

inline Results results_of(const Conv2dShape& s, const Conv2dOutput& y) {
  const std::int64_t plane = s.out_h() * s.out_w(), element = row_bytes(y.dtype, 1);
  const bool rows = y.layout == ImageLayout::nhwc || plane == 1;
  return {y.data,
          y.dtype,
          rows ? s.out_c * element : 0,
          cut_to_int(plane),
          y.scale_a,
          y.scale_w,
          rows && aligned(y.data, s.out_c * element, 2 * element),
          rows && aligned(y.data, s.out_c * element, 16),
          rows || element != 2                   ? 0
          : aligned(y.data, plane * element, 16) ? 8
          : aligned(y.data, plane * element, 4)  ? 2
                                                 : 0};
}

template <class Product, Status (*product)(const TileArgs<WindowRows>&, const Queue&), std::int64_t max_k>
Status run_conv2d(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y, void* workspace,
                  const Queue& queue) {
  const Status checked = check_product<Product>(s, x, y, max_k);
  if (checked != Status::ok) return checked;
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  if (pixels == 0 || s.out_c == 0) return Status::ok;
  const std::int64_t pixel_chunks = row_chunks(Product::a_format, s.in_c);
  char* codes = static_cast<char*>(workspace) + flag_bytes;
  Flags flags{static_cast<const int*>(workspace), 0};
  const Status encoded =
      encode_image(s, x, Product::a_format, codes, static_cast<int*>(workspace), &flags.count, queue);
  if (encoded != Status::ok) return encoded;
  if (!is_float(x.dtype)) flags.count = 0;
  const auto cut = cut_to_int;
  return product({{codes, cut(s.taps() * pixel_chunks), cut(pixel_chunks), cut(s.in_h), cut(s.in_w), cut(s.out_h()),
                   cut(s.out_w()), cut(s.kernel_w), cut(s.stride_h), cut(s.stride_w), cut(s.pad_h), cut(s.pad_w),
                   cut(s.dil_h), cut(s.dil_w)},
                  static_cast<const char*>(panels.data),
                  panel_stride<Product>(s),
                  cut(panel_stride<Product>(s) / chunk_bytes),
                  cut(pixels),
                  cut(s.out_c),
                  cut(s.depth()),
                  results_of(s, y),
                  flags,
                  {panels.flags, panels.flag_count},
                  /*ones=*/nullptr,
                  panel_ones<Product>(s, panels)},
                 queue);
}

template <class Shape>
bool fills(const Conv2dShape& s, const Image&, const Gpu& gpu) {
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  return s.out_c > Shape::columns / 2 &&
         (pixels + Shape::rows - 1) / Shape::rows * ((s.out_c + Shape::columns - 1) / Shape::columns) >=
             gpu.multiprocessors;
}

/// Whether the TMA can read these windows.
template <Format format>
bool has_window_map(const Conv2dShape& s) {
  const auto cut = [](std::int64_t value) { return static_cast<int>(value < INT32_MAX ? value : INT32_MAX); };
  return maps_windows({s.batch, s.in_h, s.in_w, row_chunks(format, s.in_c) * chunk_bytes, cut(s.kernel_h),
                       cut(s.kernel_w), cut(s.stride_h), cut(s.stride_w), cut(s.pad_h), cut(s.pad_w), cut(s.dil_h),
                       cut(s.dil_w)});
}

/// Whether the TMA reads the windows faster than threads copy them. It takes as long for a pixel of few channels as for
/// one of 128 bytes, so windows of several taps must have many channels. Measured at 64 and 128 channels and batches 1
/// and 128 (docs/measured/gpu-conv2d.md); the bounds lie between.
template <Format format, class Tiles, class Shape>
bool suits_window_map(const Conv2dShape& s, const Image&, const Gpu& gpu) {
  constexpr std::int64_t few = 64, little_work = 1 << 18;
  return (row_chunks(format, s.in_c) * chunk_bytes > few || s.taps() == 1 ||
          s.batch * s.out_h() * s.out_w() * s.taps() <= little_work) &&
         Tiles::template cheapest_of_windows<Shape>(s, gpu);
}

template <Format format>
std::int64_t conv2d_panel_row(const Conv2dShape& s) {
  return s.taps() * row_chunks(format, s.in_c) * chunk_bytes + ones_bytes(format);
}

template <Format format>
std::int64_t conv2d_workspace(const Conv2dShape& s) {
  return flag_bytes + s.batch * s.in_h * s.in_w * row_chunks(format, s.in_c) * chunk_bytes;
}

template <Format format>
Status prepack_conv2d(const Filter& weight, const Conv2dShape& s, void* panels, int* flags, int* flag_count,
                      const Queue& queue) {
  return encode_filter(weight, s, format, panels, flags, flag_count, queue);
}

}  // namespace bie::kernels::cuda
