#include "kernels/cuda/encode.cuh"

namespace bie::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;

struct RowArgs {
  const char* data;
  std::int64_t in_stride;
  const float* bias;
  Scalar scale;
  float eps;
  Range range;
  std::int64_t m, k;
  char* out;
  std::int64_t out_stride;
  int* flags;
};

__device__ void put_flag(int* flags, bool finite) {
  const int bad = __syncthreads_or(!finite);
  if (flags != nullptr && threadIdx.x == 0) flags[blockIdx.x] = bad;
}

/// A thread writes a word at a time.
template <class R, Format format>
__global__ void __launch_bounds__(threads, 4) encode_words(const RowArgs a) {
  const float step = R::quantises ? fmaxf(value_of(a.scale), a.eps) : 1;
  const std::int64_t words = row_chunks(format, a.k) * 4, all = a.m * words;
  bool finite = true;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < all;
       i += std::int64_t{gridDim.x} * threads) {
    const std::int64_t row = i / words, w = i - row * words;
    const char* from = a.data + row * a.in_stride;
    const unsigned word = word_of<format>(
        w, [&](std::int64_t e) { return e < a.k ? code<R>(read<R>(from, e, a.bias, &finite), step, a.range) : 0; });
    *reinterpret_cast<unsigned*>(a.out + row * a.out_stride + 4 * w) = word;
  }
  put_flag(a.flags, finite);
}

/// `row_warps` warps share a row of bits and count its ones.
template <class R>
__global__ void __launch_bounds__(threads, 4) encode_bits(const RowArgs a, int row_warps) {
  __shared__ int counts[warps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rows = warps / row_warps;
  const std::int64_t words = row_chunks(Format::bits, a.k) * 4;
  bool finite = true;
  for (std::int64_t first = std::int64_t{blockIdx.x} * rows; first < a.m; first += std::int64_t{gridDim.x} * rows) {
    const std::int64_t row = first + warp / row_warps;
    int count = 0;
    if (row < a.m) {
      const char* from = a.data + row * a.in_stride;
      unsigned* to = reinterpret_cast<unsigned*>(a.out + row * a.out_stride);
#pragma unroll 4
      for (std::int64_t w = warp % row_warps; w < words; w += row_warps) {
        const std::int64_t e = 32 * w + lane;
        const bool one = e < a.k && read<R>(from, e, a.bias, &finite) >= 0;
        const unsigned word = __ballot_sync(0xffffffffu, one);
        if (lane == 0) to[w] = word;
        count += __popc(word);
      }
    }
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    if (row < a.m && warp % row_warps == 0 && lane == 0) {
      for (int i = 1; i < row_warps; ++i) count += counts[warp + i];
      *reinterpret_cast<int4*>(a.out + row * a.out_stride + 4 * words) = make_int4(count, 0, 0, 0);
    }
    __syncthreads();
  }
  put_flag(a.flags, finite);
}

constexpr int tile_pixels = 32, tile_words = 32;

struct ImageArgs {
  const void* data;
  const float* bias;
  Scalar scale;
  float eps;
  Range range;
  std::int64_t pixels, plane, channels, words;  ///< plane: pixels of one image
  unsigned* out;
  int* flags;
};

/// Channel-major images: a block turns 32 pixels x 32 words at a time, so that reads and writes are both in order.
template <class R, Format format>
__global__ void __launch_bounds__(threads, 4) encode_planes(const ImageArgs a) {
  __shared__ unsigned tile[tile_pixels][tile_words + 1];
  const float step = R::quantises ? fmaxf(value_of(a.scale), a.eps) : 1;
  const std::int64_t across = (a.words + tile_words - 1) / tile_words;
  const std::int64_t tiles = (a.pixels + tile_pixels - 1) / tile_pixels * across;
  const int low = threadIdx.x % 32, high = threadIdx.x / 32;
  bool finite = true;
  for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::int64_t first_pixel = t / across * tile_pixels, first_word = t % across * tile_words;
    const std::int64_t pixel = first_pixel + low;
    const std::int64_t base = pixel / a.plane * a.channels * a.plane + pixel % a.plane;
    for (int w = high; w < tile_words; w += warps) {
      if (pixel >= a.pixels || first_word + w >= a.words) continue;
      tile[low][w] = word_of<format>(first_word + w, [&](std::int64_t c) {
        if (c >= a.channels) return 0;
        float value = R::get(a.data, base + c * a.plane);
        if (R::quantises) {
          if (a.bias != nullptr) value += a.bias[c];
          finite = finite && isfinite(value);
        }
        return code<R>(value, step, a.range);
      });
    }
    __syncthreads();
    for (int p = high; p < tile_pixels; p += warps)
      if (first_pixel + p < a.pixels && first_word + low < a.words)
        a.out[(first_pixel + p) * a.words + first_word + low] = tile[p][low];
    __syncthreads();
  }
  put_flag(a.flags, finite);
}

struct FilterArgs {
  const char* data;
  std::int64_t in_row;  ///< bytes of a packed row; 0: rows are dense
  Scalar scale;
  float eps;
  Range range;
  std::int64_t out_c, in_c, taps, tap_words;
  unsigned* out;
  int* flags;
};

template <class R, Format format>
__global__ void __launch_bounds__(threads, 4) encode_taps(const FilterArgs a) {
  const float step = R::quantises ? fmaxf(value_of(a.scale), a.eps) : 1;
  const std::int64_t words = a.taps * a.tap_words, all = a.out_c * words;
  bool finite = true;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < all;
       i += std::int64_t{gridDim.x} * threads) {
    const std::int64_t row = i / words, tap = (i - row * words) / a.tap_words, w = (i - row * words) % a.tap_words;
    const std::int64_t dense = a.in_row == 0 ? row * a.in_c * a.taps : 0;
    a.out[i] = word_of<format>(w, [&](std::int64_t c) {
      if (c >= a.in_c) return 0;
      return code<R>(read<R>(a.data + row * a.in_row, dense + c * a.taps + tap, nullptr, &finite), step, a.range);
    });
  }
  put_flag(a.flags, finite);
}

Range range_of(Format format) { return format == Format::bytes ? range_s8 : range_s4; }

/// body(format as a constant) for the formats of whole words.
template <class Body>
Status with_format(Format format, const Body& body) {
  switch (format) {
    case Format::bytes: return body(std::integral_constant<Format, Format::bytes>{});
    case Format::wide: return body(std::integral_constant<Format, Format::wide>{});
    case Format::nibbles: return body(std::integral_constant<Format, Format::nibbles>{});
    case Format::bits: break;
  }
  return Status::bad_dtype;
}

}  // namespace

Status encode_rows(const Rows& x, std::int64_t m, std::int64_t k, Format format, void* out, int* flags, int* count,
                   const Queue& queue) {
  const RowArgs a{
      static_cast<const char*>(x.data), x.row_stride,          x.bias, x.scale, x.eps, range_of(format), m, k,
      static_cast<char*>(out),          row_stride(format, k), flags};
  if (format == Format::bits) {
    const std::int64_t words = row_chunks(format, k) * 4;
    const int row_warps = words >= 64 ? 8 : words >= 32 ? 4 : words >= 16 ? 2 : 1;
    const std::int64_t blocks = blocks_for(m, warps / row_warps, most_flags);
    *count = static_cast<int>(blocks);
    return with_reader<PackedBits>(x.dtype, [&](auto reader) {
      return launch(encode_bits<decltype(reader)>, blocks, threads, 0, queue, a, row_warps);
    });
  }
  const std::int64_t blocks = blocks_for(m * row_chunks(format, k) * 4, threads, most_flags);
  *count = static_cast<int>(blocks);
  return with_reader<PackedS4>(x.dtype, [&](auto reader) {
    return with_format(format, [&](auto constant) {
      return launch(encode_words<decltype(reader), decltype(constant)::value>, blocks, threads, 0, queue, a);
    });
  });
}

Status encode_image(const Conv2dShape& s, const Image& x, Format format, void* out, int* flags, int* count,
                    const Queue& queue) {
  const std::int64_t plane = s.in_h * s.in_w, pixels = s.batch * plane;
  if (x.layout == ImageLayout::nhwc || plane == 1)
    return encode_rows({x.data, x.dtype, row_bytes(x.dtype, s.in_c), x.bias, x.scale, x.eps}, pixels, s.in_c, format,
                       out, flags, count, queue);
  const std::int64_t words = row_chunks(format, s.in_c) * 4;
  const ImageArgs a{x.data, x.bias, x.scale, x.eps, range_of(format),
                    pixels, plane,  s.in_c,  words, static_cast<unsigned*>(out),
                    flags};
  const std::int64_t tiles = (pixels + tile_pixels - 1) / tile_pixels * ((words + tile_words - 1) / tile_words);
  const std::int64_t blocks = tiles < most_flags ? tiles : most_flags;
  *count = static_cast<int>(blocks);
  return with_reader<void>(x.dtype, [&](auto reader) {
    return with_format(format, [&](auto constant) {
      return launch(encode_planes<decltype(reader), decltype(constant)::value>, blocks, threads, 0, queue, a);
    });
  });
}

Status encode_filter(const Filter& weight, const Conv2dShape& s, Format format, void* out, int* flags, int* count,
                     const Queue& queue) {
  const std::int64_t tap_words = row_chunks(format, s.in_c) * 4;
  const FilterArgs a{static_cast<const char*>(weight.data),
                     weight.dtype == Dtype::s4 ? row_bytes(Dtype::s4, s.depth()) : 0,
                     weight.scale,
                     weight.eps,
                     range_of(format),
                     s.out_c,
                     s.in_c,
                     s.taps(),
                     tap_words,
                     static_cast<unsigned*>(out),
                     flags};
  const std::int64_t blocks = blocks_for(s.out_c * s.taps() * tap_words, threads, most_flags);
  *count = static_cast<int>(blocks);
  return with_reader<PackedS4>(weight.dtype, [&](auto reader) {
    return with_format(format, [&](auto constant) {
      return launch(encode_taps<decltype(reader), decltype(constant)::value>, blocks, threads, 0, queue, a);
    });
  });
}

}  // namespace bie::kernels::cuda
