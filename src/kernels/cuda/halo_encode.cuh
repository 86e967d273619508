// The pixels that a tile of a convolution reads, from device memory to codes in shared memory.
#pragma once

#include "kernels/cuda/encode_row.cuh"
#include "kernels/cuda/half_quantiser.cuh"
#include "kernels/cuda/halo_kernels.cuh"

namespace bie::kernels::cuda::halo {

// Element types and layouts that are fixed at compile time: float16 or bfloat16 in and out, in NHWC with channels a
// multiple of 16, or in NCHW where pairs of neighbouring pixels are read and written at once. The branches of the
// generic path (AnyIo) would take most of the kernel's time.
struct AnyIo {
  static constexpr bool halves = false, planes = false;
  using Element = __half;
  static __device__ Dtype dtype(const HaloArgs& p) { return p.dtype; }
};
template <class T, bool planes_>
struct HalfIo {
  static constexpr bool halves = true, planes = planes_;
  using Element = T;
  static constexpr bool is_half = std::is_same_v<T, __half>;
  /// Adds 0 of a pair that is finite, else NaN.
  static __device__ void add_zero(unsigned pair, unsigned* zero) {
    using Pair = std::conditional_t<is_half, __half2, __nv_bfloat162>;
    Pair& sum = reinterpret_cast<Pair&>(*zero);
    sum = __hfma2(reinterpret_cast<const Pair&>(pair), Pair{T{0.0f}, T{0.0f}}, sum);
  }
  static __device__ T rounded_up(float value) {
    if constexpr (is_half) {
      return __float2half_ru(value);
    } else {
      return __float2bfloat16_ru(value);
    }
  }
  /// Masks of the elements of a pair that are at least `least`; `*zero` stays so unless one is NaN or infinite.
  static __device__ unsigned at_least(unsigned pair, unsigned least, unsigned* zero) {
    using Pair = std::conditional_t<is_half, __half2, __nv_bfloat162>;
    add_zero(pair, zero);
    return __hge2_mask(reinterpret_cast<const Pair&>(pair), reinterpret_cast<const Pair&>(least));
  }
  static __device__ constexpr Dtype dtype(const HaloArgs&) { return is_half ? Dtype::f16 : Dtype::bf16; }
};

/// A pixel's place in a tile in one word: image, line and column.
__device__ inline int pack_spot(int image, int line, int column) { return image << 24 | line << 12 | column; }

/// Position of a block's current tile: its first image and output pixel.
struct Place {
  int image, out_y, out_x;
  __device__ Place(const HaloArgs& p, int tile) {
    const int across = tile % p.cut.across, rest = tile / p.cut.across;
    out_x = across * p.cut.w;
    out_y = rest % p.cut.down * p.cut.h;
    image = rest / p.cut.down * p.cut.images;
  }
  /// Advances to the block's next tile.
  __device__ void advance(const HaloArgs& p) {
    out_x += p.x_on;
    out_y += p.y_on;
    image += p.image_on;
    if (out_x >= p.cut.across * p.cut.w) out_x -= p.cut.across * p.cut.w, out_y += p.cut.h;
    if (out_y >= p.cut.down * p.cut.h) out_y -= p.cut.down * p.cut.h, image += p.cut.images;
  }
  /// Index of an input pixel among those of all images; -1 if it lies outside its image.
  __device__ int input(const HaloArgs& p, int spot) const {
    const int n = image + (spot >> 24);
    const int y = (out_y * p.stride_h + (spot >> 12 & 4095)) * p.gap_h - p.pad_h;
    const int x = (out_x * p.stride_w + (spot & 4095)) * p.gap_w - p.pad_w;
    const bool inside = n < p.batch && static_cast<unsigned>(y) < static_cast<unsigned>(p.in_h) &&
                        static_cast<unsigned>(x) < static_cast<unsigned>(p.in_w);
    return inside ? (n * p.in_h + y) * p.in_w + x : -1;
  }
  /// Index of an output pixel, likewise.
  __device__ int output(const HaloArgs& p, int spot) const {
    const int n = image + (spot >> 24), y = out_y + (spot >> 12 & 4095), x = out_x + (spot & 4095);
    return spot >= 0 && n < p.batch && y < p.out_h && x < p.out_w ? (n * p.out_h + y) * p.out_w + x : -1;
  }
};

/// Raw elements from memory, with one code path for all dtypes: a kernel per dtype would compile four times.
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

/// Sign mask of eight 16-bit floats: bit j is set if element j >= least[j].
template <class Io>
__device__ unsigned signs_of(const unsigned (&raw)[4], const uint4& least, unsigned* zero) {
  const unsigned bounds[4] = {least.x, least.y, least.z, least.w};
  unsigned bits = 0;  // those of even elements low, those of odd ones high
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) bits |= Io::at_least(raw[pair], bounds[pair], zero) & 0x00020001u << 2 * pair;
  return (bits | bits >> 16) & 255;
}

/// Writes signs of a pixel of the tile, one to four bytes of them.
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

/// State of the quantiser of one tile, beside the kernel's arguments. `Quick` is the cheaper quantiser of 16-bit
/// floats, used where it applies.
template <class Quick>
struct Encoder {
  const HaloArgs& p;
  const Quantiser quantiser;
  const Quick& quick;
  const int* spots;    ///< of the tile's input pixels
  char* image;         ///< where their codes go
  const char* least;   ///< of each channel the least half whose sum with the bias is not negative, or null
  bool finite = true;  ///< until a pixel holds NaN or infinity

  /// Signs without a bias, or with one that `least` has: `special`. Codes, `special` by `quick`.
  template <class Product, class Shape, class Io, bool special>
  __device__ void halves(const Place& place) {
    if constexpr (Io::planes) {
      pairs_of_planes<Product, Shape, Io, special>(place);
    } else {
      side_by_side<Product, Shape, Io, 4, special>(place);
    }
  }

  /// Signs of two neighbouring groups of a pixel; `real`: there are channels. Elements that were not loaded are 0:
  /// finite, but no sign.
  template <class Io>
  __device__ void put_signs_of_groups(const unsigned (&raw)[2][4], int index, int column, bool inside, int group,
                                      bool real, const uint4 (&bounds)[2], unsigned* zero) {
    const unsigned front = signs_of<Io>(raw[0], bounds[0], zero), back = signs_of<Io>(raw[1], bounds[1], zero);
    const unsigned signs = real && inside ? front | back << 8 : 0;
    put_signs(p, image, index, column, group, static_cast<std::uint16_t>(signs));
  }
  /// Codes of a group of a pixel and of the one `apart` behind it, which may lie behind the last where it is no
  /// neighbour. `special`: as of halves().
  template <class Product, class Io, bool special, int words>
  __device__ void put_groups(const unsigned (&raw)[2][words], int index, int column, bool inside, int group, int apart,
                             unsigned* zero) {
    const bool both = apart == 1 || group + apart < p.groups;
    if constexpr (Io::halves && special) {  // what was not loaded is 0
#pragma unroll
      for (int g = 0; g < 2; ++g)
#pragma unroll
        for (int w = 0; w < 4; ++w) Io::add_zero(raw[g][w], zero);
      const uint2 front = make_uint2(quick.bytes(raw[0][0], raw[0][1]), quick.bytes(raw[0][2], raw[0][3])),
                  back = make_uint2(quick.bytes(raw[1][0], raw[1][1]), quick.bytes(raw[1][2], raw[1][3]));
      char* const to = image + index * p.cut.pitch + 8 * group;
      if (apart == 1) {
        *reinterpret_cast<uint4*>(to) = make_uint4(front.x, front.y, back.x, back.y);
      } else {
        *reinterpret_cast<uint2*>(to) = front;
        if (both) *reinterpret_cast<uint2*>(to + 8 * apart) = back;
      }
    } else {
      const Elements x(p.x, Io::dtype(p));
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        float xs[8];
        x.open_eight(raw[g], xs);
        if (g == 0 || both)
          put_eight<Product, Io>(p, quantiser, image, index, column, inside, group + g * apart, xs, &finite);
      }
    }
  }
  /// Called after the groups of the last tile.
  __device__ void notice(unsigned zero) { finite = finite && (zero & 0x7fff7fffu) == 0; }

  /// Channels that lie side by side: neighbouring threads read neighbouring pairs of groups. `special`: as of halves().
  template <class Product, class Shape, class Io, int words, bool special>
  __device__ void side_by_side(const Place& place) {
    constexpr int batch = words == 8 || !Io::halves ? 2 : 5;  // loads under way, of two groups each
    const Elements x(p.x, Io::dtype(p));
    const int thread = thread_anew();
    const int lanes = 1 << p.pixel_bits, step = Shape::threads >> p.pixel_bits;
    constexpr bool bits = Product::a_format == Format::bits, bounded = bits && special;
    unsigned zero = 0;
#pragma unroll 1
    for (int group = thread % lanes * 2; group < p.groups; group += 2 * lanes) {
      const int left = p.in_c / 8 - group, real = Io::halves ? (left > 0 ? 2 : 0) : min(max(left, 0), 2);
      uint4 bounds[2] = {};
      if constexpr (bounded) {
        bounds[0] = reinterpret_cast<const uint4*>(least)[group];
        bounds[1] = reinterpret_cast<const uint4*>(least)[group + 1];
      }
#pragma unroll 1
      for (int first = thread >> p.pixel_bits; first < p.cut.halo_pixels; first += batch * step) {
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
          if constexpr (bits && Io::halves) {
            put_signs_of_groups<Io>(raw[b], index, columns[b], inside[b], group, real > 0, bounds, &zero);
          } else {
            put_groups<Product, Io, special>(raw[b], index, columns[b], inside[b], group, 1, &zero);
          }
        }
      }
    }
    notice(zero);
  }

  /// Planes of halves: a lane has two neighbours of a line, and a warp so many of their channels. `spots` are those of
  /// the pairs. `special`: as of halves().
  template <class Product, class Shape, class Io, bool special>
  __device__ void pairs_of_planes(const Place& place) {
    constexpr bool bits = Product::a_format == Format::bits, bounded = bits && special;
    constexpr int batch = bits ? 32 : 16, batch_groups = batch / 8;
    const int thread = thread_anew(), lane = thread % 32;
    const int shares = (p.groups + batch_groups - 1) / batch_groups;
    const int pairs = p.cut.images * p.cut.halo_h * pairs_of_line(p.cut.halo_w), units = (pairs + 31) / 32 * shares;
    const int left = place.out_x * p.stride_w - p.pad_w;  // the input column of the tile's first one
    const int plane = p.in_h * p.in_w;
    unsigned zero = 0;
#pragma unroll 1
    for (int unit = thread / 32; unit < units; unit += Shape::threads / 32) {
      const int at = unit / shares * 32 + lane, first = unit % shares * batch;
      if (at >= pairs) continue;
      const int spot = spots[at], line = spot >> 12 & 4095;
      const int n = place.image + (spot >> 24), y = (place.out_y * p.stride_h + line) * p.gap_h - p.pad_h;
      const int x = (left & ~1) + 2 * (spot & 4095), column = x - left;  // -1 ... halo_w
      const bool inside = n < p.batch && static_cast<unsigned>(y) < static_cast<unsigned>(p.in_h) &&
                          static_cast<unsigned>(x) < static_cast<unsigned>(p.in_w);
      const int real = inside ? p.in_c - first : 0;
      const char* from = p.x + 2 * ((std::int64_t{n} * p.in_c + first) * plane + (inside ? y * p.in_w + x : 0));
      unsigned raw[batch];
#pragma unroll
      for (int c = 0; c < batch; ++c, from += 2 * plane)
        raw[c] = c < real ? __ldg(reinterpret_cast<const unsigned*>(from)) : 0;
      const int index = ((spot >> 24) * p.cut.halo_h + line) * p.cut.halo_w + column;
      const bool has[2] = {column >= 0 && column < p.cut.halo_w, column + 1 < p.cut.halo_w};
      if constexpr (bits) {      // what was not loaded is 0 and finite, but no sign
        unsigned signs[2] = {};  // the first pixel's of 16 channels low, the second one's high
#pragma unroll
        for (int c = 0; c < batch; ++c) {
          unsigned bound = 0;
          if constexpr (bounded) bound = 0x00010001u * reinterpret_cast<const std::uint16_t*>(least)[first + c];
          signs[c / 16] |= Io::at_least(raw[c], bound, &zero) & 0x00010001u << c % 16;
        }
        const unsigned keep = real >= batch ? ~0u : (1u << max(real, 0)) - 1;
#pragma unroll
        for (int k = 0; k < 2; ++k)
          if (has[k])
            put_signs(p, image, index + k, column + k, first / 8,
                      __byte_perm(signs[0], signs[1], k == 0 ? 0x5410 : 0x7632) & keep);
      } else {
#pragma unroll
        for (int k = 0; k < 2; ++k)
#pragma unroll
          for (int g = 0; g < batch_groups; ++g) {
            float xs[8];
#pragma unroll
            for (int j = 0; j < 8; ++j)
              xs[j] = widen(reinterpret_cast<const typename Io::Element*>(&raw[8 * g + j])[k]);
            if (has[k] && first / 8 + g < p.groups)
              put_eight<Product, Io>(p, quantiser, image, index + k, column + k, inside, first / 8 + g, xs, &finite);
          }
      }
    }
    notice(zero);
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
