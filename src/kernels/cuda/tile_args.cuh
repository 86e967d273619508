// Arguments of a tiled product: the source of activation rows (a matrix, or the windows of an image), the panels, and
// the destination of the results.
#pragma once

#include "kernels/cuda/quantiser.cuh"

namespace bie::kernels::cuda {

/// Rows of a matrix of codes.
struct MatrixRows {
  static constexpr bool counted = true;  ///< TileArgs::ones has the ones of each row
  const char* data;
  std::int64_t stride;
  int chunks;  ///< per row

  struct Row {
    const char* data;
  };
  __device__ Row row(int r) const { return {data + r * stride}; }
  /// A place along a row, in chunks.
  struct Cursor {
    int chunk;
  };
  __device__ Cursor cursor(int chunk) const { return {chunk}; }
  __device__ void advance(Cursor* at, int by) const { at->chunk += by; }
  /// The chunk of a row there; `inside` says whether it is one.
  __device__ const char* chunk(const Row& row, const Cursor& at, bool* inside) const {
    *inside = at.chunk < chunks;
    return row.data + at.chunk * chunk_bytes;
  }
};

/// The windows of an image of code rows, one per pixel: a row for each output pixel, taps one behind the other. Codes
/// outside the image are 0.
struct WindowRows {
  static constexpr bool counted = false;  ///< a product counts the ones of its rows as it reads them
  const char* data;
  int chunks;        ///< per row: taps * pixel_chunks
  int pixel_chunks;  ///< per pixel
  int in_h, in_w, out_h, out_w, kernel_w;
  int stride_h, stride_w, pad_h, pad_w, dil_h, dil_w;

  struct Row {
    int image;  ///< its first pixel
    int y, x;
  };
  __device__ Row row(int r) const {
    const int plane = out_h * out_w;
    const int n = r / plane, p = r - n * plane;
    return {n * in_h * in_w, p / out_w * stride_h - pad_h, p % out_w * stride_w - pad_w};
  }
  struct Cursor {
    int chunk, part, i, j;  ///< chunk = (i * kernel_w + j) * pixel_chunks + part
  };
  __device__ Cursor cursor(int chunk) const {
    Cursor at{0, 0, 0, 0};
    if (pixel_chunks > 0) advance(&at, chunk);
    return at;
  }
  __device__ void advance(Cursor* at, int by) const {
    at->chunk += by;
    at->part += by;
    while (at->part >= pixel_chunks) {  // no division: it would be a call in the loop of the product
      at->part -= pixel_chunks;
      if (++at->j == kernel_w) {
        at->j = 0;
        ++at->i;
      }
    }
  }
  __device__ const char* chunk(const Row& row, const Cursor& at, bool* inside) const {
    const int y = row.y + at.i * dil_h, x = row.x + at.j * dil_w;
    *inside = at.chunk < chunks && static_cast<unsigned>(y) < static_cast<unsigned>(in_h) &&
              static_cast<unsigned>(x) < static_cast<unsigned>(in_w);
    return data + ((row.image + std::int64_t{y} * in_w + x) * pixel_chunks + at.part) * chunk_bytes;
  }
};

/// Where results go. A row-major matrix, or planes: element (row, column) of a product lies at
/// (row / plane * columns + column) * plane + row % plane.
struct Results {
  void* data;
  Dtype dtype;
  std::int64_t stride;  ///< bytes from row to row; 0: planes
  int plane;
  Scalar scale_a, scale_w;
  bool pairs;         ///< two neighbours of a row can be written at once
  bool eights;        ///< eight neighbours, the first a multiple of eight, can be written in pieces of 16 bytes
  int plane_run = 0;  ///< of 16-bit planes: so many neighbouring pixels, the first a multiple, can be written at once:
                      ///< 8, 2 or, where that cannot be said, 0
  // For results that are codes of the next layer.
  const float* bias = nullptr;
  Scalar next_scale = {nullptr, 1};
  float next_eps = 0;

  __device__ bool codes() const { return dtype == Dtype::bits || dtype == Dtype::s8; }
};

template <class Source>
struct TileArgs {
  Source a;
  const char* panels;
  std::int64_t panel_stride;
  int panel_chunks;
  int m, n, k;
  Results y;
  Flags flags, panel_flags;
  const int *ones = nullptr, *panel_ones = nullptr;  ///< 1-bit only: a row's each
};

/// scale_a * scale_w of results, NaN unless both are finite. They may lie in device memory, so load them early.
__device__ inline float scale_of(const Results& y) {
  const float a = value_of(y.scale_a), w = value_of(y.scale_w);
  return isfinite(a) && isfinite(w) ? __fmul_rn(a, w) : __int_as_float(0x7fc00000);
}

/// Two neighbours as 16-bit floats in one register.
__device__ inline unsigned pack_pair(Dtype dtype, float first, float second) {
  if (dtype == Dtype::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const unsigned*>(&pair);
}

/// The 8x8 matrix of 16-bit elements that a warp holds as tensor cores do, transposed: lane l has elements 2 (l % 4)
/// and the next one of row l / 4.
__device__ inline unsigned transposed(unsigned pair) {
  unsigned turned = 0;
#if __CUDA_ARCH__ >= 750
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
#endif
  return turned;
}

/// Lane q of four neighbours gets word q of each of them, in their order.
__device__ inline uint4 transposed_quad(unsigned a, unsigned b, unsigned c, unsigned d) {
  const auto swap = [](unsigned& even, unsigned& odd,
                       int by) {  // the odd one of a lane without the bit for its partner's
    const bool upper = (threadIdx.x & by) != 0;
    const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? even : odd, by);
    (upper ? even : odd) = other;
  };
  swap(a, b, 1);
  swap(c, d, 1);
  swap(a, c, 2);
  swap(b, d, 2);
  return make_uint4(a, b, c, d);
}

/// Converts and writes results.
class Writer {
 public:
  static constexpr int offset = 0;  ///< what put_eight() and word() take off a sum of bits

  __device__ Writer(const Results& y, int columns, float scale, bool poisoned) : y_(y), columns_(columns) {
    scale_ = poisoned ? __int_as_float(0x7fc00000) : scale;
    size_ = y.dtype == Dtype::bf16 || y.dtype == Dtype::f16 ? 2 : 4;
    step_ = y.stride != 0 ? size_ : std::int64_t{y.plane} * size_;
  }

  /// Where a row begins.
  __device__ char* row(int r) const {
    if (y_.stride != 0) return static_cast<char*>(y_.data) + r * y_.stride;
    const int image = r / y_.plane;
    return static_cast<char*>(y_.data) + (std::int64_t{image} * columns_ * y_.plane + (r - image * y_.plane)) * size_;
  }

  __device__ void put(char* row, int column, int acc) const {
    if (column >= columns_) return;
    char* at = row + column * step_;
    const float value = scaled(acc);
    switch (y_.dtype) {
      case Dtype::s32: *reinterpret_cast<int*>(at) = acc; break;
      case Dtype::bf16: *reinterpret_cast<__nv_bfloat16*>(at) = narrow<__nv_bfloat16>(value); break;
      case Dtype::f16: *reinterpret_cast<__half*>(at) = narrow<__half>(value); break;
      default: *reinterpret_cast<float*>(at) = value; break;
    }
  }

  /// Columns `column` and `column + 1`, the first of them even.
  __device__ void put_pair(char* row, int column, int first, int second) const {
    if (!y_.pairs || column + 1 >= columns_) {
      put(row, column, first);
      put(row, column + 1, second);
      return;
    }
    char* at = row + column * step_;
    const float v = scaled(first), w = scaled(second);
    switch (y_.dtype) {
      case Dtype::s32: *reinterpret_cast<int2*>(at) = make_int2(first, second); break;
      case Dtype::bf16: *reinterpret_cast<__nv_bfloat162*>(at) = __floats2bfloat162_rn(v, w); break;
      case Dtype::f16: *reinterpret_cast<__half2*>(at) = __floats2half2_rn(v, w); break;
      default: *reinterpret_cast<float2*>(at) = make_float2(v, w); break;
    }
  }

  /// Eight columns from a multiple of eight on.
  __device__ void put_eight(char* row, int column, const int (&sums)[8]) const {
    if (column >= columns_) return;
    if (!y_.eights || column + 8 > columns_) {
#pragma unroll
      for (int c = 0; c < 8; c += 2) put_pair(row, column + c, sums[c], sums[c + 1]);
      return;
    }
    uint4* const at = reinterpret_cast<uint4*>(row + column * size_);
    if (size_ == 2) {
      unsigned words[4];
#pragma unroll
      for (int c = 0; c < 8; c += 2) words[c / 2] = pack_pair(y_.dtype, scaled(sums[c]), scaled(sums[c + 1]));
      *at = make_uint4(words[0], words[1], words[2], words[3]);
      return;
    }
#pragma unroll
    for (int c = 0; c < 8; c += 4) {
      unsigned words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        words[j] = y_.dtype == Dtype::s32 ? static_cast<unsigned>(sums[c + j]) : __float_as_uint(scaled(sums[c + j]));
      at[c / 4] = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }

  /// Two 16-bit results in one register.
  __device__ unsigned word(int first, int second) const { return pack_pair(y_.dtype, scaled(first), scaled(second)); }
  /// Neighbouring pixels as words of two; `pixel` is the place of the first one in column 0.
  template <class Words>
  __device__ void put_pixels(char* pixel, int column, const Words& words) const {
    *reinterpret_cast<Words*>(pixel + column * step_) = words;
  }

  /// Whether larger sums give smaller results.
  __device__ bool falls() const { return scale_ < 0; }
  __device__ float scaled(int acc) const { return __fmul_rn(static_cast<float>(acc), scale_); }

 private:
  const Results& y_;
  int columns_, size_;
  std::int64_t step_;
  float scale_;
};

/// The least sum of `column` within +-k whose code is 1, or 0 where results fall; k + 1 where there is none. The code
/// follows the sum up or down, because rounding keeps the order.
__device__ inline int least_of_sign(const Results& y, const Writer& numbers, int column, int columns, int k) {
  const float bias = y.bias == nullptr || column >= columns ? 0.0f : __ldg(y.bias + column);
  const bool falls = numbers.falls();
  const auto reached = [&](int sum) { return (__fadd_rn(numbers.scaled(sum), bias) >= 0) != falls; };
  int low = -k, high = k + 1;  // of what is not reached or reached; both bounds may be the answer
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (reached(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Quantiser of int8 results for the next layer; unused for other dtypes. Its constructor divides, so build it outside
/// of loops.
__device__ inline Quantiser quantiser_of(const Results& y) {
  return Quantiser(y.dtype == Dtype::s8 ? fmaxf(value_of(y.next_scale), y.next_eps) : 1, {range_s8.lo, range_s8.hi});
}

/// Writes codes of the next layer to the rows of a matrix.
class CodeWriter {
 public:
  static constexpr int offset = 0;

  __device__ CodeWriter(const Results& y, int columns, const Writer& numbers, const Quantiser& quantiser)
      : y_(y), numbers_(numbers), columns_(columns), quantiser_(quantiser) {}

  __device__ char* row(int r) const { return static_cast<char*>(y_.data) + r * y_.stride; }

  /// Codes of eight results, in pairs of 16 bits; for 1-bit results 1 and 0. Columns out of range may hold anything.
  template <class ColumnOf>
  __device__ void code_pairs(const int (&sums)[8], const ColumnOf& column_of, unsigned (&pairs)[4]) const {
    float xs[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) xs[i] = numbers_.scaled(sums[i]);
    if (y_.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 8; ++i) xs[i] += __ldg(y_.bias + min(column_of(i), columns_ - 1));
    }
    int codes[8];
    if (y_.dtype == Dtype::bits) {
#pragma unroll
      for (int i = 0; i < 8; ++i) codes[i] = xs[i] >= 0 ? 1 : 0;
    } else {
      quantiser_.codes(xs, codes);
    }
#pragma unroll
    for (int i = 0; i < 8; i += 2) pairs[i / 2] = __byte_perm(codes[i], codes[i + 1], 0x5410);
  }
  /// Writes those of eight columns from a multiple of eight on.
  __device__ void put_codes(char* row, int column, const uint4& pairs) const {
    if (column >= columns_) return;
    const unsigned words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
    if (y_.dtype == Dtype::bits) {
      unsigned byte = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) byte |= ((words[i] & 1) | (words[i] >> 15 & 2)) << 2 * i;
      if (column + 8 > columns_) byte &= (1u << (columns_ - column)) - 1;
      row[column / 8] = static_cast<char>(byte);
    } else if (y_.eights && column + 8 <= columns_) {
      *reinterpret_cast<uint2*>(row + column) =
          make_uint2(__byte_perm(words[0], words[1], 0x6420), __byte_perm(words[2], words[3], 0x6420));
    } else {
#pragma unroll
      for (int c = 0; c < 8; ++c)
        if (column + c < columns_) row[column + c] = static_cast<char>(words[c / 2] >> 16 * (c % 2));
    }
  }
  __device__ void put_eight(char* row, int column, const int (&sums)[8]) const {
    unsigned pairs[4];
    code_pairs(
        sums, [&](int c) { return column + c; }, pairs);
    put_codes(row, column, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
  }

  /// One code: of bits 1 or 0, and 0 in columns that are not there.
  __device__ int code(int acc, int column) const {
    if (column >= columns_) return 0;
    const float xs = numbers_.scaled(acc) + (y_.bias == nullptr ? 0.0f : __ldg(y_.bias + column));
    if (y_.dtype == Dtype::bits) return xs >= 0;
    const float all[8] = {xs};
    int codes[8];
    quantiser_.codes(all, codes);
    return codes[0];
  }
  /// Writes one as int8.
  __device__ void put_code(char* row, int column, int acc) const {
    if (column < columns_) row[column] = static_cast<char>(code(acc, column));
  }

 private:
  const Results& y_;
  const Writer& numbers_;
  int columns_;
  const Quantiser& quantiser_;
};

/// Whether this thread's share of the flags holds one. It waits for the last of them alone.
__device__ inline bool own_flag(const Flags& flags) {
  int any = 0;
  for (int i = threadIdx.x; i < flags.count; i += blockDim.x) any |= flags.data[i];
  return any != 0;
}

/// Whether any block that encoded met NaN or infinity; the same for all threads, which all have to ask.
template <class Source>
__device__ bool poisoned(const TileArgs<Source>& args) {
  const bool activations = own_flag(args.flags), weight = own_flag(args.panel_flags);
  return __syncthreads_or(activations || weight) != 0;
}

}  // namespace bie::kernels::cuda
