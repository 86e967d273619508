// The definitions of weight_only_gemm and weight_only_q8. Their arrangement is a head, the packed rows in the order of
// the sum and, as floats, c = q - h [k, n], s and o [groups, n].
#include "bie/kernels/weight_only_gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

struct Arrangement {
  std::int64_t n, k, groups;
  std::int64_t subtracts;  ///< 0 or 1: without padding, one weight has one arrangement to the byte

  std::size_t bytes() const {
    return sizeof(Arrangement) + 4 * static_cast<std::size_t>(2 * k + k * n + 2 * groups * n);
  }
  std::int32_t* group_of(char* at) const { return reinterpret_cast<std::int32_t*>(at + sizeof *this); }
  std::int32_t* input_of(char* at) const { return group_of(at) + k; }
  float* codes(char* at) const { return reinterpret_cast<float*>(input_of(at) + k); }
  float* scales(char* at) const { return codes(at) + k * n; }
  float* offsets(char* at) const { return scales(at) + groups * n; }
};

Arrangement arrangement_of(const PackedWeight& w) { return {w.n, w.k, w.groups, w.offset != Offset::none ? 1 : 0}; }

std::size_t packed_bytes(const PackedWeight& w) { return arrangement_of(w).bytes(); }

void prepack(const PackedWeight& w, void* packed, const Parallel&) {
  const Arrangement a = arrangement_of(w);
  char* const at = static_cast<char*>(packed);
  std::memcpy(at, &a, sizeof a);
  std::vector<int> bits_of(static_cast<std::size_t>(w.groups), 1);
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(w.groups));
  std::vector<std::int64_t> first_bit;  // of each packed row, in its column of bits
  std::int64_t row = 0, bit = 0;
  for (int r = 0; r < w.run_count; ++r, bit = (bit + 31) / 32 * 32)
    for (std::int64_t i = 0; i < w.runs[r].rows; ++i, ++row, bit += w.runs[r].bits) {
      bits_of[static_cast<std::size_t>(w.group_of[row])] = w.runs[r].bits;
      rows[static_cast<std::size_t>(w.group_of[row])].push_back(row);
      first_bit.push_back(bit);
    }
  std::int64_t t = 0;
  for (std::int64_t g = 0; g < w.groups; ++g) {
    const int bits = bits_of[static_cast<std::size_t>(g)];
    const float h = static_cast<float>(1 << (bits - 1));
    for (const std::int64_t i : rows[static_cast<std::size_t>(g)]) {
      a.group_of(at)[t] = static_cast<std::int32_t>(g);
      a.input_of(at)[t] = w.input_of == nullptr ? static_cast<std::int32_t>(i) : w.input_of[i];
      for (std::int64_t j = 0; j < w.n; ++j) {
        int code = 0;
        for (int b = 0; b < bits; ++b) {
          const std::int64_t place = first_bit[static_cast<std::size_t>(i)] + b;
          code |= static_cast<int>(w.words[place / 32 * w.n + j] >> (place % 32) & 1) << b;
        }
        a.codes(at)[t * w.n + j] = static_cast<float>(code) - h;
      }
      ++t;
    }
    for (std::int64_t j = 0; j < w.n; ++j) {
      const float s = load_float(w.scales, w.scale_dtype, g * w.n + j);
      a.scales(at)[g * w.n + j] = s;
      float& o = a.offsets(at)[g * w.n + j];
      o = 0;
      if (w.offset == Offset::value) o = std::fma(h, s, -load_float(w.zeros, w.scale_dtype, g * w.n + j));
      if (w.offset == Offset::zero)
        o = s * (h - static_cast<float>(static_cast<const std::int32_t*>(w.zeros)[g * w.n + j]));
    }
  }
}

/// A weight of rows in packed words with numbers of float32. Whole numbers that are not symmetric codes have zeros:
/// s * (q - zero), or (2 s) * q - s * zero.
struct InWords {
  BitRun run;
  std::vector<std::uint32_t> words;
  std::vector<float> scales, zeros;
  std::vector<std::int32_t> group_of, whole_zeros;
  PackedWeight packed;

  explicit InWords(const WeightRows& w)
      : run{w.bits, w.k},
        words(static_cast<std::size_t>(run_words(w.bits, w.k) * w.n), 0),
        scales(static_cast<std::size_t>(w.groups() * w.n)),
        zeros(scales.size()),
        whole_zeros(scales.size(), w.zero) {
    for (std::int64_t i = 0; i < w.k; ++i) group_of.push_back(static_cast<std::int32_t>(i / w.group));
    packed = {w.k,     w.n,           w.groups(), words.data(), &run,   1, group_of.data(),
              nullptr, scales.data(), Dtype::f32, w.offset,     nullptr};
    if (w.offset == Offset::none && !w.is_symmetric()) packed.offset = w.step == 1 ? Offset::zero : Offset::value;
    if (packed.offset == Offset::value) packed.zeros = zeros.data();
    if (packed.offset == Offset::zero) packed.zeros = whole_zeros.data();
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(w.k));
    std::vector<float> s(static_cast<std::size_t>(w.groups())), z(s.size());
    for (std::int64_t j = 0; j < w.n; ++j) {
      w.open(w.file, j, codes.data(), s.data(), z.data());
      for (std::int64_t i = 0; i < w.k; ++i)
        for (int b = 0; b < w.bits; ++b) {
          const std::int64_t place = i * w.bits + b;
          words[static_cast<std::size_t>(place / 32 * w.n + j)] |=
              static_cast<std::uint32_t>(codes[static_cast<std::size_t>(i)] >> b & 1) << (place % 32);
        }
      for (std::size_t g = 0; g < s.size(); ++g) {
        const std::size_t at = g * static_cast<std::size_t>(w.n) + static_cast<std::size_t>(j);
        const bool counts = w.offset == Offset::none;
        scales[at] = counts ? s[g] * static_cast<float>(w.step) : s[g];
        zeros[at] = counts ? s[g] * static_cast<float>(w.zero) : z[g];
      }
    }
  }
  InWords(const InWords&) = delete;
  InWords& operator=(const InWords&) = delete;
};

std::size_t rows_bytes(const WeightRows& w) { return Arrangement{w.n, w.k, w.groups(), 0}.bytes(); }

void prepack_rows(const WeightRows& w, void* packed, const Parallel& parallel) {
  prepack(InWords(w).packed, packed, parallel);
}

/// Whole numbers stay such.
void prepack_rows_q8(const WeightRows& w, void* packed, const Parallel& parallel) {
  if (w.offset == Offset::value || w.is_symmetric()) return prepack_rows(w, packed, parallel);
  WeightRows as_stored = w;
  as_stored.step = 1;
  as_stored.zero = 1 << (w.bits - 1);
  prepack_rows(as_stored, packed, parallel);
  const Arrangement& a = *static_cast<const Arrangement*>(packed);
  float* const codes = a.codes(static_cast<char*>(packed));
  for (std::int64_t i = 0; i < w.k * w.n; ++i) {
    const int q = static_cast<int>(codes[i]) + as_stored.zero;
    codes[i] = static_cast<float>(w.step * q - w.zero);
  }
}

void store(float value, const FloatResults& y, std::int64_t m, std::int64_t j) {
  char* const to = static_cast<char*>(y.data) + m * y.row_stride;
  if (y.dtype == Dtype::f32)
    reinterpret_cast<float*>(to)[j] = value;
  else
    reinterpret_cast<std::uint16_t*>(to)[j] = y.dtype == Dtype::bf16 ? bf16_from_float(value) : f16_from_float(value);
}

Status run(const GemmShape& s, const FloatRows& x, const void* packed, const FloatResults& y, const Parallel&) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  if (!is_float(x.dtype) || !is_float(y.dtype)) return Status::bad_dtype;
  if (s.m == 0 || s.n == 0) return Status::ok;
  const Arrangement& a = *static_cast<const Arrangement*>(packed);
  if (a.n != s.n || a.k != s.k) return Status::bad_shape;
  char* const at = static_cast<char*>(const_cast<void*>(packed));
  for (std::int64_t m = 0; m < s.m; ++m)
    for (std::int64_t j = 0; j < s.n; ++j) {
      float all = 0;
      std::int64_t t = 0;
      for (std::int64_t g = 0; g < a.groups; ++g) {
        float sum = 0, parts[16] = {};
        for (int i = 0; t < a.k && a.group_of(at)[t] == g; ++i, ++t) {
          const std::int64_t input = a.input_of(at)[t];
          float xi = load_float(static_cast<const char*>(x.data) + m * x.row_stride, x.dtype, input);
          if (x.factor != nullptr) xi = xi * x.factor[input];
          sum = std::fma(xi, a.codes(at)[t * s.n + j], sum);
          parts[i % 16] += xi;
        }
        all = std::fma(sum, a.scales(at)[g * s.n + j], all);
        if (a.subtracts == 0) continue;
        for (int d = 8; d > 0; d /= 2)
          for (int p = 0; p < d; ++p) parts[p] += parts[p + d];
        all = std::fma(parts[0], a.offsets(at)[g * s.n + j], all);
      }
      if (y.bias != nullptr) all += y.bias[j];
      store(all, y, m, j);
    }
  return Status::ok;
}

/// The codes of one group of a row, and its step size.
float quantised(const std::vector<float>& x, std::vector<int>& u) {
  float a = 0;
  u.assign(x.size(), 0);
  for (const float xi : x) {
    if (!std::isfinite(xi)) return std::numeric_limits<float>::quiet_NaN();
    a = std::max(a, std::fabs(xi));
  }
  if (a < 0x1p-100f) return 0;
  const float r = 127 / a;
  for (std::size_t i = 0; i < x.size(); ++i) u[i] = static_cast<int>(std::nearbyint(x[i] * r));
  return a / 127;
}

Status run_q8(const GemmShape& s, const FloatRows& x, const void* packed, const FloatResults& y, const Parallel&) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  if (!is_float(x.dtype) || !is_float(y.dtype)) return Status::bad_dtype;
  if (s.m == 0 || s.n == 0) return Status::ok;
  const Arrangement& a = *static_cast<const Arrangement*>(packed);
  if (a.n != s.n || a.k != s.k) return Status::bad_shape;
  char* const at = static_cast<char*>(const_cast<void*>(packed));
  std::vector<float> sums(static_cast<std::size_t>(s.n)), xs;
  std::vector<int> u;
  for (std::int64_t m = 0; m < s.m; ++m) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    std::int64_t first = 0;
    for (std::int64_t g = 0; g < a.groups; ++g) {
      xs.clear();
      for (std::int64_t t = first; t < a.k && a.group_of(at)[t] == g; ++t) {
        const std::int64_t input = a.input_of(at)[t];
        const float xi = load_float(static_cast<const char*>(x.data) + m * x.row_stride, x.dtype, input);
        xs.push_back(x.factor == nullptr ? xi : xi * x.factor[input]);
      }
      const float d = quantised(xs, u);
      std::int32_t all = 0;
      for (const int code : u) all += code;
      for (std::int64_t j = 0; j < s.n; ++j) {
        std::int32_t products = 0;
        for (std::size_t i = 0; i < u.size(); ++i)
          products += u[i] * static_cast<int>(a.codes(at)[(first + static_cast<std::int64_t>(i)) * s.n + j]);
        float t = static_cast<float>(products) * a.scales(at)[g * s.n + j];
        if (a.subtracts != 0) t = std::fma(static_cast<float>(all), a.offsets(at)[g * s.n + j], t);
        float& sum = sums[static_cast<std::size_t>(j)];
        sum = std::fma(d, t, sum);
      }
      first += static_cast<std::int64_t>(xs.size());
    }
    for (std::int64_t j = 0; j < s.n; ++j) {
      float& sum = sums[static_cast<std::size_t>(j)];
      if (y.bias != nullptr) sum += y.bias[j];
      store(sum, y, m, j);
    }
  }
  return Status::ok;
}

}  // namespace

const WeightOnlyGemmKernel weight_only_gemm = {
    "weight_only_gemm_reference", Isa::reference, nullptr, packed_bytes, prepack, rows_bytes, prepack_rows, run};

const WeightOnlyGemmKernel weight_only_q8 = {
    "weight_only_q8_reference", Isa::reference, nullptr, packed_bytes, prepack, rows_bytes, prepack_rows_q8, run_q8};

}  // namespace bie::kernels::reference
