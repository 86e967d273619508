// Embeddings of low-bit rows: lookups and the gradients of the rows that were used (docs/spec/embedding.md).
#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <functional>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/embeddings.h"
#include "ops/dispatcher.h"
#include "ops/embedding/table.h"
#include "ops/layer/autograd.h"
#include "ops/registration.h"
#include "ops/weight_only/words.h"

namespace bie::ops {
namespace {

using OptInt = std::optional<std::int64_t>;
using OptDtype = std::optional<at::ScalarType>;

void check_indices(const char* op, const at::Tensor& indices) {
  const at::ScalarType type = indices.scalar_type();
  TORCH_CHECK_TYPE(type == at::kInt || type == at::kLong, op, ": indices: expected int32 or int64, got ", type);
}

/// The padding row counted from 0, or -1 where there is none.
std::int64_t padding_of(const char* op, OptInt padding_idx, std::int64_t rows) {
  if (!padding_idx) return -1;
  TORCH_CHECK_VALUE(*padding_idx >= -rows && *padding_idx < rows, op, ": padding_idx is ", *padding_idx,
                    ", the table has ", rows, " rows");
  return *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
}

void check_output_dtype(const char* op, at::ScalarType dtype) {
  TORCH_CHECK_TYPE(is_float_type(dtype), op, ": dtype: expected float32, bfloat16 or float16, got ", dtype);
}

c10::SymDimVector with_last(const at::Tensor& indices, std::int64_t dim, std::size_t dropped = 0) {
  c10::SymDimVector sizes(indices.sym_sizes());
  sizes.resize(sizes.size() - dropped);
  sizes.push_back(dim);
  return sizes;
}

/// The leaf that the rows' gradient goes to: [rows, dim], not in a traced graph, which knows no sparse gradients.
void check_row_anchor(const char* op, const at::Tensor& anchor, const at::Tensor& indices, std::int64_t rows,
                      std::int64_t dim) {
  check_float(op, "anchor", anchor);
  TORCH_CHECK_VALUE(anchor.dim() == 2 && anchor.size(0) == rows && anchor.size(1) == dim, op, ": anchor: expected [",
                    rows, ", ", dim, "], got ", anchor.sizes());
  TORCH_CHECK(!indices.unsafeGetTensorImpl()->is_python_dispatch(), op,
              ": an embedding cannot be trained inside a compiled graph, its gradient is sparse; run the layer under "
              "torch.compiler.disable");
}

/// (rows, sums [rows, dim] float32) of g [count, dim], which the indices say the rows of; times scale of each row.
std::tuple<at::Tensor, at::Tensor> row_sums(const at::Tensor& g, const at::Tensor& indices, const at::Tensor& scale,
                                            std::int64_t padding) {
  at::Tensor index = indices, up = g.to(at::kFloat);
  if (padding >= 0) {
    const at::Tensor kept = index.ne(padding).nonzero().squeeze(1);
    index = index.index_select(0, kept);
    up = up.index_select(0, kept);
  }
  if (scale.defined()) up = up * scale.index_select(0, index).unsqueeze(1);
  const auto [rows, places, counts] = at::_unique2(index, /*sorted=*/true, /*return_inverse=*/true);
  at::Tensor sums = at::zeros({rows.numel(), g.size(1)}, up.options());
  sums.index_add_(0, places, up);
  return {rows, sums};
}

/// Parameters of a call, and what its backward pass needs.
struct Lookup {
  const char* op;
  std::int64_t rows, dim;
  OptInt padding_idx;
  bool is_bag = false;
};

/// Forward: y = compute(). Backward: the sparse gradient of the anchor.
struct LookupFunction : torch::autograd::Function<LookupFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& anchor, const at::Tensor& indices,
                            const OptTensor& scale, const Lookup& call, const std::function<at::Tensor()>& compute) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({indices, value_or_none(scale)});
    ctx->saved_data["rows"] = call.rows;
    ctx->saved_data["is_bag"] = call.is_bag;
    ctx->saved_data["padding_idx"] = padding_of(call.op, call.padding_idx, call.rows);
    ctx->saved_data["dtype"] = static_cast<std::int64_t>(anchor.scalar_type());
    return compute();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    refuse_double_backward("embedding");
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    at::Tensor g = grads[0];
    if (ctx->saved_data.at("is_bag").toBool()) g = g.unsqueeze(1).expand({g.size(0), saved[0].size(1), g.size(1)});
    const std::int64_t rows = ctx->saved_data.at("rows").toInt(), padding = ctx->saved_data.at("padding_idx").toInt();
    const at::Tensor scale = saved[1].defined() ? saved[1].reshape({-1}).to(at::kFloat) : saved[1];
    const auto [used, sums] =
        row_sums(g.reshape({saved[0].numel(), g.size(-1)}), saved[0].reshape({-1}).to(at::kLong), scale, padding);
    const auto dtype = static_cast<at::ScalarType>(ctx->saved_data.at("dtype").toInt());
    at::Tensor sparse = at::_sparse_coo_tensor_unsafe(used.unsqueeze(0), sums.to(dtype), {rows, g.size(-1)},
                                                      sums.options().dtype(dtype).layout(at::kSparse));
    sparse._coalesced_(true);
    return {sparse, {}, {}, {}, {}};
  }
};

template <class Compute>
at::Tensor differentiated(const Lookup& call, const at::Tensor& indices, const OptTensor& scale,
                          const OptTensor& anchor, const Compute& compute) {
  if (is_there(anchor)) check_row_anchor(call.op, *anchor, indices, call.rows, call.dim);
  if (needs_graph(call.op, {value_or_none(anchor)}))
    return LookupFunction::apply(*anchor, indices, scale, call, std::function<at::Tensor()>(compute));
  const at::AutoDispatchBelowADInplaceOrView below;
  return compute();
}

// binary_embedding

using BinarySignature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t, OptInt,
                                   OptDtype, const OptTensor&);

at::Tensor empty_binary(const char* op, const at::Tensor& indices, const at::Tensor& weight, const at::Tensor& scale,
                        std::int64_t dim, OptInt padding_idx, OptDtype dtype) {
  check_indices(op, indices);
  check_table(op, weight, dim);
  TORCH_CHECK_TYPE(weight.scalar_type() == at::kByte, op, ": the weight: expected uint8 of packed signs, got ",
                   weight.scalar_type());
  check_float(op, "scale", scale);
  TORCH_CHECK_VALUE(scale.sym_numel() == weight.sym_size(0), op,
                    ": scale: expected one number for each row of the weight, which is ", weight.sym_sizes(), ", got ",
                    scale.sym_sizes());
  padding_of(op, padding_idx, fixed_size(weight, 0));
  check_output_dtype(op, dtype.value_or(at::kFloat));
  return at::empty_symint(with_last(indices, dim), weight.options().dtype(dtype.value_or(at::kFloat)));
}

at::Tensor binary_embedding_real(const at::Tensor& indices, const at::Tensor& weight, const at::Tensor& scale,
                                 std::int64_t dim, OptInt padding_idx, OptDtype dtype, const OptTensor&) {
  const char* op = "binary_embedding";
  at::Tensor y = empty_binary(op, indices, weight, scale, dim, padding_idx, dtype);
  check_one_device(op, {indices, weight, scale});
  const at::Tensor flat = flat_indices(op, indices, weight.size(0));
  if (y.numel() > 0)
    backend_of(op, weight)
        .embeddings.lookup(op, weight.contiguous(), scale.reshape({-1}).to(at::kFloat).contiguous(), flat,
                           padding_of(op, padding_idx, weight.size(0)), y.view({flat.numel(), dim}));
  return y;
}

at::Tensor binary_embedding_meta(const at::Tensor& indices, const at::Tensor& weight, const at::Tensor& scale,
                                 std::int64_t dim, OptInt padding_idx, OptDtype dtype, const OptTensor&) {
  check_meta("binary_embedding", "the weight", weight);
  return empty_binary("binary_embedding", indices, weight, scale, dim, padding_idx, dtype);
}

at::Tensor binary_embedding_autograd(const at::Tensor& indices, const at::Tensor& weight, const at::Tensor& scale,
                                     std::int64_t dim, OptInt padding_idx, OptDtype dtype, const OptTensor& anchor) {
  static const auto op = find_op<BinarySignature>("bie::binary_embedding");
  const Lookup call{"binary_embedding", weight.dim() > 0 ? fixed_size(weight, 0) : 0, dim, padding_idx};
  return differentiated(call, indices, scale, anchor,
                        [&] { return op.call(indices, weight, scale, dim, padding_idx, dtype, anchor); });
}

// binary_embedding_bag

using BagSignature = at::Tensor(const at::Tensor&, const at::Tensor&, OptInt, OptInt, const OptTensor&);

std::int64_t bag_dim(const at::Tensor& weight, OptInt dim) {
  return dim.value_or(weight.dim() == 2 ? fixed_size(weight, 1) * (weight.scalar_type() == at::kByte ? 8 : 1) : 0);
}

at::Tensor empty_bag(const char* op, const at::Tensor& indices, const at::Tensor& weight, std::int64_t dim,
                     OptInt padding_idx) {
  check_indices(op, indices);
  TORCH_CHECK_VALUE(indices.dim() == 2, op, ": indices: expected [bags, rows], got ", indices.sym_sizes());
  check_table(op, weight, dim);
  padding_of(op, padding_idx, fixed_size(weight, 0));
  return at::empty_symint(with_last(indices, dim, 1), weight.options().dtype(at::kFloat));
}

at::Tensor bag_real(const at::Tensor& indices, const at::Tensor& weight, OptInt embedding_dim, OptInt padding_idx,
                    const OptTensor&) {
  const char* op = "binary_embedding_bag";
  const std::int64_t dim = bag_dim(weight, embedding_dim), padding = padding_of(op, padding_idx, weight.size(0));
  const at::Tensor y = empty_bag(op, indices, weight, dim, padding_idx);
  check_one_device(op, {indices, weight});
  const at::Tensor flat = flat_indices(op, indices, weight.size(0));
  if (y.numel() == 0) return y;
  at::Tensor bits = weight.index_select(0, flat);
  bits = weight.scalar_type() == at::kByte ? unpack_signs(bits.contiguous(), dim).gt(0) : bits;
  bits = bits.view({indices.size(0), indices.size(1), dim});
  at::Tensor length = at::ones({indices.size(0)}, flat.options()) * indices.size(1);
  if (padding >= 0) {
    const at::Tensor real = indices.ne(padding);
    bits = bits.logical_and(real.unsqueeze(2));
    length = real.sum(1);
  }
  // ones >= ceil(length / 2)
  return at::where(bits.sum(1).mul(2).ge(length.unsqueeze(1)), 1.0, -1.0).to(at::kFloat);
}

at::Tensor bag_meta(const at::Tensor& indices, const at::Tensor& weight, OptInt embedding_dim, OptInt padding_idx,
                    const OptTensor&) {
  check_meta("binary_embedding_bag", "the weight", weight);
  return empty_bag("binary_embedding_bag", indices, weight, bag_dim(weight, embedding_dim), padding_idx);
}

at::Tensor bag_autograd(const at::Tensor& indices, const at::Tensor& weight, OptInt embedding_dim, OptInt padding_idx,
                        const OptTensor& anchor) {
  static const auto op = find_op<BagSignature>("bie::binary_embedding_bag");
  const Lookup call{"binary_embedding_bag", weight.dim() > 0 ? fixed_size(weight, 0) : 0,
                    bag_dim(weight, embedding_dim), padding_idx, true};
  return differentiated(call, indices, {}, anchor,
                        [&] { return op.call(indices, weight, embedding_dim, padding_idx, anchor); });
}

// weight_only_embedding

using CodedSignature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&,
                                  std::int64_t, std::int64_t, std::int64_t, OptInt, OptDtype, const OptTensor&);

at::Tensor empty_coded(const char* op, const at::Tensor& indices, const at::Tensor& qweight, const at::Tensor& scales,
                       const OptTensor& zeros, std::int64_t bits, std::int64_t dim, std::int64_t group_size,
                       OptInt padding_idx, OptDtype dtype) {
  check_indices(op, indices);
  TORCH_CHECK_TYPE(qweight.scalar_type() == at::kInt, op, ": qweight: expected int32, got ", qweight.scalar_type());
  TORCH_CHECK_VALUE(bits >= 1 && bits <= 8, op, ": bits: expected 1 ... 8, got ", bits);
  TORCH_CHECK_VALUE(dim >= 1 && qweight.dim() == 2 && qweight.sym_size(1) == (dim * bits + 31) / 32, op,
                    ": qweight is ", qweight.sym_sizes(), ", embedding_dim = ", dim, " of ", bits,
                    " bits wants [rows, ", (dim * bits + 31) / 32, "]");
  TORCH_CHECK_VALUE(group_size == -1 || group_size > 0, op, ": group_size: expected -1 or a positive number, got ",
                    group_size);
  const std::int64_t size = group_size == -1 ? dim : group_size, groups = (dim + size - 1) / size;
  check_float(op, "scales", scales);
  TORCH_CHECK_VALUE(scales.dim() == 2 && scales.sym_size(0) == qweight.sym_size(0) && scales.sym_size(1) == groups, op,
                    ": scales: expected [", qweight.sym_size(0), ", ", groups, "], got ", scales.sym_sizes());
  if (zeros.has_value()) {
    check_float(op, "zeros", *zeros);
    TORCH_CHECK_VALUE(zeros->sym_sizes() == scales.sym_sizes(), op, ": zeros: expected ", scales.sym_sizes(),
                      ", as the scales are, got ", zeros->sym_sizes());
  }
  padding_of(op, padding_idx, fixed_size(qweight, 0));
  const at::ScalarType type = dtype.value_or(scales.scalar_type());
  check_output_dtype(op, type);
  return at::empty_symint(with_last(indices, dim), qweight.options().dtype(type));
}

at::Tensor coded_real(const at::Tensor& indices, const at::Tensor& qweight, const at::Tensor& scales,
                      const OptTensor& zeros, std::int64_t bits, std::int64_t dim, std::int64_t group_size,
                      OptInt padding_idx, OptDtype dtype, const OptTensor&) {
  const char* op = "weight_only_embedding";
  at::Tensor y = empty_coded(op, indices, qweight, scales, zeros, bits, dim, group_size, padding_idx, dtype);
  check_one_device(op, {indices, qweight, scales, value_or_none(zeros)});
  const at::Tensor flat = flat_indices(op, indices, qweight.size(0));
  if (y.numel() == 0) return y;
  const std::int64_t size = group_size == -1 ? dim : group_size;
  const auto of_elements = [&](const at::Tensor& t) {
    return t.index_select(0, flat).to(at::kFloat).repeat_interleave(size, 1).narrow(1, 0, dim);
  };
  at::Tensor w = unpacked_words(qweight.index_select(0, flat), bits, dim, 1).to(at::kFloat);
  if (!zeros.has_value()) w.sub_(static_cast<double>(1 << (bits - 1)));
  w.mul_(of_elements(scales));
  if (zeros.has_value()) w.sub_(of_elements(*zeros));
  return y.copy_(w.view(y.sizes()));
}

at::Tensor coded_meta(const at::Tensor& indices, const at::Tensor& qweight, const at::Tensor& scales,
                      const OptTensor& zeros, std::int64_t bits, std::int64_t dim, std::int64_t group_size,
                      OptInt padding_idx, OptDtype dtype, const OptTensor&) {
  check_meta("weight_only_embedding", "qweight", qweight);
  return empty_coded("weight_only_embedding", indices, qweight, scales, zeros, bits, dim, group_size, padding_idx,
                     dtype);
}

at::Tensor coded_autograd(const at::Tensor& indices, const at::Tensor& qweight, const at::Tensor& scales,
                          const OptTensor& zeros, std::int64_t bits, std::int64_t dim, std::int64_t group_size,
                          OptInt padding_idx, OptDtype dtype, const OptTensor& anchor) {
  static const auto op = find_op<CodedSignature>("bie::weight_only_embedding");
  const Lookup call{"weight_only_embedding", qweight.dim() > 0 ? fixed_size(qweight, 0) : 0, dim, padding_idx};
  return differentiated(call, indices, {}, anchor, [&] {
    return op.call(indices, qweight, scales, zeros, bits, dim, group_size, padding_idx, dtype, anchor);
  });
}

}  // namespace

at::Tensor flat_indices(const char* op, const at::Tensor& indices, std::int64_t rows) {
  const at::Tensor flat = indices.reshape({-1}).to(at::kLong).contiguous();
  if (!flat.is_cpu() || flat.numel() == 0) return flat;
  const std::int64_t least = flat.min().item<std::int64_t>(), most = flat.max().item<std::int64_t>();
  TORCH_CHECK_VALUE(least >= 0 && most < rows, op, ": an index is ", least < 0 ? least : most, ", the table has ", rows,
                    " rows");
  return flat;
}

void check_table(const char* op, const at::Tensor& weight, std::int64_t dim) {
  const bool is_packed = weight.scalar_type() == at::kByte;
  TORCH_CHECK_TYPE(is_packed || weight.scalar_type() == at::kBool, op, ": the weight: expected uint8 or bool, got ",
                   weight.scalar_type());
  TORCH_CHECK_VALUE(dim >= 1 && weight.dim() == 2 && weight.sym_size(1) == (is_packed ? (dim + 7) / 8 : dim), op,
                    ": the weight is ", weight.sym_sizes(), ", embedding_dim = ", dim, " wants [rows, ",
                    is_packed ? (dim + 7) / 8 : dim, "]");
}

at::Tensor weight_only_embedding(const at::Tensor& indices, const CodedWeightTensors& table, std::int64_t embedding_dim,
                                 at::ScalarType dtype, const EmbeddingOptions& o) {
  static const auto op = find_op<CodedSignature>("bie::weight_only_embedding");
  return op.call(indices, table.qweight, table.scales, none_if_undefined(table.zeros), table.bits, embedding_dim,
                 table.group_size, o.padding_idx, dtype, none_if_undefined(o.anchor));
}

at::Tensor binary_embedding(const at::Tensor& indices, const at::Tensor& weight, const at::Tensor& scale,
                            std::int64_t embedding_dim, at::ScalarType dtype, const EmbeddingOptions& o) {
  static const auto op = find_op<BinarySignature>("bie::binary_embedding");
  return op.call(indices, weight, scale, embedding_dim, o.padding_idx, dtype, none_if_undefined(o.anchor));
}

at::Tensor binary_embedding_bag(const at::Tensor& indices, const at::Tensor& weight, std::int64_t embedding_dim,
                                const EmbeddingOptions& o) {
  static const auto op = find_op<BagSignature>("bie::binary_embedding_bag");
  return op.call(indices, weight, embedding_dim, o.padding_idx, none_if_undefined(o.anchor));
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("binary_embedding", binary_embedding_real);
  m.impl("binary_embedding_bag", bag_real);
  m.impl("weight_only_embedding", coded_real);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("binary_embedding", binary_embedding_meta);
  m.impl("binary_embedding_bag", bag_meta);
  m.impl("weight_only_embedding", coded_meta);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("binary_embedding", binary_embedding_autograd);
  m.impl("binary_embedding_bag", bag_autograd);
  m.impl("weight_only_embedding", coded_autograd);
}
