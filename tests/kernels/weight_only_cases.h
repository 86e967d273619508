// Weights in packed words with everything that can differ between them, and what they mean in float64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bie/kernels/weight_format.h"
#include "elements.h"

namespace bie::kernels::test {

/// A weight and its memory. Codes are kept beside the words, so that no test reads them with the code under test.
struct WeightCase {
  std::int64_t k, n, groups;
  std::vector<BitRun> runs;
  std::vector<std::int32_t> group_of, input_of;  // input_of: empty = none
  std::vector<int> codes;                        // [k, n] in the order of the packed rows
  std::vector<std::uint32_t> words;
  Elements scales, float_zeros;
  std::vector<std::int32_t> whole_zeros;
  Offset offset;

  WeightCase(std::vector<BitRun> bit_runs, std::int64_t columns, std::vector<std::int32_t> groups_of_rows,
             Dtype scale_dtype, Offset offset_kind, ReplayableRng& rng)
      : k(static_cast<std::int64_t>(groups_of_rows.size())),
        n(columns),
        groups(groups_of_rows.empty() ? 0 : *std::max_element(groups_of_rows.begin(), groups_of_rows.end()) + 1),
        runs(std::move(bit_runs)),
        group_of(std::move(groups_of_rows)),
        scales(random_elements(scale_dtype, groups * n, 0.25f, rng)),
        float_zeros(random_elements(scale_dtype, groups * n, 1, rng)),
        offset(offset_kind) {
    std::int64_t row = 0, word = 0;
    for (const BitRun& run : runs) {
      const std::int64_t run_word_count = (run.rows * run.bits + 31) / 32;
      words.resize(static_cast<std::size_t>((word + run_word_count) * n), 0);
      for (std::int64_t i = 0; i < run.rows; ++i, ++row)
        for (std::int64_t j = 0; j < n; ++j) {
          const int code = static_cast<int>(rng.between(0, (1 << run.bits) - 1));
          codes.push_back(code);
          for (int b = 0; b < run.bits; ++b) {
            const std::int64_t place = i * run.bits + b;
            words[static_cast<std::size_t>((word + place / 32) * n + j)] |= static_cast<std::uint32_t>(code >> b & 1)
                                                                            << (place % 32);
          }
        }
      word += run_word_count;
    }
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t j = 0; j < n; ++j)
        whole_zeros.push_back(static_cast<std::int32_t>(rng.between(1, 1 << bits_of_group(g))));
  }

  int bits_of_row(std::int64_t i) const {
    std::size_t r = 0;
    while (i >= runs[r].rows) i -= runs[r++].rows;
    return runs[r].bits;
  }
  int bits_of_group(std::int64_t g) const {
    for (std::int64_t i = 0; i < k; ++i)
      if (group_of[static_cast<std::size_t>(i)] == g) return bits_of_row(i);
    return 1;
  }
  void permute(ReplayableRng& rng) {
    for (std::int64_t i = 0; i < k; ++i) input_of.push_back(static_cast<std::int32_t>(i));
    for (std::int64_t i = k - 1; i > 0; --i)
      std::swap(input_of[static_cast<std::size_t>(i)], input_of[static_cast<std::size_t>(rng.between(0, i))]);
  }
  PackedWeight packed() const {
    return {k,
            n,
            groups,
            words.data(),
            runs.data(),
            static_cast<int>(runs.size()),
            group_of.data(),
            input_of.empty() ? nullptr : input_of.data(),
            scales.bytes.data(),
            scales.dtype,
            offset,
            offset == Offset::none    ? nullptr
            : offset == Offset::value ? static_cast<const void*>(float_zeros.bytes.data())
                                      : static_cast<const void*>(whole_zeros.data())};
  }
  std::int64_t input(std::int64_t i) const { return input_of.empty() ? i : input_of[static_cast<std::size_t>(i)]; }
  int code(std::int64_t i, std::int64_t j) const { return codes[static_cast<std::size_t>(i * n + j)]; }
  /// W of packed row i, exact but for float64.
  double value(std::int64_t i, std::int64_t j) const {
    const std::int64_t at = group_of[static_cast<std::size_t>(i)] * n + j;
    const double s = static_cast<double>(scales.get(at)), q = code(i, j);
    if (offset == Offset::value) return s * q - static_cast<double>(float_zeros.get(at));
    if (offset == Offset::zero) return s * (q - whole_zeros[static_cast<std::size_t>(at)]);
    return s * (q - (1 << (bits_of_row(i) - 1)));
  }
};

inline std::vector<std::int32_t> even_groups(std::int64_t k, std::int64_t size) {
  std::vector<std::int32_t> group_of;
  for (std::int64_t i = 0; i < k; ++i) group_of.push_back(static_cast<std::int32_t>(i / size));
  return group_of;
}

/// The same codes as outputs that are opened one at a time. Groups are even and of one width; with Offset::value the
/// weight is the same too, else it is s * (step * q - zero).
struct RowsOfCase {
  const WeightCase& weight;
  std::int64_t group;
  int step, zero;

  WeightRows rows() const {
    const Offset offset = weight.offset == Offset::value ? Offset::value : Offset::none;
    return {weight.k, weight.n, group, weight.runs.front().bits, weight.scales.dtype, offset, step, zero, open, this};
  }
  static void open(const void* file, std::int64_t j, std::uint8_t* codes, float* scales, float* zeros) {
    const WeightCase& w = static_cast<const RowsOfCase*>(file)->weight;
    for (std::int64_t i = 0; i < w.k; ++i) codes[i] = static_cast<std::uint8_t>(w.code(i, j));
    for (std::int64_t g = 0; g < w.groups; ++g) {
      scales[g] = w.scales.get(g * w.n + j);
      if (w.offset == Offset::value) zeros[g] = w.float_zeros.get(g * w.n + j);
    }
  }
};

/// As act-order has them: any row in any group, some of them empty.
inline std::vector<std::int32_t> mixed_groups(std::int64_t k, std::int32_t groups, ReplayableRng& rng) {
  std::vector<std::int32_t> group_of;
  for (std::int64_t i = 0; i < k; ++i) group_of.push_back(static_cast<std::int32_t>(rng.between(0, groups - 1)));
  if (k > 0) group_of[0] = groups - 1;
  return group_of;
}

}  // namespace bie::kernels::test
