// Weights of packed codes. Few rows are multiplied with panels, many with the weight as floats; what DiodeMix does with
// codes is done by torch's operators.
#include "ops/backend/weight_only.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <vector>

#include "bie/kernels/cuda/code_step.h"
#include "bie/kernels/cuda/weight_only.h"
#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/backend/cuda/products.h"
#include "ops/optim/diode_mix_step.h"
#include "ops/weight_only/random_tensors.h"
#include "ops/weight_only/words.h"

namespace bie::ops::cuda {
namespace {

/// Numbers per packed row: the middle code and the largest one, [k, 1] float32.
struct RowNumbers {
  at::Tensor middle, top;

  explicit RowNumbers(const CodedWeight& w) {
    std::vector<at::Tensor> middles, tops;
    for (const kernels::BitRun& run : w.runs) {
      const auto of = [&](double value) { return at::full({run.rows, 1}, value, w.words.options().dtype(at::kFloat)); };
      middles.push_back(of(1 << (run.bits - 1)));
      tops.push_back(of((1 << run.bits) - 1));
    }
    middle = at::cat(middles);
    top = at::cat(tops);
  }
};

at::Tensor codes_of(const CodedWeight& w) {
  std::vector<at::Tensor> parts;
  std::int64_t word = 0;
  for (const kernels::BitRun& run : w.runs) {
    const std::int64_t words = kernels::run_words(run.bits, run.rows);
    if (run.rows > 0) parts.push_back(unpacked_words(w.words.narrow(0, word, words), run.bits, run.rows, 0));
    word += words;
  }
  return parts.empty() ? at::empty({0, w.n}, w.words.options()) : at::cat(parts);
}

at::Tensor words_of(const CodedWeight& w, const at::Tensor& codes) {
  std::vector<at::Tensor> parts;
  std::int64_t row = 0;
  for (const kernels::BitRun& run : w.runs) {
    if (run.rows > 0) parts.push_back(packed_words(codes.narrow(0, row, run.rows), run.bits, 0));
    row += run.rows;
  }
  return parts.empty() ? at::empty({0, w.n}, w.words.options()) : at::cat(parts);
}

at::Tensor of_rows(const CodedWeight& w, const at::Tensor& numbers) {
  return numbers.index_select(0, w.group_of).to(at::kFloat);
}

/// W of the packed rows, float32.
at::Tensor values_of(const CodedWeight& w, const at::Tensor& codes) {
  const at::Tensor s = of_rows(w, w.scales), q = codes.to(at::kFloat);
  switch (w.offset) {
    case kernels::Offset::value: return q * s - of_rows(w, w.zeros);
    case kernels::Offset::zero: return s * (q - of_rows(w, w.zeros));
    default: return s * (q - RowNumbers(w).middle);
  }
}

/// The codes that values of the packed rows would have if codes were real numbers.
at::Tensor positions_of(const CodedWeight& w, const at::Tensor& values) {
  const at::Tensor s = of_rows(w, w.scales);
  const at::Tensor shifted = w.offset == kernels::Offset::value ? values + of_rows(w, w.zeros) : values;
  const at::Tensor codes = at::where(s.eq(0), 0.0, shifted / s);
  switch (w.offset) {
    case kernels::Offset::value: return codes;
    case kernels::Offset::zero: return codes + of_rows(w, w.zeros);
    default: return codes + RowNumbers(w).middle;
  }
}

/// Rows of W in the order of the packed rows, and back.
at::Tensor packed_order(const CodedWeight& w, const at::Tensor& t) {
  return w.input_of.defined() ? t.index_select(0, w.input_of) : t;
}
at::Tensor input_order(const CodedWeight& w, const at::Tensor& t) {
  return w.input_of.defined() ? at::empty_like(t).index_copy_(0, w.input_of.to(at::kLong), t) : t;
}

at::Tensor random_of(const CodedWeight& w, std::uint64_t start) {
  return random_bits_of(start, at::arange(w.k * w.n, w.words.options().dtype(at::kLong))).view({w.k, w.n});
}

/// packed_of a weight that the kernels here take.
kernels::PackedWeight taken(const char* op, const CodedWeight& w) {
  TORCH_CHECK_VALUE(w.runs.size() <= kernels::cuda::most_weight_runs, op, ": bit_rows has ", w.runs.size(),
                    " widths of rows, at most ", kernels::cuda::most_weight_runs, " are taken on CUDA");
  return packed_of(w);
}

int most_bits(const CodedWeight& w) {
  int most = 1;
  for (const kernels::BitRun& run : w.runs)
    if (run.rows > 0) most = std::max(most, run.bits);
  return most;
}

using kernels::cuda::WeightOnlyPlan;

// Panels have no header, which could not be read without waiting; their shape tells the plan. They are [runs,
// group_chunks, bytes] with a dimension of 1 before where slots are not rows as they lie, and two for activations of 8
// bits.

at::Tensor empty_panels_of(const WeightOnlyPlan& plan, const at::Tensor& like) {
  const std::int64_t runs = kernels::cuda::weight_only_runs(plan),
                     count = std::max<std::int64_t>(1, runs * plan.group_chunks);
  const std::int64_t bytes = (kernels::cuda::weight_only_panel_bytes(plan) + count - 1) / count;
  std::vector<std::int64_t> sizes = {runs, plan.group_chunks, bytes};
  sizes.insert(sizes.begin(), (plan.ordered ? 0 : 1) + (plan.int8 ? 2 : 0), 1);
  return at::empty(sizes, like.options().dtype(at::kByte));
}

/// The plan of panels that came with a weight.
WeightOnlyPlan plan_of(const char* op, const at::Tensor& panels, const CodedWeight& w, bool int8_activations) {
  const auto refuse = [&] {
    TORCH_CHECK_VALUE(false, op, ": panels: expected what weight_only_prepack made of this weight on ",
                      w.words.device(), ", got ", panels.sizes(), " of ", panels.scalar_type(), " on ",
                      panels.device());
  };
  const std::int64_t before = panels.dim() - 3;
  if (panels.scalar_type() != at::kByte || !panels.is_contiguous() || panels.device() != w.words.device() ||
      before < 0 || before > 3)
    refuse();
  for (std::int64_t d = 0; d < before; ++d)
    if (panels.size(d) != 1) refuse();
  const bool int8 = before >= 2, ordered = before % 2 == 0;
  check_panels_activations(op, int8, int8_activations);
  const std::int64_t runs = panels.size(-3), group_chunks = panels.size(-2);
  const kernels::Dtype scale = float_dtype(w.scales);
  if (group_chunks < 1) refuse();
  WeightOnlyPlan plan =
      ordered ? kernels::cuda::ordered_plan(w.k, w.n, group_chunks * kernels::cuda::chunk_slots, most_bits(w), w.offset,
                                            scale)
              : kernels::cuda::slot_plan(w.k, w.n, runs * group_chunks, group_chunks, most_bits(w), w.offset, scale);
  plan.int8 = int8;
  if (kernels::cuda::weight_only_runs(plan) != runs || plan.group_chunks != group_chunks ||
      plan.chunks * kernels::cuda::chunk_slots < w.k ||
      static_cast<std::int64_t>(panels.nbytes()) < kernels::cuda::weight_only_panel_bytes(plan) ||
      reinterpret_cast<std::uintptr_t>(panels.const_data_ptr()) % 16 != 0)
    refuse();
  return plan;
}

/// Groups in rising order, their rows in the order of the packed rows, each group padded to whole runs of chunks: runs
/// as long as the largest group, or shorter ones where that would pad by more than an eighth.
struct Slots {
  std::vector<std::int32_t> row, group;  ///< of slots and of runs
  std::int64_t run_chunks = 1;

  Slots(const std::int32_t* group_of, std::int64_t k, std::int64_t groups) {
    constexpr std::int64_t chunk = kernels::cuda::chunk_slots;
    std::vector<std::int64_t> next(static_cast<std::size_t>(groups), 0);
    for (std::int64_t i = 0; i < k; ++i) ++next[static_cast<std::size_t>(group_of[i])];
    const auto runs_of = [&](std::int64_t rows) { return (rows + run_chunks * chunk - 1) / (run_chunks * chunk); };
    const auto slots = [&] {
      std::int64_t sum = 0;
      for (const std::int64_t rows : next) sum += runs_of(rows) * run_chunks * chunk;
      return sum;
    };
    const std::int64_t fewest = slots();
    for (const std::int64_t rows : next) run_chunks = std::max(run_chunks, (rows + chunk - 1) / chunk);
    while (run_chunks > 1 && slots() > fewest + fewest / 8) run_chunks = (run_chunks + 1) / 2;
    for (std::int64_t g = 0; g < groups; ++g) {
      std::int64_t& count = next[static_cast<std::size_t>(g)];
      const std::int64_t runs = runs_of(count);
      count = static_cast<std::int64_t>(row.size());
      group.insert(group.end(), static_cast<std::size_t>(runs), static_cast<std::int32_t>(g));
      row.resize(row.size() + static_cast<std::size_t>(runs * run_chunks * chunk), -1);
    }
    for (std::int64_t i = 0; i < k; ++i)
      row[static_cast<std::size_t>(next[static_cast<std::size_t>(group_of[i])]++)] = static_cast<std::int32_t>(i);
  }
};

/// Rows of each group where groups are that many consecutive rows, the last one possibly fewer; else 0.
std::int64_t even_size(const std::int32_t* group_of, std::int64_t k, std::int64_t groups) {
  std::int64_t size = 0;
  while (size < k && group_of[size] == 0) ++size;
  if (size == 0 || (k + size - 1) / size != groups) return 0;
  for (std::int64_t i = 0; i < k; ++i)
    if (group_of[i] != i / size) return 0;
  return size;
}

at::Tensor on_device(const std::vector<std::int32_t>& values, const at::Tensor& like) {
  at::Tensor host = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions(at::kInt));
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<std::int32_t>());
  return host.to(like.device());
}

/// Rows of 16 bits that the panels' kernels take at once; more are faster with the weight as floats, but where one
/// kernel opens it on the way.
constexpr std::int64_t few_rows = 64;

/// Rows x [m, k] of float32 as their codes times their step sizes.
at::Tensor quantised_rows(const CodedWeight& w, const at::Tensor& x) {
  const at::Tensor group = input_order(w, w.group_of).to(at::kLong);
  const auto number = [&](double value) { return at::full({}, value, x.options()); };  // no host's, which is inverted
  const at::Tensor none = at::zeros({x.size(0), w.groups}, x.options());
  const at::Tensor finite = none.index_add(1, group, x * 0).eq(0);
  at::Tensor largest = none.scatter_reduce(1, group.expand_as(x), x.abs(), "amax");
  largest = at::where(finite.logical_and(largest >= 0x1p-100), largest, 0);
  const at::Tensor inverse = at::where(largest > 0, number(127) / largest, 0);
  const at::Tensor step = at::where(finite, largest / number(127), std::nan(""));
  return (x * inverse.index_select(1, group)).round() * step.index_select(1, group);
}

class CudaWeightOnly final : public WeightOnly {
  void check_values(const char*, const CodedWeight&) const override {}

  /// Waits for the device once, to read which rows are of which group.
  at::Tensor prepack(const char* op, const CodedWeight& w, bool int8_activations) const override {
    if (w.words.is_meta()) return at::empty({0}, w.words.options().dtype(at::kByte));
    const CudaCall call(op, w.words.device());
    const at::Tensor groups = w.group_of.cpu();
    const std::int32_t* const group_of = groups.const_data_ptr<std::int32_t>();
    for (std::int64_t i = 0; i < w.k; ++i)
      TORCH_CHECK_VALUE(group_of[i] >= 0 && group_of[i] < w.groups, op, ": g_idx: expected 0 ... ", w.groups - 1,
                        ", got ", group_of[i]);
    const kernels::Dtype scale = float_dtype(w.scales);
    const std::int64_t size = even_size(group_of, w.k, w.groups);
    const bool whole = size >= w.k || (size > 0 && size % kernels::cuda::chunk_slots == 0);
    if (whole && !w.input_of.defined() && w.k > 0) {
      WeightOnlyPlan plan = kernels::cuda::ordered_plan(w.k, w.n, size, most_bits(w), w.offset, scale);
      plan.int8 = int8_activations;
      at::Tensor panels = empty_panels_of(plan, w.words);
      call(kernels::cuda::weight_only_prepack, taken(op, w), plan, kernels::cuda::WeightOnlySlots{nullptr, nullptr},
           panels.mutable_data_ptr());
      return panels;
    }
    const Slots slots(group_of, w.k, w.groups);
    const std::int64_t chunks = static_cast<std::int64_t>(slots.group.size()) * slots.run_chunks;
    WeightOnlyPlan plan = kernels::cuda::slot_plan(w.k, w.n, chunks, slots.run_chunks, most_bits(w), w.offset, scale);
    plan.int8 = int8_activations;
    at::Tensor panels = empty_panels_of(plan, w.words);
    const at::Tensor row = on_device(slots.row, w.words), group = on_device(slots.group, w.words);
    call(kernels::cuda::weight_only_prepack, taken(op, w), plan,
         kernels::cuda::WeightOnlySlots{row.const_data_ptr<std::int32_t>(), group.const_data_ptr<std::int32_t>()},
         panels.mutable_data_ptr());
    return panels;
  }

  bool are_current(const char* op, const at::Tensor& panels, const CodedWeight& w,
                   bool int8_activations) const override {
    plan_of(op, panels, w, int8_activations);
    return true;
  }

  bool reads_weight(const Rows& x, const at::Tensor& factor, bool int8_activations) const override {
    const bool by_parts = factor.defined() || x.data.scalar_type() == at::kFloat;
    return (!int8_activations && by_parts && x.count > few_rows / 3) ||
           gpu_of("weight_only_linear", x.data.device().index()).sm < 80;
  }

  at::ScalarType gradient_dtype(at::ScalarType x) const override { return x; }

  void linear(const char* op, const Rows& x, const at::Tensor& factor, const CodedWeight& w, const at::Tensor& panels,
              const at::Tensor& bias, bool int8_activations, const at::Tensor& y) const override {
    const at::ScalarType dtype = x.data.scalar_type();
    if (!panels.defined() || reads_weight(x, factor, int8_activations)) {
      const bool wide = int8_activations || factor.defined() || dtype == at::kFloat;
      at::Tensor rows = x.data.reshape({x.count, w.k}).to(wide ? at::kFloat : dtype);
      if (factor.defined()) rows = rows * factor;
      if (int8_activations) rows = quantised_rows(w, rows);
      return multiply(rows, open(op, w, rows.scalar_type()), bias, y.view({x.count, w.n}));
    }
    const CudaCall call(op, y.device());
    const WeightOnlyPlan plan = plan_of(op, panels, w, int8_activations);
    const kernels::FloatRows rows = {x.data.const_data_ptr(), float_dtype(x.data), x.stride,
                                     factor.defined() ? factor.const_data_ptr<float>() : nullptr};
    const auto bytes = y.options().dtype(at::kByte);
    const int device = static_cast<int>(y.device().index());
    if (plan.int8 || x.count <= few_rows ||
        kernels::cuda::weight_only_rounds(plan, x.count, rows, gpu_of(op, device))) {
      const at::Tensor workspace = at::empty({kernels::cuda::weight_only_workspace(plan, x.count, rows)}, bytes);
      call(
          kernels::cuda::weight_only_gemm, plan, x.count, rows, panels.const_data_ptr(),
          kernels::FloatResults{y.mutable_data_ptr(), float_dtype(y), w.n * static_cast<std::int64_t>(y.element_size()),
                                bias.defined() ? bias.const_data_ptr<float>() : nullptr},
          workspace.mutable_data_ptr());
      return;
    }
    const std::int64_t slots = plan.chunks * kernels::cuda::chunk_slots;
    const at::Tensor values = at::empty({w.n, slots}, y.options());
    call(kernels::cuda::weight_only_open_panels, plan, panels.const_data_ptr(), values.mutable_data_ptr(),
         float_dtype(values));
    at::Tensor in_slots = x.data.reshape({x.count, w.k});
    if (!plan.ordered || slots != w.k) {
      in_slots = at::empty({x.count, slots}, y.options());
      call(kernels::cuda::weight_only_slot_rows, plan, x.count, rows, panels.const_data_ptr(),
           in_slots.mutable_data_ptr(), float_dtype(in_slots));
    }
    multiply(in_slots, values.t(), bias, y.view({x.count, w.n}));
  }

  /// y = x . W + bias, rounded once.
  static void multiply(const at::Tensor& x, const at::Tensor& values, const at::Tensor& bias, at::Tensor y) {
    if (!bias.defined() && y.scalar_type() == x.scalar_type()) {
      at::mm_out(y, x, values);
      return;
    }
    at::Tensor wide = x.scalar_type() == at::kFloat ? at::mm(x, values) : at::mm(x, values, at::kFloat);
    if (bias.defined()) wide = wide + bias;
    y.copy_(wide);
  }

  at::Tensor open(const char* op, const CodedWeight& w, at::ScalarType dtype) const override {
    const CudaCall call(op, w.words.device());
    at::Tensor values = at::empty({w.k, w.n}, w.scales.options().dtype(dtype));
    call(kernels::cuda::weight_only_open, taken(op, w), values.mutable_data_ptr(), float_dtype(values));
    return values;
  }

  at::Tensor pack(const char*, const CodedWeight& w, const at::Tensor& values, bool at_random,
                  std::uint64_t random) const override {
    const at::Tensor v = positions_of(w, packed_order(w, values)), top = RowNumbers(w).top;
    return words_of(w, at_random ? rounded_at_random_of(v, 0, top, packed_order(w, random_of(w, random)))
                                 : v.round().clamp_min(0).minimum(top).to(at::kInt));
  }

  void step(const char*, const CodedWeight& w, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
            const at::Tensor& rest, const DiodeMixStep& o, bool moves_zeros) const override {
    const Stream stream(static_cast<std::uint64_t>(o.seed), static_cast<std::uint64_t>(o.stream),
                        static_cast<std::uint64_t>(o.step));
    const at::Tensor bits = random_of(w, stream.start());
    const double rate = adam_rate(o, o.step);
    at::Tensor u = grad.to(at::kFloat);
    if (l.defined()) {
      const at::Tensor a = l.to(at::kFloat) * o.beta1 + u * (1 - o.beta1),
                       b = s.to(at::kFloat) * o.beta2 + u * u * (1 - o.beta2);
      const bool wide = l.scalar_type() == at::kFloat;
      l.copy_(wide ? a : bf16_at_random_of(a, bits));
      s.copy_(wide ? b : bf16_at_random_of(b, shifted_right(bits, 16)));
      u = a / (b.sqrt() + o.eps);
    }
    at::Tensor moved = packed_order(w, u) * -rate + values_of(w, codes_of(w));
    if (rest.defined()) moved = moved + packed_order(w, rest).to(at::kFloat);
    moved = moved * (1 - o.lr * o.weight_decay);
    if (moves_zeros && w.zeros.defined()) move_zeros(w, packed_order(w, u), rate, stream.start());
    const at::Tensor v = positions_of(w, moved), top = RowNumbers(w).top;
    const at::Tensor codes = rest.defined() ? v.round().clamp_min(0).minimum(top).to(at::kInt)
                                            : rounded_at_random_of(v, 0, top, packed_order(w, bits));
    w.words.copy_(words_of(w, codes));
    if (rest.defined())
      rest.copy_(bf16_at_random_of(input_order(w, moved - values_of(w, codes)), shifted_right(bits, 48)));
  }

  void step_places(const char* op, const at::Tensor& words,
                   const std::vector<kernels::CodeStep>& steps) const override {
    const CudaCall call(op, words.device());
    call(kernels::cuda::code_steps, steps.data(), static_cast<int>(steps.size()));
  }

  static void move_zeros(const CodedWeight& w, const at::Tensor& u, double rate, std::uint64_t random) {
    const at::TensorOptions floats = u.options();
    const at::Tensor sums = at::zeros({w.groups, w.n}, floats).index_add_(0, w.group_of, u);
    const at::Tensor ones = at::full({w.k, 1}, 1.0, floats);
    const at::Tensor counts = at::zeros({w.groups, 1}, floats).index_add_(0, w.group_of, ones).clamp_min(1);
    const at::Tensor change = sums / counts * rate;
    if (w.offset == kernels::Offset::value) {
      w.zeros.copy_(w.zeros.to(at::kFloat) + change);
      return;
    }
    const at::Tensor s = w.scales.to(at::kFloat);
    const at::Tensor moved = w.zeros.to(at::kFloat) + at::where(s.eq(0), 0.0, change / s);
    const at::Tensor elements = at::arange(w.groups * w.n, w.words.options().dtype(at::kLong)) + w.k * w.n;
    const at::Tensor most = at::full({1}, 1 << w.runs[0].bits, floats);
    w.zeros.copy_(rounded_at_random_of(moved, 1, most, random_bits_of(random, elements).view({w.groups, w.n})));
  }
};

}  // namespace

const WeightOnly& weight_only() {
  static const CudaWeightOnly it;
  return it;
}

}  // namespace bie::ops::cuda
