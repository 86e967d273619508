#include "kernels/cuda/encode.cuh"

#include "kernels/cuda/encode_row.cuh"

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
  int* ones;  ///< of bits: one number a row
  int* flags;
  bool whole;  ///< every row starts at a multiple of 16 bytes
};

__device__ void put_flag(int* flags, bool finite) {
  const int bad = __syncthreads_or(!finite);
  if (flags != nullptr && threadIdx.x == 0) flags[blockIdx.x] = bad;
}

/// `row_threads` threads, a power of two, share a row; of bits they count the ones.
template <class R, Format format>
__global__ void __launch_bounds__(threads, 4) encode_kernel(const RowArgs a, int row_threads) {
  let_next_start();
  __shared__ int counts[warps];
  const Quantiser quantiser(R::quantises ? fmaxf(value_of(a.scale), a.eps) : 1, a.range);
  const int rows = threads / row_threads, mine = threadIdx.x / row_threads, t = threadIdx.x % row_threads;
  bool finite = true;
  for (std::int64_t first = std::int64_t{blockIdx.x} * rows; first < a.m; first += std::int64_t{gridDim.x} * rows) {
    const std::int64_t row = first + mine;
    char* const to = a.out + row * a.out_stride;
    int ones = 0;
    if (row < a.m) {
      const RowSource from{a.data + row * a.in_stride, a.bias, static_cast<int>(a.k), a.whole};
      ones = encode_row<R, format, 4>(from, quantiser, t, row_threads, to, &finite);
    }
    if constexpr (format == Format::bits) {
      for (int by = min(row_threads, 32) / 2; by > 0; by /= 2) ones += __shfl_xor_sync(0xffffffffu, ones, by);
      if (row_threads > 32) {
        if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = ones;
        __syncthreads();
        for (int i = 1; i < row_threads / 32 && t == 0; ++i) ones += counts[threadIdx.x / 32 + i];
        __syncthreads();
      }
      if (t == 0 && row < a.m) a.ones[row] = ones;
    }
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

/// The channel of element j of a unit of eight that become neighbouring words, or one word of nibbles.
template <Format format>
__device__ std::int64_t channel_of(std::int64_t unit, int j) {
  if (format == Format::nibbles) return unit / 4 * 32 + unit % 4 * 4 + j % 4 + 16 * (j / 4);
  return 8 * unit + j;
}

/// Channel-major images: a block turns 32 pixels x 32 words at a time, so that reads and writes are both in order.
template <class R, Format format>
__global__ void __launch_bounds__(threads, 4) encode_planes(const ImageArgs a) {
  __shared__ unsigned tile[tile_pixels][tile_words + 1];
  constexpr int unit_words = format == Format::nibbles ? 1 : 2;
  const Quantiser quantiser(R::quantises ? fmaxf(value_of(a.scale), a.eps) : 1, a.range);
  const std::int64_t across = (a.words + tile_words - 1) / tile_words;
  const std::int64_t tiles = (a.pixels + tile_pixels - 1) / tile_pixels * across;
  const int low = threadIdx.x % 32, high = threadIdx.x / 32;
  bool finite = true;
  for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::int64_t first_pixel = t / across * tile_pixels, first_word = t % across * tile_words;
    const std::int64_t pixel = first_pixel + low;
    const std::int64_t base = pixel / a.plane * a.channels * a.plane + pixel % a.plane;
#pragma unroll 2
    for (int w = unit_words * high; w < tile_words; w += unit_words * warps) {
      if (pixel >= a.pixels || first_word + w >= a.words) continue;
      const std::int64_t unit = (first_word + w) / unit_words;
      float xs[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const std::int64_t c = channel_of<format>(unit, j);
        xs[j] = c < a.channels ? R::get(a.data, base + c * a.plane) : 0.0f;
      }
      int codes[8];
      if (R::quantises) {
        float zero = 0;  // stays so unless an element is NaN or infinite
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const std::int64_t c = channel_of<format>(unit, j);
          if (a.bias != nullptr && c < a.channels) xs[j] += a.bias[c];
          zero = __fmaf_rn(xs[j], 0.0f, zero);
        }
        finite = finite && zero == 0;
        quantiser.codes(xs, codes);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) codes[j] = code<R>(xs[j], 1, a.range);
      }
      const int front[4] = {codes[0], codes[1], codes[2], codes[3]}, back[4] = {codes[4], codes[5], codes[6], codes[7]};
      if constexpr (format == Format::nibbles) {
        tile[low][w] = (pack_bytes(front) & 0x0f0f0f0fu) | (pack_bytes(back) & 0x0f0f0f0fu) << 4;
      } else {
        tile[low][w] = pack_bytes(front);
        tile[low][w + 1] = pack_bytes(back);
      }
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

Status encode_rows(const Rows& x, std::int64_t m, std::int64_t k, Format format, void* out, std::int64_t stride,
                   int* flags, int* count, const Queue& queue) {
  const bool whole = aligned(x.data, x.row_stride, 16);
  if (k > INT32_MAX / 2) return Status::bad_shape;
  char* const to = static_cast<char*>(out);
  const RowArgs a{
      static_cast<const char*>(x.data),        x.row_stride, x.bias, x.scale, x.eps, range_of(format), m, k, to, stride,
      reinterpret_cast<int*>(to + m * stride), flags,        whole};
  const std::int64_t groups = row_groups(format, k);
  int row_threads = format == Format::bits ? 16 : format == Format::nibbles ? 4 : 2;
  // A warp a row waits for nobody; more only where there are too few rows to keep the GPU's memory busy.
  constexpr std::int64_t enough_threads = 1 << 17;
  while (row_threads < threads && 2 * row_threads < groups && (row_threads < 32 || m * row_threads < enough_threads))
    row_threads *= 2;
  const std::int64_t blocks = blocks_for(m, threads / row_threads, most_flags);
  *count = static_cast<int>(blocks);
  if (format == Format::bits)
    return with_reader<PackedBits>(x.dtype, [&](auto reader) {
      return launch(encode_kernel<decltype(reader), Format::bits>, blocks, threads, 0, queue, a, row_threads);
    });
  return with_reader<PackedS4>(x.dtype, [&](auto reader) {
    return with_format(format, [&](auto constant) {
      return launch(encode_kernel<decltype(reader), decltype(constant)::value>, blocks, threads, 0, queue, a,
                    row_threads);
    });
  });
}

Status encode_image(const Conv2dShape& s, const Image& x, Format format, void* out, int* flags, int* count,
                    const Queue& queue) {
  const std::int64_t plane = s.in_h * s.in_w, pixels = s.batch * plane;
  if (x.layout == ImageLayout::nhwc || plane == 1)
    return encode_rows({x.data, x.dtype, row_bytes(x.dtype, s.in_c), x.bias, x.scale, x.eps}, pixels, s.in_c, format,
                       out, row_chunks(format, s.in_c) * chunk_bytes, flags, count, queue);
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
