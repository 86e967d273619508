// A convolution of small groups in one pass over the image: a block quantises the pixels that a tile of outputs reads,
// halo included, into words of shared memory, and each of its threads multiplies the windows of four outputs, or of
// four pixels of four outputs, with dp4a. Then it goes on to its next tile. Small groups have tables and panels of
// their own: words of four codes.
#pragma once

#include "kernels/cuda/encode_row.cuh"
#include "kernels/cuda/grouped_conv2d.cuh"

namespace bie::kernels::cuda {
namespace grouped {

/// Position of a block's tile.
struct Place {
  int image, y, x, slab;  ///< its first output
};

__device__ inline Place place_of(const GroupArgs& p, int tile) {
  Place at;
  at.slab = tile % p.slabs;
  tile /= p.slabs;
  at.x = tile % p.across * p.w;
  tile /= p.across;
  at.y = tile % p.down * p.h;
  at.image = tile / p.down;
  return at;
}

/// Copies the filters of a slab; outputs behind the last group are 0.
__device__ inline void load_filter(const GroupArgs& p, int slab, int* to) {
  const int outputs = p.filter_outputs.by(), first = slab * outputs, end = min(outputs, p.out_c - first);
  for (int i = threadIdx.x; i < p.filter_words; i += group_threads) {
    const int word = p.filter_outputs.quotient(i), o = i - word * outputs;
    to[i] = o < end ? static_cast<int>(__ldg(p.panels + std::int64_t{word} * p.out_c + first + o)) : 0;
  }
}

/// Four neighbouring elements, the first a multiple of four.
template <class T>
__device__ void load_quad(Reader<T>, const void* data, std::int64_t i, float (&to)[8]) {
  const Four<T> four = *reinterpret_cast<const Four<T>*>(static_cast<const T*>(data) + i);
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j] = widen(four.at[j]);
}

/// Quantises the pixels that the tile reads.
template <class R>
__device__ void load_image(const GroupArgs& p, const Place& at, const Quantiser& quantiser, unsigned* to,
                           bool* finite) {
  const int first_y = at.y * p.stride_h - p.pad_h, first_x = at.x * p.stride_w - p.pad_w;
  const int plane = p.in_h * p.in_w;
  const std::int64_t image = std::int64_t{at.image} * p.in_c * plane;
  const int channel_step = p.pixels_first ? 1 : plane, pixel_step = p.pixels_first ? p.in_c : 1;
#pragma unroll 1
  for (int item = threadIdx.x; item < p.image_words; item += group_threads) {
    int slot, line, word;
    if (p.pixels_first) {
      const int rest = p.slots.quotient(item);
      slot = item - rest * p.slots.by();
      line = p.line.quotient(rest);
      word = rest - line * p.line.by();
    } else {
      const int rest = p.line.quotient(item);
      word = item - rest * p.line.by();
      slot = p.lines.quotient(rest);
      line = rest - slot * p.lines.by();
    }
    const int y = first_y + line;
    const int group = p.channel_bytes < 4 ? slot : slot / p.pixel_words;
    const int first_channel = p.channel_bytes < 4 ? 0 : 4 * (slot - group * p.pixel_words);
    const int channel = (at.slab * p.slab_groups + group) * p.group_in + first_channel;
    const int group_class = p.class_step == 1 ? 0 : p.classes.quotient(word);
    const int k = word - group_class * p.class_words;
    const int pixels = p.channel_bytes == 4 ? 1 : 4 / p.channel_bytes;
    const int x = first_x + group_class + k * pixels * p.class_step;
    const bool in_line =
        static_cast<unsigned>(y) < static_cast<unsigned>(p.in_h) && at.slab * p.slab_groups + group < p.groups;
    const std::int64_t base =
        image + std::int64_t{channel} * channel_step + (std::int64_t{y} * p.in_w + x) * pixel_step;
    float xs[8] = {};
    bool is_pixel[4], is_read[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int pixel = p.channel_bytes == 1 ? b : p.channel_bytes == 2 ? b / 2 : 0;
      const int c = p.channel_bytes == 1 ? 0 : p.channel_bytes == 2 ? b % 2 : b;
      is_pixel[b] = first_channel + c < p.group_in;
      is_read[b] =
          is_pixel[b] && in_line && static_cast<unsigned>(x + pixel * p.class_step) < static_cast<unsigned>(p.in_w);
      if (is_read[b] && !p.channel_quads)
        xs[b] = R::get(p.x, base + c * channel_step + pixel * p.class_step * pixel_step);
    }
    if (p.channel_quads && is_read[0]) load_quad(R{}, p.x, base, xs);
    if (R::quantises && p.bias != nullptr) {
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int c = p.channel_bytes == 1 ? 0 : p.channel_bytes == 2 ? b % 2 : b;
        if (is_read[b]) xs[b] = __fadd_rn(xs[b], __ldg(p.bias + channel + c));
      }
    }
    int codes[8];
    if (R::quantises) {
      float zero = 0;  // stays so unless an element is NaN or infinite
#pragma unroll
      for (int b = 0; b < 4; ++b) zero = __fmaf_rn(xs[b], 0.0f, zero);
      *finite = *finite && zero == 0;
    }
    if (!p.signs) codes_of<R>(quantiser, xs, codes);
    int bytes[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int value = p.signs ? (xs[b] >= 0 ? 1 : -1) : codes[b];
      bytes[b] = is_read[b] ? value : is_pixel[b] ? p.pad_code : 0;
    }
    to[line * p.line_pitch + word * p.word_pitch + slot * p.slot_pitch] = pack_bytes(bytes);
  }
}

/// The sums of four pixels, for `outputs` neighbouring outputs that read the same words.
template <Stride stride, int outputs>
__device__ void multiply(const GroupArgs& p, const unsigned* image, const int* filter, int x, int (&sums)[outputs][4]) {
  const int filter_step = p.filter_outputs.by();
  int word[4], shift[4];  // of windows that move by whole words, or in any way
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (stride == Stride::words) {
      word[j] = (x + j * p.quads.by()) * p.pixel_step * p.word_pitch;
    } else if constexpr (stride == Stride::any) {
      const int pixel = (x + j) * p.stride_w, k = pixel / p.class_step, byte = k * p.channel_bytes;
      word[j] = ((pixel - k * p.class_step) * p.class_words + byte / 4) * p.word_pitch;
      shift[j] = byte % 4 * 8;
    }
  }
#pragma unroll 1
  for (int i = 0; i < p.kernel_h; ++i, image += p.dil_h * p.line_pitch) {
    if constexpr (stride == Stride::words) {
      const unsigned* tap = image;
#pragma unroll 1
      for (int t = 0; t < p.line_words; ++t, tap += p.tap_step * p.word_pitch)
        for (int q = 0; q < p.pixel_words; ++q, filter += filter_step) {
          int w[outputs];
          if constexpr (outputs == 4) {
            const int4 four = *reinterpret_cast<const int4*>(filter);
            w[0] = four.x, w[1] = four.y, w[2] = four.z, w[3] = four.w;
          } else {
            w[0] = *filter;
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int a = static_cast<int>(tap[q * p.slot_pitch + word[j]]);
#pragma unroll
            for (int o = 0; o < outputs; ++o) sums[o][j] = __dp4a(a, w[o], sums[o][j]);
          }
        }
    } else if constexpr (stride == Stride::any) {
#pragma unroll 1
      for (int t = 0; t < p.line_words; ++t, filter += filter_step) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const unsigned* const at = image + word[j] + t * p.word_pitch;
          const unsigned window = __funnelshift_r(at[0], at[p.word_pitch], shift[j]);
          sums[0][j] = __dp4a(static_cast<int>(window), *filter, sums[0][j]);
        }
      }
    } else {
      constexpr int by = stride == Stride::byte ? 1 : 2;
      const unsigned* at = image + x / 4 * by * p.word_pitch;
      unsigned words[by + 1];
#pragma unroll
      for (int k = 0; k < by; ++k, at += p.word_pitch) words[k] = *at;
#pragma unroll 1
      for (int t = 0; t < p.line_words; ++t, filter += filter_step, at += p.word_pitch) {
        words[by] = *at;
        const int w = *filter;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          constexpr int word_bits = 32;
          const int bits = 8 * by * j, first = bits / word_bits;
          const unsigned window =
              bits % word_bits == 0 ? words[first] : __funnelshift_r(words[first], words[first + 1], bits % word_bits);
          sums[0][j] = __dp4a(static_cast<int>(window), w, sums[0][j]);
        }
#pragma unroll
        for (int k = 0; k < by; ++k) words[k] = words[k + 1];
      }
    }
  }
}

/// Converts and writes results.
class Results {
 public:
  __device__ Results(const GroupArgs& p, float scale) : p_(p), scale_(scale) {}

  __device__ void put(std::int64_t i, int sum) const {
    switch (p_.y_dtype) {
      case Dtype::s32: static_cast<int*>(p_.y)[i] = sum; break;
      case Dtype::bf16: static_cast<__nv_bfloat16*>(p_.y)[i] = narrow<__nv_bfloat16>(scaled(sum)); break;
      case Dtype::f16: static_cast<__half*>(p_.y)[i] = narrow<__half>(scaled(sum)); break;
      default: static_cast<float*>(p_.y)[i] = scaled(sum); break;
    }
  }
  /// `valid` of four, `step` apart.
  __device__ void put_four(std::int64_t i, std::int64_t step, int valid, const int (&sums)[4]) const {
    if (step == 1 && valid >= 4 && p_.y_quads) {
      switch (p_.y_dtype) {
        case Dtype::s32: *at<int4>(4 * i) = make_int4(sums[0], sums[1], sums[2], sums[3]); break;
        case Dtype::bf16:
        case Dtype::f16:
          *at<uint2>(2 * i) = make_uint2(pack_pair(p_.y_dtype, scaled(sums[0]), scaled(sums[1])),
                                         pack_pair(p_.y_dtype, scaled(sums[2]), scaled(sums[3])));
          break;
        default: *at<float4>(4 * i) = make_float4(scaled(sums[0]), scaled(sums[1]), scaled(sums[2]), scaled(sums[3]));
      }
      return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < valid) put(i + j * step, sums[j]);
  }

 private:
  template <class T>
  __device__ T* at(std::int64_t byte) const {
    return reinterpret_cast<T*>(static_cast<char*>(p_.y) + byte);
  }
  __device__ float scaled(int sum) const { return __fmul_rn(static_cast<float>(sum), scale_); }

  const GroupArgs& p_;
  float scale_;
};

template <class R, Stride stride, int outputs>
__global__ void __launch_bounds__(group_threads, 3) group_kernel(const __grid_constant__ GroupArgs p) {
  extern __shared__ int4 shared[];
  int* const filter = reinterpret_cast<int*>(shared);
  unsigned* const image = reinterpret_cast<unsigned*>(shared) + p.image_at;
  const Quantiser quantiser(R::quantises && !p.signs ? fmaxf(value_of(p.scale), p.eps) : 1, p.range);
  const float a = value_of(p.scale_a), w = value_of(p.scale_w);
  const bool poisoned = __syncthreads_or(own_flag(p.panel_flags)) != 0;
  const Results results(p, !poisoned && isfinite(a) && isfinite(w) ? __fmul_rn(a, w) : __int_as_float(0x7fc00000));
  const int parts = p.parts.by(), quads = p.quads.by(), lines = p.tile_lines.by();
  const int plane = p.out_h * p.out_w;
  const std::int64_t output_step = p.y_pixels_first ? 1 : plane, pixel_step = p.y_pixels_first ? p.out_c : 1;
  bool finite = true;
  int slab = -1;
#pragma unroll 1
  for (int round = 0; round < p.rounds; ++round) {
    const int tile = blockIdx.x * p.rounds + round;
    if (tile >= p.tiles) break;
    const Place at = place_of(p, tile);
    __syncthreads();  // until the tile before has been read
    if (at.slab != slab) load_filter(p, at.slab, filter);
    slab = at.slab;
    load_image<R>(p, at, quantiser, image, &finite);
    __syncthreads();
#pragma unroll 1
    for (int item = threadIdx.x; item < parts * quads * lines; item += group_threads) {
      int part, quad, line;  // neighbouring threads have neighbours of what the results have as neighbours
      if (p.y_pixels_first) {
        const int rest = p.parts.quotient(item);
        part = item - rest * parts;
        line = p.quads.quotient(rest);
        quad = rest - line * quads;
      } else {
        const int rest = p.quads.quotient(item);
        quad = item - rest * quads;
        part = p.tile_lines.quotient(rest);
        line = rest - part * lines;
      }
      const int output = at.slab * p.filter_outputs.by() + outputs * part, y = at.y + line;
      if (output >= p.out_c || y >= p.out_h) continue;
      const int slot = p.group_out.quotient(outputs * part) * p.pixel_words;
      const int x = stride == Stride::words ? quad : 4 * quad;
      int sums[outputs][4] = {};
      multiply<stride, outputs>(p, image + line * p.stride_h * p.line_pitch + slot * p.slot_pitch,
                                filter + outputs * part, x, sums);
      const std::int64_t row = std::int64_t{at.image} * p.out_c * plane + output * output_step +
                               (std::int64_t{y} * p.out_w + at.x) * pixel_step;
      if constexpr (stride != Stride::words) {
        results.put_four(row + x * pixel_step, pixel_step, p.out_w - at.x - x, sums[0]);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int pixel = x + j * quads;
          if (at.x + pixel >= p.out_w) continue;
          if constexpr (outputs == 4) {
            const int four[4] = {sums[0][j], sums[1][j], sums[2][j], sums[3][j]};
            results.put_four(row + pixel * pixel_step, output_step, 4, four);
          } else {
            results.put(row + pixel * pixel_step, sums[0][j]);
          }
        }
      }
    }
  }
  const int bad = __syncthreads_or(!finite);
  if (threadIdx.x == 0 && p.flags != nullptr) p.flags[blockIdx.x] = bad;
}

}  // namespace grouped

template <class R>
Status launch_groups(const GroupArgs& p, Stride stride, int outputs, std::int64_t shared, const Queue& queue) {
  const std::int64_t blocks = (p.tiles + p.rounds - 1) / p.rounds;
  const auto start = [&](auto kernel) {
    return launch(kernel, blocks, group_threads, static_cast<std::size_t>(shared), queue, p);
  };
  switch (stride) {
    case Stride::byte: return start(grouped::group_kernel<R, Stride::byte, 1>);
    case Stride::two_bytes: return start(grouped::group_kernel<R, Stride::two_bytes, 1>);
    case Stride::any: return start(grouped::group_kernel<R, Stride::any, 1>);
    case Stride::words: break;
  }
  return outputs == 4 ? start(grouped::group_kernel<R, Stride::words, 4>)
                      : start(grouped::group_kernel<R, Stride::words, 1>);
}

}  // namespace bie::kernels::cuda
