#include "ops/backend/weight_only.h"

namespace bie::ops {

kernels::Dtype float_dtype(const at::Tensor& t) { return kernel_dtype("weight_only", "a tensor", t); }

kernels::PackedWeight packed_of(const CodedWeight& w) {
  const auto ints = [](const at::Tensor& t) {
    return t.defined() && !t.is_meta() ? t.const_data_ptr<std::int32_t>() : nullptr;
  };
  const bool meta = w.words.is_meta();
  return {w.k,
          w.n,
          w.groups,
          meta ? nullptr : static_cast<const std::uint32_t*>(w.words.const_data_ptr()),
          w.runs.data(),
          static_cast<int>(w.runs.size()),
          ints(w.group_of),
          ints(w.input_of),
          meta ? nullptr : w.scales.const_data_ptr(),
          float_dtype(w.scales),
          w.offset,
          meta || !w.zeros.defined() ? nullptr : w.zeros.const_data_ptr()};
}

void check_panels_activations(const char* op, bool of_int8, bool int8_activations) {
  const auto name = [](bool yes) { return yes ? "True" : "False"; };
  TORCH_CHECK_VALUE(of_int8 == int8_activations, op, ": panels were made with int8_activations=", name(of_int8),
                    ", the call has it ", name(int8_activations));
}

}  // namespace bie::ops
