// The dull loops that define every GEMM and convolution, once for each way of reading a code. Never optimised.
// Code: dtype, max_k, at(row, i) of packed codes, of(xs, step) of a float, from(code) of an int8 activation.
#pragma once

#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_gemm.h"
#include "kernels/check.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {

struct Binary {
  static constexpr Dtype dtype = Dtype::bits;
  static constexpr std::int64_t max_k = max_k_b1;
  static int at(const void* row, std::int64_t i) { return sign_at(row, i); }
  static int of(float xs, float) { return xs >= 0 ? 1 : -1; }
  static int from(int code) { return code >= 0 ? 1 : -1; }
};

struct Int8 {
  static constexpr Dtype dtype = Dtype::s8;
  static constexpr std::int64_t max_k = max_k_s8;
  static int at(const void* row, std::int64_t i) { return s8_at(row, i); }
  static int of(float xs, float step) { return quantize(xs, step, -128, 127); }
  static int from(int code) { return code; }
};

struct Int4 {
  static constexpr Dtype dtype = Dtype::s4;
  static constexpr std::int64_t max_k = max_k_s4;
  static int at(const void* row, std::int64_t i) { return s4_at(row, i); }
  static int of(float xs, float step) { return quantize(xs, step, -8, 7); }
  static int from(int code) { return code; }
};

inline void copy_bytes(const void* from, std::size_t bytes, void* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

template <class Code>
struct Gemm {
  static int activation(const GemmInput& x, std::int64_t row, std::int64_t i) {
    const char* data = static_cast<const char*>(x.data) + row * x.row_stride;
    return x.dtype == Code::dtype ? Code::at(data, i) : Code::of(value_at(x, row, i), x.step);
  }

  static Status run(const GemmShape& shape, const GemmInput& x, const void* packed, const GemmOutput& y,
                    const Parallel&) {
    const Status checked = check_gemm(shape, x, y, Code::dtype, Code::max_k);
    if (checked != Status::ok) return checked;
    if (shape.n > 0 && !all_finite(shape, x)) return Status::not_finite;
    const std::int64_t weight_row = row_bytes(Code::dtype, shape.k);
    bool finite = true;
    for (std::int64_t row = 0; row < shape.m; ++row)
      for (std::int64_t column = 0; column < shape.n; ++column) {
        const char* weight = static_cast<const char*>(packed) + column * weight_row;
        std::int32_t acc = 0;
        for (std::int64_t i = 0; i < shape.k; ++i) acc += activation(x, row, i) * Code::at(weight, i);
        char* const to = static_cast<char*>(y.data) + row * y.row_stride;
        if (is_code(y.dtype))
          finite = store_code(acc, y, to, column) && finite;
        else
          store_scaled(acc, y.scale, to, y.dtype, column);
      }
    return finite ? Status::ok : Status::not_finite;
  }

  /// False where the result that becomes a code is not finite.
  static bool store_code(std::int32_t acc, const GemmOutput& y, char* row, std::int64_t column) {
    const float xs = static_cast<float>(acc) * y.scale + (y.bias == nullptr ? 0.0f : y.bias[column]);
    if (y.dtype == Dtype::s8) {
      row[column] = static_cast<char>(quantize(xs, y.step, -128, 127));
    } else {
      const std::int64_t byte = column / 8, bit = column % 8;
      if (bit == 0) row[byte] = 0;
      row[byte] = static_cast<char>(row[byte] | (xs >= 0) << bit);
    }
    return std::isfinite(xs);
  }

  static std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
    return static_cast<std::size_t>(n * row_bytes(Code::dtype, k));
  }

  static void prepack(const void* weight, std::int64_t n, std::int64_t k, void* packed, const Parallel&) {
    copy_bytes(weight, packed_bytes(n, k), packed);
  }

  static constexpr GemmKernel kernel(const char* name) {
    return {name, Isa::reference, nullptr, packed_bytes, prepack, run};
  }
};

template <class Code>
struct Conv2d {
  static int pixel(const Conv2dShape& s, const Conv2dInput& x, std::int64_t n, std::int64_t c, std::int64_t iy,
                   std::int64_t ix) {
    if (x.dtype != Dtype::s8) return Code::of(pixel_value(s, x, n, c, iy, ix), x.step);
    return Code::from(s8_at(x.data, in_index(s, x.layout, n, c, iy, ix)));
  }

  static Status run(const Conv2dShape& s, const Conv2dInput& x, const void* packed, const Conv2dOutput& y,
                    const Parallel&) {
    const Status checked = check_conv2d(s, x, y, Code::dtype, Code::max_k);
    if (checked != Status::ok) return checked;
    if (s.out_c > 0 && s.out_h() * s.out_w() > 0 && !all_finite(s, x)) return Status::not_finite;
    const std::int64_t weight_row = row_bytes(Code::dtype, s.depth());
    bool finite = true;
    for (std::int64_t n = 0; n < s.batch; ++n)
      for (std::int64_t o = 0; o < s.out_c; ++o)
        for (std::int64_t oy = 0; oy < s.out_h(); ++oy)
          for (std::int64_t ox = 0; ox < s.out_w(); ++ox) {
            const char* weight = static_cast<const char*>(packed) + o * weight_row;
            std::int32_t acc = 0;
            std::int64_t i = 0;
            const std::int64_t first = o / s.group_out() * s.group_in();
            for (std::int64_t c = first; c < first + s.group_in(); ++c)
              for (std::int64_t ky = 0; ky < s.kernel_h; ++ky)
                for (std::int64_t kx = 0; kx < s.kernel_w; ++kx, ++i) {
                  const std::int64_t iy = oy * s.stride_h - s.pad_h + ky * s.dil_h;
                  const std::int64_t ix = ox * s.stride_w - s.pad_w + kx * s.dil_w;
                  const bool inside = iy >= 0 && iy < s.in_h && ix >= 0 && ix < s.in_w;
                  acc += (inside ? pixel(s, x, n, c, iy, ix) : s.pad_code) * Code::at(weight, i);
                }
            const std::int64_t at = out_index(s, y.layout, n, o, oy, ox);
            if (y.tail == nullptr)
              store_scaled(acc, y.scale, y.data, y.dtype, at);
            else
              finite = store_tail(static_cast<float>(acc) * y.scale, *y.tail, o, at) && finite;
          }
    return finite ? Status::ok : Status::not_finite;
  }

  /// False where what becomes a code is not finite.
  static bool store_tail(float y, const Conv2dTail& t, std::int64_t o, std::int64_t at) {
    const auto of = [o](const float* all, float otherwise) { return all == nullptr ? otherwise : all[o]; };
    float v = y * of(t.scale, 1.0f) + of(t.shift, -0.0f);
    if (t.add != nullptr) v = v + t.add[at];
    if (v < 0) v = t.cuts ? 0.0f : v * t.slope;
    if (t.v != nullptr) t.v[at] = v;
    if (t.codes == nullptr) return true;
    const float xs = v + of(t.bias, 0.0f);
    const int code =
        t.signs ? (xs >= 0 ? 1 : -1) : quantize(xs, t.step, static_cast<float>(t.lo), static_cast<float>(t.hi));
    t.codes[at] = static_cast<std::int8_t>(code);
    return std::isfinite(xs);
  }

  static std::size_t packed_bytes(const Conv2dShape& s) {
    return static_cast<std::size_t>(s.out_c * row_bytes(Code::dtype, s.depth()));
  }

  static void prepack(const void* weight, const Conv2dShape& s, void* packed, const Parallel&) {
    copy_bytes(weight, packed_bytes(s), packed);
  }

  static constexpr Conv2dKernel kernel(const char* name) {
    return {name, Isa::reference, nullptr, packed_bytes, prepack, run};
  }
};

}  // namespace bie::kernels::reference
