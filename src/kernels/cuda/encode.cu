#include "kernels/cuda/encode.cuh"

#include "kernels/cuda/encode_row.cuh"
#include "kernels/cuda/product.cuh"

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
  int* ones;  ///< 1-bit only: one number per row, or null where nobody asks
  int* flags;
  bool whole;  ///< every row starts at a multiple of 16 bytes
  bool weight;
};

/// Weights may be read by kernels that do not wait, so the next kernel must not start early.
__device__ void begin(const RowArgs& a) {
  wait_for_previous_kernel();
  if (!a.weight) let_next_start();
}

__device__ void put_flag(int* flags, bool finite) {
  const int bad = __syncthreads_or(!finite);
  if (flags != nullptr && threadIdx.x == 0) flags[blockIdx.x] = bad;
}

/// `row_threads` threads, a power of two, share a row. 1-bit only: they also count its ones.
template <class R, Format format>
__global__ void __launch_bounds__(threads, 4) encode_kernel(const RowArgs a, int row_threads) {
  begin(a);
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
      if (t == 0 && row < a.m && a.ones != nullptr) a.ones[row] = ones;
    }
  }
  put_flag(a.flags, finite);
  if (a.weight) publish_weights();
}

/// Short contiguous rows of 32, 64, 128 or 256 signs: 4 to 32 lanes share a row.
template <class R>
__global__ void __launch_bounds__(threads) encode_short_rows(const RowArgs a, int row_lanes) {
  begin(a);
  constexpr int batch = 4;
  const int lane = threadIdx.x % 32, t = lane % row_lanes, writers = min(row_lanes, 16);
  const std::int64_t warp = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32;
  const int rows = 32 / row_lanes;  // of a warp at a time
  float bias[8] = {};
  if (R::quantises && a.bias != nullptr)
#pragma unroll
    for (int j = 0; j < 8; ++j) bias[j] = a.bias[8 * t + j];
  bool finite = true;
  for (std::int64_t first = warp * batch * rows; first < a.m; first += std::int64_t{gridDim.x} * warps * batch * rows) {
    typename R::Eight eights[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const std::int64_t row = first + b * rows + lane / row_lanes;
      eights[b] = R::load_eight(a.data, (row < a.m ? row : 0) * a.k + 8 * t);
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const std::int64_t row = first + b * rows + lane / row_lanes;
      float xs[8];
      R::open(eights[b], xs);
#pragma unroll
      for (int j = 0; j < 8; ++j) xs[j] = __fadd_rn(xs[j], bias[j]);
      finite = finite && all_finite(xs);
      unsigned negative = 0;
#pragma unroll
      for (int j = 7; j >= 0; --j)  // + 0 makes +0 of -0
        negative = __funnelshift_l(__float_as_uint(__fadd_rn(xs[j], 0.0f)), negative, 1);
      unsigned word = (~negative & 255u) << 8 * (lane % 4);
      word |= __shfl_xor_sync(0xffffffffu, word, 1);
      word |= __shfl_xor_sync(0xffffffffu, word, 2);
      const unsigned y = __shfl_down_sync(0xffffffffu, word, 4), z = __shfl_down_sync(0xffffffffu, word, 8),
                     w = __shfl_down_sync(0xffffffffu, word, 12);
      const uint4 chunk = make_uint4(word, row_lanes > 4 ? y : 0, row_lanes > 8 ? z : 0, row_lanes > 8 ? w : 0);
      int ones = ones_of(chunk);
      if (row_lanes == 32) ones += __shfl_xor_sync(0xffffffffu, ones, 16);
      if (row >= a.m) continue;
      if (t % writers == 0) *reinterpret_cast<uint4*>(a.out + row * a.out_stride + (t & 16)) = chunk;
      if (t == 0 && a.ones != nullptr) a.ones[row] = ones;
    }
  }
  put_flag(a.flags, finite);
  if (a.weight) publish_weights();
}

/// Number of lanes that share a row in that kernel; 0 if the rows do not fit it.
int short_row_lanes(const Rows& x, const RowArgs& a) {
  const std::int64_t lanes = a.k / 8;
  const bool dense = a.whole && x.row_stride == row_bytes(x.dtype, a.k) && x.dtype != Dtype::bits;
  const bool fits = lanes * 8 == a.k && (lanes == 4 || lanes == 8 || lanes == 16 || lanes == 32);
  return dense && fits ? static_cast<int>(lanes) : 0;
}

struct ImageArgs {
  const void* data;
  const float* bias;
  Scalar scale;
  float eps;
  Range range;
  int pixels, plane, channels, words;  ///< plane: pixels of one image
  unsigned* out;
  int* flags;

  /// The first channel's element of a pixel.
  __device__ std::int64_t first_element(int pixel) const {
    const int image = pixel / plane;
    return std::int64_t{image} * (channels - 1) * plane + pixel;
  }
};

/// Elements of `side` neighbouring pixels in one channel: one, or two of 16 bits that are read at once.
template <class R, int side>
struct Neighbours {
  float at[1] = {};
  __device__ void load(const void* data, std::int64_t i) { at[0] = R::get(data, i); }
  __device__ float operator[](int) const { return at[0]; }
};
template <class T>
struct Neighbours<Reader<T>, 2> {
  unsigned both = 0;
  __device__ void load(const void* data, std::int64_t i) {
    both = __ldg(reinterpret_cast<const unsigned*>(static_cast<const T*>(data) + i));
  }
  __device__ float operator[](int k) const { return widen(reinterpret_cast<const T*>(&both)[k]); }
};

/// The channel of element j of a unit of eight that become neighbouring words, or one word of nibbles.
template <Format format>
__device__ int channel_of(int unit, int j) {
  if (format == Format::nibbles) return unit / 4 * 32 + unit % 4 * 4 + j % 4 + 16 * (j / 4);
  return 8 * unit + j;
}

constexpr int plane_tile_words = 2048, most_tile_width = 32;

/// NCHW images: a block transposes a tile of pixels, each 2^width_log words, so that both reads and writes are
/// coalesced. A lane handles `side` pixels.
template <class R, Format format, int side>
__global__ void __launch_bounds__(threads, 4) encode_planes(const ImageArgs a, int width_log) {
  wait_for_previous_kernel();
  let_next_start();
  __shared__ unsigned tile[plane_tile_words / 4 * 5];  // four words per pixel at least, and one more
  constexpr int unit_words = format == Format::nibbles ? 1 : 2;
  const Quantiser quantiser(R::quantises ? fmaxf(value_of(a.scale), a.eps) : 1, a.range);
  const int width = 1 << width_log, height = plane_tile_words >> width_log;
  const int across = (a.words + width - 1) >> width_log, tiles = (a.pixels + height - 1) / height * across;
  const int lane = threadIdx.x % 32, row_units = width / unit_words;
  bool finite = true;
  for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int first_pixel = t / across * height, first_word = t % across * width;
#pragma unroll(3 - side)
    for (int u = threadIdx.x / 32; u < row_units * (height / (32 * side)); u += warps) {
      const int w = u % row_units * unit_words, row = (u / row_units * 32 + lane) * side, pixel = first_pixel + row;
      if (pixel >= a.pixels || first_word + w >= a.words) continue;
      const int unit = (first_word + w) / unit_words;
      const std::int64_t base = a.first_element(pixel);
      Neighbours<R, side> read[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int c = channel_of<format>(unit, j);
        if (c < a.channels) read[j].load(a.data, base + std::int64_t{c} * a.plane);
      }
#pragma unroll
      for (int k = 0; k < side; ++k) {
        float xs[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) xs[j] = read[j][k];
        if (R::quantises && a.bias != nullptr) {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const int c = channel_of<format>(unit, j);
            if (c < a.channels) xs[j] += a.bias[c];
          }
        }
        if (R::quantises) finite = finite && all_finite(xs);
        int codes[8];
        codes_of<R>(quantiser, xs, codes);
        const int front[4] = {codes[0], codes[1], codes[2], codes[3]},
                  back[4] = {codes[4], codes[5], codes[6], codes[7]};
        unsigned* const to = tile + (row + k) * (width + 1) + w;
        if constexpr (format == Format::nibbles) {
          to[0] = (pack_bytes(front) & 0x0f0f0f0fu) | (pack_bytes(back) & 0x0f0f0f0fu) << 4;
        } else {
          to[0] = pack_bytes(front);
          to[1] = pack_bytes(back);
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < plane_tile_words; i += threads) {
      const int row = i >> width_log, w = i & (width - 1);
      if (first_pixel + row < a.pixels && first_word + w < a.words)
        a.out[std::int64_t{first_pixel + row} * a.words + first_word + w] = tile[row * (width + 1) + w];
    }
    __syncthreads();
  }
  put_flag(a.flags, finite);
}

/// Signs of NCHW images: a lane handles `side` pixels, and `sharing` warps, a power of two, share the words of their
/// channels.
template <class R, int side>
__global__ void __launch_bounds__(threads, 3) encode_sign_planes(const ImageArgs a, int sharing) {
  wait_for_previous_kernel();
  let_next_start();
  constexpr int batch = 16;  // loads under way
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = warp % sharing;
  const int step = warps / sharing * 32 * side, tiles = (a.pixels + step - 1) / step;
  bool finite = true;
  for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int pixel = t * step + (warp / sharing * 32 + lane) * side;
    if (pixel >= a.pixels) continue;
    const std::int64_t base = a.first_element(pixel);
    for (int w = share; w < a.words; w += sharing) {
      unsigned word[side] = {};
#pragma unroll 1
      for (int half = 0; half < 32; half += batch) {
        const int first = 32 * w + half, left = a.channels - first;
        Neighbours<R, side> read[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j)
          if (j < left) read[j].load(a.data, base + std::int64_t{first + j} * a.plane);
#pragma unroll
        for (int j = 0; j < batch; ++j) {
          if (j >= left) continue;
          const float bias = R::quantises && a.bias != nullptr ? a.bias[first + j] : 0;
#pragma unroll
          for (int k = 0; k < side; ++k) {
            const float x = read[j][k] + bias;
            if (R::quantises) finite = finite && isfinite(x);
            word[k] |= static_cast<unsigned>(x >= 0) << (half + j);
          }
        }
      }
#pragma unroll
      for (int k = 0; k < side; ++k) a.out[std::int64_t{pixel + k} * a.words + w] = word[k];
    }
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
  publish_weights();
}

/// Signs of a filter: a block for each of its rows.
template <class R>
__global__ void __launch_bounds__(threads) encode_sign_taps(const FilterArgs a, int* ones) {
  __shared__ int counts[warps];
  const std::int64_t words = a.taps * a.tap_words;
  bool finite = true;
  for (std::int64_t row = blockIdx.x; row < a.out_c; row += gridDim.x) {
    const std::int64_t dense = a.in_row == 0 ? row * a.in_c * a.taps : 0;
    int mine = 0;
    for (std::int64_t i = threadIdx.x; i < words; i += threads) {
      const std::int64_t tap = i / a.tap_words, first = i % a.tap_words * 32;
      unsigned word = 0;
      for (int j = 0; j < 32 && first + j < a.in_c; ++j) {
        const std::int64_t at = dense + (first + j) * a.taps + tap;
        word |= static_cast<unsigned>(read<R>(a.data + row * a.in_row, at, nullptr, &finite) >= 0) << j;
      }
      a.out[row * words + i] = word;
      mine += __popc(word);
    }
    for (int by = 16; by > 0; by /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, by);
    if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < warps; ++i) mine += counts[i];
      ones[row] = mine;
    }
    __syncthreads();
  }
  put_flag(a.flags, finite);
  publish_weights();
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

constexpr std::int64_t most_pixels = INT32_MAX - plane_tile_words;  // a tile may reach beyond the last one

/// body(Reader, neighbours that a lane reads at once) for the dtype of an image; `pairs`: two of 16 bits can be.
template <class Body>
Status with_neighbours(Dtype dtype, bool pairs, const Body& body) {
  return with_reader<void>(dtype, [&](auto reader) {
    using R = decltype(reader);
    if constexpr (std::is_same_v<R, Reader<__half>> || std::is_same_v<R, Reader<__nv_bfloat16>>) {
      if (pairs) return body(reader, std::integral_constant<int, 2>{});
    }
    return body(reader, std::integral_constant<int, 1>{});
  });
}

Status start_rows(const Rows& x, Format format, const RowArgs& a, int* count, const Queue& queue) {
  if (a.k > INT32_MAX / 2) return Status::bad_shape;
  if (const int lanes = short_row_lanes(x, a); format == Format::bits && lanes > 0) {
    constexpr int batch_groups = 4;
    const std::int64_t blocks = blocks_for(a.m * lanes, threads * batch_groups, most_flags);
    *count = static_cast<int>(blocks);
    return with_reader<void>(x.dtype, [&](auto reader) {
      return launch_early(encode_short_rows<decltype(reader)>, blocks, threads, 0, queue, a, lanes);
    });
  }
  const std::int64_t groups = row_groups(format, a.k);
  int row_threads = format == Format::bits ? 16 : format == Format::nibbles ? 4 : 2;
  // One warp per row needs no synchronisation; more warps share a row only if there are too few rows to keep the GPU's
  // memory busy.
  constexpr std::int64_t enough_threads = 1 << 17;
  while (row_threads < threads && 2 * row_threads < groups && (row_threads < 32 || a.m * row_threads < enough_threads))
    row_threads *= 2;
  const std::int64_t blocks = blocks_for(a.m, threads / row_threads, most_flags);
  *count = static_cast<int>(blocks);
  if (format == Format::bits)
    return with_reader<PackedBits>(x.dtype, [&](auto reader) {
      return launch_early(encode_kernel<decltype(reader), Format::bits>, blocks, threads, 0, queue, a, row_threads);
    });
  return with_reader<PackedS4>(x.dtype, [&](auto reader) {
    return with_format(format, [&](auto constant) {
      return launch_early(encode_kernel<decltype(reader), decltype(constant)::value>, blocks, threads, 0, queue, a,
                          row_threads);
    });
  });
}

RowArgs row_args(const Rows& x, std::int64_t m, std::int64_t k, Format format, void* out, std::int64_t stride,
                 int* ones, int* flags) {
  return {static_cast<const char*>(x.data),
          x.row_stride,
          x.bias,
          x.scale,
          x.eps,
          range_of(format),
          m,
          k,
          static_cast<char*>(out),
          stride,
          ones,
          flags,
          aligned(x.data, x.row_stride, 16),
          /*weight=*/false};
}

}  // namespace

Status encode_rows(const Rows& x, std::int64_t m, std::int64_t k, Format format, void* out, std::int64_t stride,
                   int* flags, int* count, const Queue& queue) {
  int* const ones = reinterpret_cast<int*>(static_cast<char*>(out) + m * stride);
  return start_rows(x, format, row_args(x, m, k, format, out, stride, ones, flags), count, queue);
}

Status encode_weight(const Rows& weight, std::int64_t n, std::int64_t k, Format format, void* out, std::int64_t stride,
                     int* flags, int* count, const Queue& queue) {
  int* const ones = reinterpret_cast<int*>(static_cast<char*>(out) + n * stride);
  RowArgs a = row_args(weight, n, k, format, out, stride, ones, flags);
  a.weight = true;
  return start_rows(weight, format, a, count, queue);
}

Status encode_image(const Conv2dShape& s, const Image& x, Format format, void* out, int* flags, int* count,
                    const Queue& queue) {
  const std::int64_t plane = s.in_h * s.in_w, pixels = s.batch * plane;
  if (x.layout == ImageLayout::nhwc || plane == 1) {
    const Rows rows{x.data, x.dtype, row_bytes(x.dtype, s.in_c), x.bias, x.scale, x.eps};
    const std::int64_t stride = row_chunks(format, s.in_c) * chunk_bytes;
    return start_rows(rows, format, row_args(rows, pixels, s.in_c, format, out, stride, nullptr, flags), count, queue);
  }
  if (pixels > most_pixels) return Status::bad_shape;
  const int words = static_cast<int>(row_chunks(format, s.in_c) * 4);
  const ImageArgs a{x.data,
                    x.bias,
                    x.scale,
                    x.eps,
                    range_of(format),
                    static_cast<int>(pixels),
                    static_cast<int>(plane),
                    static_cast<int>(s.in_c),
                    words,
                    static_cast<unsigned*>(out),
                    flags};
  const bool pairs = plane % 2 == 0 && aligned(x.data, 0, 4);
  if (format == Format::bits) {
    int sharing = 1;
    while (sharing < warps && 32 * sharing < s.in_c) sharing *= 2;
    return with_neighbours(x.dtype, pairs, [&](auto reader, auto side) {
      const std::int64_t blocks = blocks_for(pixels, threads / sharing * side.value, most_flags);
      *count = static_cast<int>(blocks);
      return launch_early(encode_sign_planes<decltype(reader), side.value>, blocks, threads, 0, queue, a, sharing);
    });
  }
  int width_log = 2;
  while (1 << width_log < (words < most_tile_width ? words : most_tile_width)) ++width_log;
  const std::int64_t height = plane_tile_words >> width_log, width = std::int64_t{1} << width_log;
  const std::int64_t tiles = (pixels + height - 1) / height * ((words + width - 1) / width);
  const std::int64_t blocks = tiles < most_flags ? tiles : most_flags;
  *count = static_cast<int>(blocks);
  return with_neighbours(x.dtype, pairs, [&](auto reader, auto side) {
    return with_format(format, [&](auto constant) {
      return launch_early(encode_planes<decltype(reader), decltype(constant)::value, side.value>, blocks, threads, 0,
                          queue, a, width_log);
    });
  });
}

Status encode_filter(const Filter& weight, const Conv2dShape& s, Format format, void* out, int* flags, int* count,
                     const Queue& queue) {
  const std::int64_t tap_words = row_chunks(format, s.in_c) * 4;
  const FilterArgs a{static_cast<const char*>(weight.data),
                     weight.dtype == Dtype::s4 || weight.dtype == Dtype::bits ? row_bytes(weight.dtype, s.depth()) : 0,
                     weight.scale,
                     weight.eps,
                     range_of(format),
                     s.out_c,
                     s.in_c,
                     s.taps(),
                     tap_words,
                     static_cast<unsigned*>(out),
                     flags};
  if (format == Format::bits) {
    const std::int64_t blocks = blocks_for(s.out_c, 1, most_flags);
    *count = static_cast<int>(blocks);
    int* const ones = reinterpret_cast<int*>(a.out + s.out_c * s.taps() * tap_words);
    return with_reader<PackedBits>(weight.dtype, [&](auto reader) {
      return launch(encode_sign_taps<decltype(reader)>, blocks, threads, 0, queue, a, ones);
    });
  }
  const std::int64_t blocks = blocks_for(s.out_c * s.taps() * tap_words, threads, most_flags);
  *count = static_cast<int>(blocks);
  return with_reader<PackedS4>(weight.dtype, [&](auto reader) {
    return with_format(format, [&](auto constant) {
      return launch(encode_taps<decltype(reader), decltype(constant)::value>, blocks, threads, 0, queue, a);
    });
  });
}

}  // namespace bie::kernels::cuda
