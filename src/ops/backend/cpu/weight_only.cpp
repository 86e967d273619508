#include "ops/backend/weight_only.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/sort.h>

#include "bie/kernels/huge_pages.h"
#include "bie/kernels/weight_only_q8.h"
#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/panels.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/optim/diode_mix_step.h"
#include "ops/tuning/dispatch_log.h"

namespace bie::ops::cpu {
namespace {

const kernels::WeightValuesKernel& values_kernel(const char* op, const CodedWeight& w) {
  return chosen(op, kernels::weight_values_table(), w.k * w.n);
}

void check_finite(const char* op, const char* name, const at::Tensor& t) {
  TORCH_CHECK_VALUE(at::isfinite(t).all().item<bool>(), op, ": ", name, " hold NaN or infinity");
}

const kernels::Table<kernels::WeightOnlyGemmKernel>& products(bool int8_activations) {
  static const auto floats = kernels::weight_only_gemm_table(), codes = kernels::weight_only_q8_table();
  return int8_activations ? codes : floats;
}

class CpuWeightOnly final : public WeightOnly {
  void check_values(const char* op, const CodedWeight& w) const override {
    check_finite(op, "scales", w.scales);
    if (w.offset == kernels::Offset::value) check_finite(op, "zeros", w.zeros);
    if (w.k == 0) return;
    const std::int64_t least = w.group_of.min().item<std::int32_t>(), most = w.group_of.max().item<std::int32_t>();
    TORCH_CHECK_VALUE(least >= 0 && most < w.groups, op, ": g_idx: expected 0 ... ", w.groups - 1, ", got ",
                      least < 0 ? least : most);
    if (w.input_of.defined())
      TORCH_CHECK_VALUE(std::get<0>(w.input_of.sort()).equal(at::arange(w.k, w.input_of.options())), op,
                        ": q_perm is not a permutation of the ", w.k, " rows");
    TORCH_CHECK_VALUE(kernels::check_weight(packed_of(w)) == kernels::Status::ok, op,
                      ": a group holds rows of two widths");
  }

  at::Tensor prepack(const char* op, const CodedWeight& w, bool int8_activations) const override {
    const kernels::GemmShape shape{1, w.n, w.k};
    const kernels::WeightOnlyGemmKernel& kernel = chosen(op, products(int8_activations), shape);
    const kernels::PackedWeight packed = packed_of(w);
    at::Tensor panels = empty_panels(w.words, kernel.packed_bytes(packed));
    if (panels.is_meta()) return panels;
    void* const to = panels_begin(panels, w.words, header(w), kernel.name);
    auto* const head = static_cast<PanelHeader*>(panels.mutable_data_ptr());
    head->version = w.version;
    kernel.prepack(packed, to, torch_parallel());
    return panels;
  }

  bool are_current(const char* op, const at::Tensor& panels, const CodedWeight& w,
                   bool int8_activations) const override {
    const PanelHeader found = header_in(op, panels);
    if (!is_aligned(panels)) return false;  // a file's bytes
    const bool of_others = kernels::find(products(!int8_activations), found.kernel) != nullptr;
    check_panels_activations(op, of_others != int8_activations, int8_activations);
    const kernels::WeightOnlyGemmKernel* const kernel = kernels::find(products(int8_activations), found.kernel);
    check_panels(op, panels, found, header(w), kernel != nullptr);
    check_panel_size(op, panels, kernel->packed_bytes(packed_of(w)));
    // A weight that counts fewer writes is a copy, as a program that was saved with its panels holds it.
    return found.version >= w.version && host_isas(op).has(kernel->isa);
  }

  bool reads_weight(const Rows&, const at::Tensor&, bool) const override { return false; }

  at::ScalarType gradient_dtype(at::ScalarType) const override { return at::kFloat; }

  void linear(const char* op, const Rows& x, const at::Tensor& factor, const CodedWeight& w, const at::Tensor& given,
              const at::Tensor& bias, bool int8_activations, const at::Tensor& y) const override {
    const at::Tensor panels = given.defined() ? given : prepack(op, w, int8_activations);
    const auto& table = products(int8_activations);
    const kernels::WeightOnlyGemmKernel& kernel = *kernels::find(table, header_in(op, panels).kernel);
    const kernels::GemmShape shape{x.count, w.n, w.k};
    log_dispatch(op, table, kernel, shape, given.defined() ? "its panels were given" : "the first that fits");
    check_status(op,
                 kernel.run(shape,
                            {x.data.const_data_ptr(), float_dtype(x.data), x.stride,
                             factor.defined() ? factor.const_data_ptr<float>() : nullptr},
                            panel_data(panels),
                            {y.mutable_data_ptr(), float_dtype(y), w.n * static_cast<std::int64_t>(y.element_size()),
                             bias.defined() ? bias.const_data_ptr<float>() : nullptr},
                            torch_parallel()));
  }

  at::Tensor open(const char* op, const CodedWeight& w, at::ScalarType dtype) const override {
    at::Tensor values = at::empty({w.k, w.n}, w.scales.options().dtype(dtype));
    kernels::prefer_huge_pages(values.mutable_data_ptr(), static_cast<std::size_t>(values.nbytes()));
    check_status(
        op, values_kernel(op, w).open(packed_of(w), values.mutable_data_ptr(), float_dtype(values), torch_parallel()));
    return values;
  }

  at::Tensor pack(const char* op, const CodedWeight& w, const at::Tensor& values, bool at_random,
                  std::uint64_t random) const override {
    check_finite(op, "values", values);
    at::Tensor words = at::empty(w.words.sizes(), w.words.options());
    check_status(op,
                 values_kernel(op, w).pack(packed_of(w), values.const_data_ptr<float>(), {at_random, random},
                                           static_cast<std::uint32_t*>(words.mutable_data_ptr()), torch_parallel()));
    return words;
  }

  void step(const char* op, const CodedWeight& w, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
            const at::Tensor& rest, const DiodeMixStep& o, bool moves_zeros) const override {
    const auto data = [](const at::Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; };
    const Stream stream(static_cast<std::uint64_t>(o.seed), static_cast<std::uint64_t>(o.stream),
                        static_cast<std::uint64_t>(o.step));
    check_status(op, values_kernel(op, w).step(
                         packed_of(w),
                         {static_cast<std::uint32_t*>(w.words.mutable_data_ptr()), data(w.zeros), grad.const_data_ptr(),
                          float_dtype(grad), data(l), data(s), l.defined() ? float_dtype(l) : kernels::Dtype::f32,
                          static_cast<std::uint16_t*>(data(rest)), adam_numbers(o), adam_rate(o, o.step), moves_zeros,
                          stream.start()},
                         torch_parallel()));
  }

  void step_places(const char* op, const at::Tensor&, const std::vector<kernels::CodeStep>& steps) const override {
    for (const kernels::CodeStep& step : steps)
      check_status(op, chosen(op, kernels::code_step_table(), step.k * step.n).step(step, torch_parallel()));
  }

  static PanelHeader header(const CodedWeight& w) { return header_of(w.n, w.k); }
};

}  // namespace

const WeightOnly& weight_only() {
  static const CpuWeightOnly it;
  return it;
}

}  // namespace bie::ops::cpu
