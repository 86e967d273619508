// The definition of weight_only_gemm. Its arrangement is a head, the packed rows in the order of the sum and, as
// floats, c = q - h [k, n], s and o [groups, n].
#include "bie/kernels/weight_only_gemm.h"

#include <vector>

#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

struct Arrangement {
  std::int64_t n, k, groups;
  bool subtracts;

  std::size_t bytes() const {
    return sizeof(Arrangement) + 4 * static_cast<std::size_t>(2 * k + k * n + 2 * groups * n);
  }
  std::int32_t* group_of(char* at) const { return reinterpret_cast<std::int32_t*>(at + sizeof *this); }
  std::int32_t* input_of(char* at) const { return group_of(at) + k; }
  float* codes(char* at) const { return reinterpret_cast<float*>(input_of(at) + k); }
  float* scales(char* at) const { return codes(at) + k * n; }
  float* offsets(char* at) const { return scales(at) + groups * n; }
};

Arrangement arrangement_of(const PackedWeight& w) { return {w.n, w.k, w.groups, w.offset != Offset::none}; }

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
        if (!a.subtracts) continue;
        for (int d = 8; d > 0; d /= 2)
          for (int p = 0; p < d; ++p) parts[p] += parts[p + d];
        all = std::fma(parts[0], a.offsets(at)[g * s.n + j], all);
      }
      if (y.bias != nullptr) all += y.bias[j];
      char* const to = static_cast<char*>(y.data) + m * y.row_stride;
      if (y.dtype == Dtype::f32)
        reinterpret_cast<float*>(to)[j] = all;
      else
        reinterpret_cast<std::uint16_t*>(to)[j] = y.dtype == Dtype::bf16 ? bf16_from_float(all) : f16_from_float(all);
    }
  return Status::ok;
}

}  // namespace

const WeightOnlyGemmKernel weight_only_gemm = {
    "weight_only_gemm_reference", Isa::reference, nullptr, packed_bytes, prepack, run};

}  // namespace bie::kernels::reference
