// Weights of packed codes by torch's operators: opened to float32, then multiplied.
#include "ops/backend/weight_only.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <vector>

#include "ops/backend/backend.h"
#include "ops/optim/diode_mix_step.h"
#include "ops/weight_only/random_tensors.h"
#include "ops/weight_only/words.h"

namespace bie::ops::cuda {
namespace {

/// What belongs to each packed row: the middle code and the largest one, [k, 1] float32.
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

class CudaWeightOnly final : public WeightOnly {
  void check_values(const char*, const CodedWeight&) const override {}

  at::Tensor prepack(const char*, const CodedWeight& w) const override {
    return at::empty({0}, w.words.options().dtype(at::kByte));
  }

  bool are_current(const char*, const at::Tensor&, const CodedWeight&) const override { return true; }

  void linear(const char* op, const Rows& x, const at::Tensor& factor, const CodedWeight& w, const at::Tensor&,
              const at::Tensor& bias, const at::Tensor& y) const override {
    at::Tensor wide = x.data.reshape({x.count, w.k}).to(at::kFloat);
    if (factor.defined()) wide = wide * factor;
    at::Tensor found = at::mm(wide, open(op, w, at::kFloat));
    if (bias.defined()) found = found + bias;
    y.view({x.count, w.n}).copy_(found);
  }

  at::Tensor open(const char*, const CodedWeight& w, at::ScalarType dtype) const override {
    return input_order(w, values_of(w, codes_of(w))).to(dtype);
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
