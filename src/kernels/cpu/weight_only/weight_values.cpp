// The kernels of weight_values, best first, and their driver: blocks of columns, packed row after packed row.
#include "bie/kernels/weight_values.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "bie/kernels/weight_only_gemm.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels {
namespace cpu {
namespace {

constexpr std::int64_t block = 64;  // columns

/// A packed row of a block of columns.
struct Row {
  std::int64_t group, input;  ///< input: the row of W
  std::int64_t word;          ///< the row of words
  int bit, bits;
  bool straddles() const { return bit + bits > 32; }
  float top() const { return static_cast<float>((1 << bits) - 1); }
};

/// Calls body(row) with every packed row.
template <class Body>
void for_rows(const PackedWeight& w, const Body& body) {
  std::int64_t i = 0, word = 0;
  for (int r = 0; r < w.run_count; ++r) {
    const BitRun& run = w.runs[r];
    for (std::int64_t at = 0; at < run.rows; ++at, ++i)
      body(Row{w.group_of[i], w.input_of == nullptr ? i : w.input_of[i], word + run.bits * at / 32,
               static_cast<int>(run.bits * at % 32), run.bits});
    word += run_words(run.bits, run.rows);
  }
}

/// Scales and zeros of all groups for one block of columns, as floats.
class Numbers {
 public:
  Numbers(const PackedWeight& w, std::int64_t first, std::int64_t columns)
      : scales_(static_cast<std::size_t>(w.groups * block), 0), zeros_(scales_) {
    for (std::int64_t g = 0; g < w.groups; ++g)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t from = g * w.n + first + j;
        const auto to = static_cast<std::size_t>(g * block + j);
        scales_[to] = load_float(w.scales, w.scale_dtype, from);
        if (w.offset == Offset::value) zeros_[to] = load_float(w.zeros, w.scale_dtype, from);
        if (w.offset == Offset::zero) zeros_[to] = static_cast<float>(static_cast<const std::int32_t*>(w.zeros)[from]);
      }
  }
  const float* scales(std::int64_t group) const { return scales_.data() + group * block; }
  float* zeros(std::int64_t group) { return zeros_.data() + group * block; }
  GroupNumbers of(const Row& row) const {
    return {scales(row.group), zeros_.data() + row.group * block, static_cast<float>(1 << (row.bits - 1))};
  }

 private:
  std::vector<float> scales_, zeros_;
};

/// Calls body(first column, columns) for every block on the caller's threads.
template <class Body>
void for_blocks(const PackedWeight& w, const Parallel& parallel, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, w.k * block));
  parallel_for(parallel, (w.n + block - 1) / block, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) body(b * block, std::min<std::int64_t>(block, w.n - b * block));
  });
}

void read_codes(const WeightValuesPasses& passes, const PackedWeight& w, const Row& row, std::int64_t first,
                std::int64_t columns, std::int32_t* codes) {
  const std::uint32_t* const low = w.words + row.word * w.n + first;
  passes.codes(low, row.straddles() ? low + w.n : nullptr, row.bit, row.bits, columns, codes);
}

void write_codes(const WeightValuesPasses& passes, const PackedWeight& w, const Row& row, std::int64_t first,
                 std::int64_t columns, const std::int32_t* codes, std::uint32_t* words) {
  std::uint32_t* const low = words + row.word * w.n + first;
  passes.put(codes, row.bit, row.bits, columns, low, row.straddles() ? low + w.n : nullptr);
}

Status open(const WeightValuesPasses& passes, const WeightOnlyPasses& floats, const PackedWeight& w, void* values,
            Dtype dtype, const Parallel& parallel) {
  const Status checked = check_weight(w);
  if (checked != Status::ok) return checked;
  if (!is_float(dtype)) return Status::bad_dtype;
  for_blocks(w, parallel, [&](std::int64_t first, std::int64_t columns) {
    const Numbers numbers(w, first, columns);
    std::int32_t codes[block];
    float wide[block];
    for_rows(w, [&](const Row& row) {
      read_codes(passes, w, row, first, columns, codes);
      passes.values(codes, w.offset, numbers.of(row), columns, wide);
      floats.results(wide, nullptr, columns, static_cast<char*>(values) + row_bytes(dtype, row.input * w.n + first),
                     dtype);
    });
  });
  return Status::ok;
}

std::int64_t word_rows(const PackedWeight& w) {
  std::int64_t rows = 0;
  for (int r = 0; r < w.run_count; ++r) rows += run_words(w.runs[r].bits, w.runs[r].rows);
  return rows;
}

Status pack(const WeightValuesPasses& passes, const PackedWeight& w, const float* values, const CodeRounding& rounding,
            std::uint32_t* words, const Parallel& parallel) {
  const Status checked = check_weight(w);
  if (checked != Status::ok) return checked;
  const std::int64_t rows = word_rows(w);
  for_blocks(w, parallel, [&](std::int64_t first, std::int64_t columns) {
    for (std::int64_t i = 0; i < rows; ++i)
      std::memset(words + i * w.n + first, 0, static_cast<std::size_t>(4 * columns));
    const Numbers numbers(w, first, columns);
    std::int32_t codes[block];
    float at[block];
    for_rows(w, [&](const Row& row) {
      const std::int64_t element = row.input * w.n + first;
      passes.positions(values + element, w.offset, numbers.of(row), columns, at);
      if (rounding.at_random)
        passes.at_random(at, 0, row.top(), rounding.random, element, columns, codes);
      else
        passes.nearest(at, row.top(), columns, codes);
      write_codes(passes, w, row, first, columns, codes, words);
    });
  });
  return Status::ok;
}

/// The zeros of a block after a step whose directions add up to `sums` in each group of `counts` rows.
void move_zeros(const WeightValuesPasses& passes, const PackedWeight& w, const WeightStep& o, std::int64_t first,
                std::int64_t columns, const std::vector<float>& sums, const std::vector<std::int64_t>& counts,
                const std::vector<int>& bits, Numbers& numbers) {
  std::int32_t whole[block];
  float moved[block];
  for (std::int64_t g = 0; g < w.groups; ++g) {
    const auto count = static_cast<float>(counts[static_cast<std::size_t>(g)]);
    if (count == 0) continue;
    const float* const s = numbers.scales(g);
    float* const z = numbers.zeros(g);
    const std::int64_t at = g * w.n + first;
    for (std::int64_t j = 0; j < columns; ++j) {
      const float change = o.rate * (sums[static_cast<std::size_t>(g * block + j)] / count);
      moved[j] = w.offset == Offset::value ? z[j] + change : s[j] == 0 ? z[j] : z[j] + change / s[j];
    }
    if (w.offset == Offset::value) {
      for (std::int64_t j = 0; j < columns; ++j) {
        if (w.scale_dtype == Dtype::f32) {
          z[j] = static_cast<float*>(o.zeros)[at + j] = moved[j];
          continue;
        }
        const bool half = w.scale_dtype == Dtype::f16;
        const std::uint16_t code = half ? f16_from_float(moved[j]) : bf16_from_float(moved[j]);
        static_cast<std::uint16_t*>(o.zeros)[at + j] = code;
        z[j] = half ? float_from_f16(code) : float_from_bf16(code);
      }
      continue;
    }
    const auto top = static_cast<float>(1 << bits[static_cast<std::size_t>(g)]);
    passes.at_random(moved, 1, top, o.random, w.k * w.n + at, columns, whole);
    for (std::int64_t j = 0; j < columns; ++j) {
      static_cast<std::int32_t*>(o.zeros)[at + j] = whole[j];
      z[j] = static_cast<float>(whole[j]);
    }
  }
}

Status step(const WeightValuesPasses& passes, const PackedWeight& w, const WeightStep& o, const Parallel& parallel) {
  const Status checked = check_weight(w);
  if (checked != Status::ok) return checked;
  if (!is_float(o.grad_dtype) || (o.l != nullptr && o.moments != Dtype::f32 && o.moments != Dtype::bf16))
    return Status::bad_dtype;
  const bool moves_zeros = o.moves_zeros && w.offset != Offset::none;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(w.groups), 0);
  std::vector<int> bits(counts.size(), 1);
  for_rows(w, [&](const Row& row) {
    ++counts[static_cast<std::size_t>(row.group)];
    bits[static_cast<std::size_t>(row.group)] = row.bits;
  });
  std::atomic<bool> enough{true};
  for_blocks(w, parallel, [&](std::int64_t first, std::int64_t columns) {
    // Zeros move before the codes, and all rows of a group before its zeros: the weights wait here.
    auto* const moved = static_cast<float*>(workspace(static_cast<std::size_t>(4 * block * (w.k + 1)), Buffer::tile));
    if (moved == nullptr) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    Numbers numbers(w, first, columns);
    std::vector<float> sums(moves_zeros ? static_cast<std::size_t>(w.groups * block) : 0, 0);
    std::int32_t codes[block];
    float u[block], at[block];
    std::int64_t i = 0;
    for_rows(w, [&](const Row& row) {
      const std::int64_t element = row.input * w.n + first;
      float* const to = moved + block * i++;
      read_codes(passes, w, row, first, columns, codes);
      passes.values(codes, w.offset, numbers.of(row), columns, to);
      passes.directions(o.grad, o.grad_dtype, o.l, o.s, o.moments, o.adam, o.random, element, columns, u);
      passes.move(to, u, o.rest == nullptr ? nullptr : o.rest + element, o.adam, o.rate, columns);
      if (moves_zeros) passes.add(u, columns, sums.data() + row.group * block);
    });
    if (moves_zeros) move_zeros(passes, w, o, first, columns, sums, counts, bits, numbers);
    i = 0;
    for_rows(w, [&](const Row& row) {
      const std::int64_t element = row.input * w.n + first;
      const float* const from = moved + block * i++;
      passes.positions(from, w.offset, numbers.of(row), columns, at);
      if (o.rest == nullptr)
        passes.at_random(at, 0, row.top(), o.random, element, columns, codes);
      else
        passes.nearest(at, row.top(), columns, codes);
      write_codes(passes, w, row, first, columns, codes, o.words);
      if (o.rest == nullptr) return;
      passes.values(codes, w.offset, numbers.of(row), columns, at);
      passes.keep_rest(from, at, o.random, element, columns, o.rest + element);
    });
  });
  return enough.load() ? Status::ok : Status::out_of_memory;
}

template <const WeightValuesPasses& passes, const WeightOnlyPasses& floats>
constexpr WeightValuesKernel values_kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          [](const PackedWeight& w, void* values, Dtype dtype, const Parallel& parallel) {
            return open(passes, floats, w, values, dtype, parallel);
          },
          [](const PackedWeight& w, const float* values, const CodeRounding& rounding, std::uint32_t* words,
             const Parallel& parallel) { return pack(passes, w, values, rounding, words, parallel); },
          [](const PackedWeight& w, const WeightStep& o, const Parallel& parallel) {
            return step(passes, w, o, parallel);
          }};
}

}  // namespace
}  // namespace cpu

Table<WeightValuesKernel> weight_values_table() {
  static const WeightValuesKernel best_first[] = {
#if defined(BIE_X86)
    cpu::values_kernel<cpu::avx2::weight_values_passes, cpu::avx2::weight_only_passes>("weight_values_avx2", Isa::avx2),
#endif
    cpu::values_kernel<cpu::plain::weight_values_passes, cpu::plain::weight_only_passes>("weight_values_reference",
                                                                                         Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
