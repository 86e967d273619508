// The kernels of code_step, best first, and their driver: groups of rows that end with a word, blocks of columns.
#include "bie/kernels/code_step.h"

#include <algorithm>

#include "kernels/arithmetic/code_step.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace cpu {
namespace {

constexpr std::int64_t block = moment_block;

/// Scales, codes of zero, sums of a group and of its last rows, one of each for every column of a block.
struct Group {
  float scale[block], zero[block], sums[block], piece[block];

  Group(const CodeStep& o, std::int64_t group, std::int64_t first, std::int64_t columns) {
    const auto middle = static_cast<float>(1 << (o.bits - 1));
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at = group * o.n + first + j;
      float z = 0;
      if (o.offset == Offset::value) z = load_float(o.zeros, o.scale_dtype, at);
      if (o.offset == Offset::zero) z = static_cast<float>(static_cast<const std::int32_t*>(o.zeros)[at]);
      scale[j] = load_float(o.scales, o.scale_dtype, at);
      zero[j] = code_of_zero(o.offset, scale[j], z, middle);
      sums[j] = piece[j] = 0;
    }
  }

  void add_piece(std::int64_t columns) {
    for (std::int64_t j = 0; j < columns; ++j) {
      sums[j] += piece[j];
      piece[j] = 0;
    }
  }
};

void step_row(const CodeStepPasses& passes, const WeightValuesPasses& words, const CodeStep& o, std::int64_t row,
              std::int64_t first, std::int64_t columns, Group& group) {
  const std::int64_t at = row * o.n + first, bit = row * o.bits;
  const bool straddles = bit % 32 + o.bits > 32;
  std::uint32_t* const low = o.words + bit / 32 * o.n + first;
  std::uint32_t* const high = straddles ? low + o.n : nullptr;
  std::int32_t codes[block];
  float g[block], opened_l[block], opened_m[block];
  words.codes(low, high, static_cast<int>(bit % 32), o.bits, columns, codes);

  float *l = static_cast<float*>(o.l) + at, *m = static_cast<float*>(o.m) + at;
  float *largest_l = nullptr, *largest_m = nullptr;
  auto* const l8 = static_cast<std::int8_t*>(o.l) + at;
  auto* const m8 = static_cast<std::uint8_t*>(o.m) + at;
  if (o.largest != nullptr) {
    l = opened_l;
    m = opened_m;
    largest_l = o.largest + row * moment_blocks(o.n) + first / block;
    largest_m = largest_l + o.k * moment_blocks(o.n);
    passes.open_moments(l8, m8, *largest_l, *largest_m, columns, l, m);
  }
  passes.move_moments(o.grad, o.grad_dtype, o.adam, at, columns, g, l, m);
  if (o.scale_l != nullptr) passes.sum_scales(g, codes, group.zero, columns, group.piece);
  passes.move(l, m, o.adam, o.rate, group.scale, group.zero, o.top, o.random, at, columns, codes,
              o.rest == nullptr ? nullptr : o.rest + at);
  words.put(codes, static_cast<int>(bit % 32), o.bits, columns, low, high);
  if (o.largest == nullptr) return;
  *largest_l = passes.largest(l, columns);
  *largest_m = passes.largest(m, columns);
  passes.keep_moments(l, m, *largest_l, *largest_m, o.random, at, columns, l8, m8);
}

Status step(const CodeStepPasses& passes, const WeightValuesPasses& words, const CodeStep& o,
            const Parallel& parallel) {
  const Status checked = check_step(o);
  if (checked != Status::ok) return checked;
  if (o.k == 0 || o.n == 0) return Status::ok;
  const std::int64_t together = groups_of_whole_words(o);
  const std::int64_t groups = (o.k - 1) / o.group + 1, units = (groups + together - 1) / together;
  const std::int64_t blocks = moment_blocks(o.n);
  const std::int64_t rows = std::min(o.k, o.group) * together;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, rows * block));
  parallel_for(parallel, units * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t first = task % blocks * block, columns = std::min(block, o.n - first);
      const std::int64_t from = task / blocks * together, to = std::min(groups, from + together);
      for (std::int64_t g = from; g < to; ++g) {
        Group group(o, g, first, columns);
        const std::int64_t start = g * o.group, stop = o.k - start < o.group ? o.k : start + o.group;
        for (std::int64_t row = start; row < stop; ++row) {
          step_row(passes, words, o, row, first, columns, group);
          if ((row + 1 - start) % sum_rows == 0) group.add_piece(columns);
        }
        if (o.scale_l == nullptr) continue;
        group.add_piece(columns);
        for (std::int64_t j = 0; j < columns; ++j) step_scale(o, g * o.n + first + j, group.sums[j]);
      }
    }
  });
  return Status::ok;
}

template <const CodeStepPasses& passes, const WeightValuesPasses& words>
constexpr CodeStepKernel step_kernel(const char* name, Isa isa) {
  return {name, isa, nullptr,
          [](const CodeStep& o, const Parallel& parallel) { return step(passes, words, o, parallel); }};
}

}  // namespace
}  // namespace cpu

Table<CodeStepKernel> code_step_table() {
  static const CodeStepKernel best_first[] = {
#if defined(BIE_X86)
    cpu::step_kernel<cpu::avx2::code_step_passes, cpu::avx2::weight_values_passes>("code_step_avx2", Isa::avx2),
#endif
    cpu::step_kernel<cpu::plain::code_step_passes, cpu::plain::weight_values_passes>("code_step_reference",
                                                                                     Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
