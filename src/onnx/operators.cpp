// The table of the operators that a net can have, each with the attributes that its lowering knows.
#include <algorithm>
#include <charconv>
#include <string_view>

#include "onnx/lowering.h"

namespace bie::onnx {
namespace {

// "axes<13": an attribute before version 13 of the operators, an input from then on; "start>=15": one from version 15
// on. A few are known and change nothing
// here: saturate, round_mode and precision are of float8 and of the scale's arithmetic, momentum, ratio and seed of
// training, storage_order of a second output.
constexpr Operator operators[] = {
    {"Add", lower_add, "", fold_arithmetic},
    {"AveragePool", lower_average_pool,
     "auto_pad ceil_mode>=10 count_include_pad dilations>=19 kernel_shape pads strides"},
    {"BatchNormalization", lower_batch_norm, "epsilon momentum spatial<9 training_mode>=14"},
    {"Cast", lower_cast, "to saturate>=19 round_mode>=24", lower_cast},
    {"Clip", lower_clip, "min<11 max<11"},
    {"Concat", lower_concat, "axis", lower_concat},
    {"Constant", lower_constant, "value value_float>=12 value_floats>=12 value_int>=12 value_ints>=12", lower_constant},
    {"Conv", lower_conv, "auto_pad dilations group kernel_shape pads strides"},
    {"DequantizeLinear", lower_dequantize, "axis>=13 block_size>=21 output_dtype>=23", lower_dequantize, true},
    {"Div", lower_div, "", fold_arithmetic},
    {"Dropout", lower_same, "ratio<12 seed>=12", lower_same, true},
    {"Elu", lower_elu, "alpha"},
    {"Equal", lower_compare, ""},
    {"Erf", lower_erf, ""},
    {"Flatten", lower_flatten, "axis", nullptr, true},
    {"Gather", lower_gather, "axis", lower_gather},
    {"Gelu", lower_gelu, "approximate"},
    {"Gemm", lower_gemm, "alpha beta transA transB"},
    {"GlobalAveragePool", lower_global_average_pool, ""},
    {"GlobalMaxPool", lower_global_max_pool, ""},
    {"Greater", lower_compare, ""},
    {"GreaterOrEqual", lower_compare, ""},
    {"HardSigmoid", lower_hard_sigmoid, "alpha beta"},
    {"HardSwish", lower_hard_swish, ""},
    {"Identity", lower_same, "", lower_same, true},
    {"LayerNormalization", lower_layer_norm, "axis epsilon stash_type"},
    {"LeakyRelu", lower_leaky_relu, "alpha"},
    {"Less", lower_compare, ""},
    {"LessOrEqual", lower_compare, ""},
    {"MatMul", lower_mat_mul, ""},
    {"MaxPool", lower_max_pool, "auto_pad ceil_mode>=10 dilations>=10 kernel_shape pads storage_order>=8 strides",
     nullptr, true},
    {"Mul", lower_mul, "", fold_arithmetic},
    {"PRelu", lower_prelu, ""},
    {"Pad", lower_pad, "mode pads<11 value<11"},
    {"Pow", lower_pow, ""},
    {"QuantizeLinear", lower_quantize, "axis>=13 block_size>=21 output_dtype>=21 precision>=23 saturate>=19"},
    {"ReduceMax", lower_reduce_max, "axes<18 keepdims noop_with_empty_axes>=18"},
    {"ReduceMean", lower_reduce_mean, "axes<18 keepdims noop_with_empty_axes>=18"},
    {"Relu", lower_relu, ""},
    {"Reshape", lower_reshape, "allowzero>=14", lower_reshape, true},
    {"Shape", lower_shape, "start>=15 end>=15", lower_shape, true},
    {"Sigmoid", lower_sigmoid, ""},
    {"Slice", lower_slice, "axes<10 ends<10 starts<10", lower_slice},
    {"Softmax", lower_softmax, "axis"},
    {"Softplus", lower_softplus, ""},
    {"Split", lower_split, "axis num_outputs>=18 split<13"},
    {"Squeeze", lower_squeeze, "axes<13", lower_squeeze, true},
    {"Sub", lower_sub, "", fold_arithmetic},
    {"Tanh", lower_tanh, ""},
    {"Transpose", lower_transpose, "perm", lower_transpose, true},
    {"Unsqueeze", lower_unsqueeze, "axes<13", lower_unsqueeze, true},
    {"Where", lower_where, ""},
};

}  // namespace

const Operator* operator_of(const Node& node) {
  if (!node.domain.empty()) return nullptr;
  const auto* const found =
      std::find_if(std::begin(operators), std::end(operators), [&](const Operator& o) { return node.op == o.name; });
  return found == std::end(operators) ? nullptr : found;
}

bool knows(const Operator& op, std::string_view attribute, std::int64_t opset) {
  const std::string_view all = op.attributes;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find(' ', at), all.size());
    const std::string_view entry = all.substr(at, end - at);
    const std::size_t limit = entry.find_first_of("<>");
    at = end + 1;
    if (entry.substr(0, limit) != attribute) continue;
    if (limit == std::string_view::npos) return true;
    const bool is_first = entry[limit] == '>';
    std::int64_t version = 0;
    std::from_chars(entry.data() + limit + (is_first ? 2 : 1), entry.data() + entry.size(), version);
    return is_first ? opset >= version : opset < version;
  }
  return false;
}

}  // namespace bie::onnx
