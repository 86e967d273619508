// The pixels that a tile of a convolution reads, from device memory to codes in shared memory.
#pragma once

#include "kernels/cuda/encode_row.cuh"
#include "kernels/cuda/halo_rows.cuh"

namespace bie::kernels::cuda::halo {

// What a kernel reads and writes. Decided when it is compiled for the case worth it, float16 or bfloat16 pixels of
// whole groups of 16 channels to such pixels: the branches of the others would take most of its time.
struct AnyIo {
  static constexpr bool halves = false;
  static __device__ Dtype dtype(const HaloArgs& p) { return p.dtype; }
};
template <class T, Dtype dtype_>
struct HalfIo {
  static constexpr bool halves = true;
  using Element = T;
  static __device__ T rounded_up(float value) {
    if constexpr (dtype_ == Dtype::f16) {
      return __float2half_ru(value);
    } else {
      return __float2bfloat16_ru(value);
    }
  }
  static __device__ constexpr Dtype dtype(const HaloArgs&) { return dtype_; }
};
using Float16Io = HalfIo<__half, Dtype::f16>;
using Bfloat16Io = HalfIo<__nv_bfloat16, Dtype::bf16>;

/// A pixel's place in a tile in one word: image, line and column.
__device__ inline int pack_spot(int image, int line, int column) { return image << 24 | line << 12 | column; }

/// The tile that a block is at: its first image and output pixel.
struct Place {
  int image, out_y, out_x;
  __device__ Place(const HaloArgs& p, int tile) {
    const int across = tile % p.cut.across, rest = tile / p.cut.across;
    out_x = across * p.cut.w;
    out_y = rest % p.cut.down * p.cut.h;
    image = rest / p.cut.down * p.cut.images;
  }
  /// Goes on by as many tiles as another place is from the first.
  __device__ void advance(const HaloArgs& p, const Place& by) {
    out_x += by.out_x;
    out_y += by.out_y;
    image += by.image;
    if (out_x >= p.cut.across * p.cut.w) out_x -= p.cut.across * p.cut.w, out_y += p.cut.h;
    if (out_y >= p.cut.down * p.cut.h) out_y -= p.cut.down * p.cut.h, image += p.cut.images;
  }
  /// The number of an input pixel among all of them, -1 where it is outside of its image.
  __device__ int input(const HaloArgs& p, int spot) const {
    const int n = image + (spot >> 24);
    const int y = (out_y * p.stride_h + (spot >> 12 & 4095)) * p.gap_h - p.pad_h;
    const int x = (out_x * p.stride_w + (spot & 4095)) * p.gap_w - p.pad_w;
    const bool inside = n < p.batch && static_cast<unsigned>(y) < static_cast<unsigned>(p.in_h) &&
                        static_cast<unsigned>(x) < static_cast<unsigned>(p.in_w);
    return inside ? (n * p.in_h + y) * p.in_w + x : -1;
  }
  /// The same for an output pixel.
  __device__ int output(const HaloArgs& p, int spot) const {
    const int n = image + (spot >> 24), y = out_y + (spot >> 12 & 4095), x = out_x + (spot & 4095);
    return spot >= 0 && n < p.batch && y < p.out_h && x < p.out_w ? (n * p.out_h + y) * p.out_w + x : -1;
  }
};

/// Elements as they lie in memory, one code for all dtypes: a kernel for each would be compiled four times.
class Elements {
 public:
  __device__ Elements(const void* data, Dtype dtype) : data_(static_cast<const char*>(data)), dtype_(dtype) {
    size_ = dtype == Dtype::f32 ? 4 : dtype == Dtype::s8 ? 1 : 2;
  }
  /// Eight neighbours, the first at a multiple of eight: in eight words those of 32 bits, in four the others.
  template <int words>
  __device__ void load_eight(std::int64_t first, unsigned (&raw)[words]) const {
    const char* const from = data_ + first * size_;
    if (size_ == 1) {
      const uint2 eight = __ldg(reinterpret_cast<const uint2*>(from));
      raw[0] = eight.x, raw[1] = eight.y;
      return;
    }
#pragma unroll
    for (int w = 0; w < words; w += 4) {
      const uint4 piece = __ldg(reinterpret_cast<const uint4*>(from) + w / 4);
      raw[w] = piece.x, raw[w + 1] = piece.y, raw[w + 2] = piece.z, raw[w + 3] = piece.w;
    }
  }
  template <int words>
  __device__ void open_eight(const unsigned (&raw)[words], float (&xs)[8]) const {
    if constexpr (words == 8) {
#pragma unroll
      for (int j = 0; j < 8; ++j) xs[j] = __uint_as_float(raw[j]);
    } else {
      open(xs, [&](int size, int j) { return size == 2 ? raw[j / 2] >> 16 * (j % 2) : raw[j / 4] >> 8 * (j % 4); });
    }
  }
  /// Of halves that load_eight() gave: bit j says whether element j is at least least[j]; `*zero` stays so unless one
  /// is NaN or infinite.
  __device__ unsigned signs_of(const unsigned (&raw)[4], const uint4& least, __half2* zero) const {
    const unsigned bounds[4] = {least.x, least.y, least.z, least.w};
    unsigned bits = 0;  // those of even elements low, those of odd ones high
    if (dtype_ == Dtype::f16) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const __half2 xs = reinterpret_cast<const __half2&>(raw[pair]);
        bits |= __hge2_mask(xs, reinterpret_cast<const __half2&>(bounds[pair])) & 0x00020001u << 2 * pair;
        *zero = __hfma2(xs, __float2half2_rn(0), *zero);
      }
    } else {
      __nv_bfloat162& sum = reinterpret_cast<__nv_bfloat162&>(*zero);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const __nv_bfloat162 xs = reinterpret_cast<const __nv_bfloat162&>(raw[pair]);
        bits |= __hge2_mask(xs, reinterpret_cast<const __nv_bfloat162&>(bounds[pair])) & 0x00020001u << 2 * pair;
        sum = __hfma2(xs, __float2bfloat162_rn(0), sum);
      }
    }
    return (bits | bits >> 16) & 255;
  }
  /// The first `count` of eight that lie `apart` elements apart, 0 for the others.
  __device__ void load_apart(std::int64_t first, std::int64_t apart, int count, unsigned (&raw)[8]) const {
    const char* from = data_ + first * size_;
    const std::int64_t step = apart * size_;
    const auto load = [&](auto element) {
#pragma unroll
      for (int j = 0; j < 8; ++j, from += step)
        raw[j] = j < count ? __ldg(reinterpret_cast<const decltype(element)*>(from)) : 0;
    };
    if (size_ == 2) {
      load(std::uint16_t{});
    } else if (size_ == 4) {
      load(0u);
    } else {
      load(std::uint8_t{});
    }
  }
  __device__ void open_apart(const unsigned (&raw)[8], float (&xs)[8]) const {
    if (size_ == 4) {
#pragma unroll
      for (int j = 0; j < 8; ++j) xs[j] = __uint_as_float(raw[j]);
    } else {
      open(xs, [&](int, int j) { return raw[j]; });
    }
  }

 private:
  /// Elements of 16 and 8 bits from the low ones of at(bytes of an element, number).
  template <class At>
  __device__ void open(float (&xs)[8], const At& at) const {
    if (dtype_ == Dtype::f16) {
#pragma unroll
      for (int j = 0; j < 8; ++j) xs[j] = __half2float(__ushort_as_half(static_cast<unsigned short>(at(2, j))));
    } else if (dtype_ == Dtype::bf16) {
#pragma unroll
      for (int j = 0; j < 8; ++j) xs[j] = __uint_as_float(at(2, j) << 16);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) xs[j] = static_cast<float>(static_cast<signed char>(at(1, j)));
    }
  }

  const char* data_;
  Dtype dtype_;
  int size_;
};

/// Writes signs of a pixel of the tile, a byte or two of them.
template <class Bits>
__device__ void put_signs(const HaloArgs& p, char* image, int index, int column, int group, Bits bits) {
  char* const to = image + index * p.cut.pitch + group;
  *reinterpret_cast<Bits*>(to) = bits;
  if (p.paired && column >= p.dil_w) *reinterpret_cast<Bits*>(to + 8 - p.dil_w * p.cut.pitch) = bits;
}

/// Writes the codes of eight channels of a pixel of the tile, all 0 outside of the image and behind the last channel.
template <class Product, class Io>
__device__ void put_eight(const HaloArgs& p, const Quantiser& quantiser, char* image, int index, int column,
                          bool inside, int group, float (&xs)[8], bool* finite) {
  const int first = 8 * group;
  const bool codes_already = Io::dtype(p) == Dtype::s8;
  if (!codes_already) {
    if (p.bias != nullptr && p.whole_bias && first + 8 <= p.in_c) {
      const float4 front = __ldg(reinterpret_cast<const float4*>(p.bias + first));
      const float4 back = __ldg(reinterpret_cast<const float4*>(p.bias + first + 4));
      xs[0] += front.x, xs[1] += front.y, xs[2] += front.z, xs[3] += front.w;
      xs[4] += back.x, xs[5] += back.y, xs[6] += back.z, xs[7] += back.w;
    } else if (p.bias != nullptr) {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (first + j < p.in_c) xs[j] += __ldg(p.bias + first + j);
    }
    *finite = *finite && (!inside || all_finite(xs));
  }
  const int channels = inside ? p.in_c - first : 0;
  if constexpr (Product::a_format == Format::bits) {
    unsigned byte = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) byte |= xs[j] >= 0 ? 1u << j : 0u;
    if (channels < 8) byte &= (1u << max(channels, 0)) - 1;
    put_signs(p, image, index, column, group, static_cast<std::uint8_t>(byte));
  } else {
    int codes[8];
    if (codes_already) {
      codes_of<Reader<std::int8_t>>(quantiser, xs, codes);
    } else {
      quantiser.codes(xs, codes);
    }
    if (channels < 8) {
#pragma unroll
      for (int j = 0; j < 8; ++j) codes[j] = j < channels ? codes[j] : 0;
    }
    const int front[4] = {codes[0], codes[1], codes[2], codes[3]}, back[4] = {codes[4], codes[5], codes[6], codes[7]};
    *reinterpret_cast<uint2*>(image + index * p.cut.pitch + first) = make_uint2(pack_bytes(front), pack_bytes(back));
  }
}

/// threadIdx.x, read anew: what follows from it is not kept in registers from one tile to the next.
__device__ inline int thread_anew() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// What encoding a tile needs beside the arguments.
struct Encoder {
  const HaloArgs& p;
  const Quantiser quantiser;
  const int* spots;    ///< of the tile's input pixels
  char* image;         ///< where their codes go
  const char* least;   ///< of each channel the least half whose sum with the bias is not negative, or null
  bool finite = true;  ///< until a pixel holds NaN or infinity

  /// Channels that lie side by side: neighbouring threads read neighbouring pairs of groups.
  template <class Product, class Shape, class Io, int words>
  __device__ void side_by_side(const Place& place) {
    constexpr int batch = words == 8 || !Io::halves ? 2 : 5;  // loads under way, of two groups each
    const Elements x(p.x, Io::dtype(p));
    const int thread = thread_anew();
    const int lanes = p.pixel_lanes, step = Shape::threads / lanes;
    const bool packed = p.bias == nullptr || least != nullptr;
    __half2 zero = __float2half2_rn(0);
#pragma unroll 1
    for (int group = thread % lanes * 2; group < p.groups; group += 2 * lanes) {
      const int left = p.in_c / 8 - group, real = Io::halves ? (left > 0 ? 2 : 0) : min(max(left, 0), 2);
      uint4 bounds[2] = {};
      if (Io::halves && least != nullptr) {
        bounds[0] = reinterpret_cast<const uint4*>(least)[group];
        bounds[1] = reinterpret_cast<const uint4*>(least)[group + 1];
      }
#pragma unroll 1
      for (int first = thread / lanes; first < p.cut.halo_pixels; first += batch * step) {
        unsigned raw[batch][2][words];
        int columns[batch];
        bool inside[batch];
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const int spot = spots[min(first + b * step, p.cut.halo_pixels - 1)], pixel = place.input(p, spot);
          columns[b] = spot & 4095;
          inside[b] = pixel >= 0;
#pragma unroll
          for (int g = 0; g < 2; ++g) {
#pragma unroll
            for (int w = 0; w < words; ++w) raw[b][g][w] = 0;
            if (inside[b] && g < real) x.load_eight(std::int64_t{pixel} * p.in_c + 8 * (group + g), raw[b][g]);
          }
        }
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const int index = first + b * step;
          if (index >= p.cut.halo_pixels) break;
          if constexpr (Product::a_format == Format::bits && Io::halves) {
            if (packed) {  // what was not loaded is 0 and finite, but no sign
              const unsigned front = x.signs_of(raw[b][0], bounds[0], &zero),
                             back = x.signs_of(raw[b][1], bounds[1], &zero);
              const unsigned signs = real > 0 && inside[b] ? front | back << 8 : 0;
              put_signs(p, image, index, columns[b], group, static_cast<std::uint16_t>(signs));
              continue;
            }
          }
#pragma unroll
          for (int g = 0; g < 2; ++g) {
            float xs[8];
            x.open_eight(raw[b][g], xs);
            put_eight<Product, Io>(p, quantiser, image, index, columns[b], inside[b], group + g, xs, &finite);
          }
        }
      }
    }
    finite = finite && (reinterpret_cast<const unsigned&>(zero) & 0x7fff7fffu) == 0;
  }

  /// Channels that lie apart, or side by side but not at multiples of 16 bytes: a lane has a pixel, so that lanes read
  /// neighbours of a plane, and a warp the channels of so many groups.
  template <class Product, class Shape>
  __device__ void apart(const Place& place) {
    constexpr int batch = 4;
    const Elements x(p.x, p.dtype);
    const int thread = thread_anew();
    const int lane = thread % 32, plane = p.in_h * p.in_w;
    const std::int64_t distance = p.pixels_first ? 1 : plane;
    const int shares = (p.groups + batch - 1) / batch, units = (p.cut.halo_pixels + 31) / 32 * shares;
#pragma unroll 1
    for (int unit = thread / 32; unit < units; unit += Shape::threads / 32) {
      const int index = unit / shares * 32 + lane, first = unit % shares * batch;
      if (index >= p.cut.halo_pixels) continue;
      const int spot = spots[index], pixel = place.input(p, spot);
      const std::int64_t start =
          p.pixels_first ? std::int64_t{pixel} * p.in_c : std::int64_t{pixel / plane} * plane * p.in_c + pixel % plane;
      unsigned raw[batch][8];
#pragma unroll
      for (int b = 0; b < batch; ++b)
        x.load_apart(start + 8 * (first + b) * distance, distance, pixel >= 0 ? p.in_c - 8 * (first + b) : 0, raw[b]);
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        if (first + b >= p.groups) break;
        float xs[8];
        x.open_apart(raw[b], xs);
        put_eight<Product, AnyIo>(p, quantiser, image, index, spot & 4095, pixel >= 0, first + b, xs, &finite);
      }
    }
  }
};

}  // namespace bie::kernels::cuda::halo
