#include "ops/matmul/gemm_batch.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "ops/backend/cpu/torch_parallel.h"

namespace bie::ops {
namespace {

at::DimVector with_matrix(at::DimVector sizes, std::int64_t rows, std::int64_t columns) {
  sizes.push_back(rows);
  sizes.push_back(columns);
  return sizes;
}

/// For each product, how many elements before the matrix of an operand with these batch axes.
std::vector<std::int64_t> offsets(const GemmBatch& batch, const at::DimVector& own, at::IntArrayRef strides) {
  std::vector<std::int64_t> found(static_cast<std::size_t>(batch.count()));
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = own.size(); axis-- > 0; rest /= batch.sizes[axis])
      if (own[axis] != 1) found[i] += rest % batch.sizes[axis] * strides[axis];
  }
  return found;
}

/// The rows of x, and where the first of each product lies; copied only where they are not dense.
struct BatchRows {
  at::Tensor data;
  std::int64_t stride;  ///< elements
  std::vector<std::int64_t> offsets;
};

BatchRows rows_of_batch(const GemmBatch& batch, const at::Tensor& x) {
  const std::int64_t k = batch.shape.k;
  at::Tensor view = x.reshape(with_matrix(batch.x_sizes, batch.shape.m, k));
  if ((k > 1 && view.stride(-1) != 1) || (batch.shape.m > 1 && view.stride(-2) < k)) view = view.contiguous();
  return {view, batch.shape.m > 1 ? view.stride(-2) : k, offsets(batch, batch.x_sizes, view.strides())};
}

/// The number of the matrix of y in each product.
std::vector<std::int64_t> y_numbers(const GemmBatch& batch) {
  at::DimVector strides(batch.y_sizes.size());
  std::int64_t stride = 1;
  for (std::size_t axis = strides.size(); axis-- > 0; stride *= batch.y_sizes[axis]) strides[axis] = stride;
  return offsets(batch, batch.y_sizes, strides);
}

/// body(i) for i in [0, count): many small ones side by side, few large ones one after another on all threads.
template <class F>
void for_items(std::int64_t count, std::int64_t work, const F& body) {
  constexpr std::int64_t task_work = 1 << 18, items_a_thread = 4;
  const kernels::Parallel threads = torch_parallel();
  if (count < items_a_thread * threads.threads) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  kernels::parallel_for(threads, count, 1 + task_work / std::max<std::int64_t>(1, work),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i) body(i);
                        });
}

void run_on_cpu(const char* op, const kernels::GemmTable& table, const GemmBatch& batch, const BatchRows& rows,
                const std::vector<std::int64_t>& y_of, const Quantiser& q, const Weight& y, const at::Tensor& out) {
  const kernels::GemmShape& s = batch.shape;
  const kernels::GemmKernel& row = gemm_row(op, table, s, /*kernel_id=*/0);
  const std::int64_t matrices = c10::multiply_integers(batch.y_sizes);
  const std::int64_t panel_bytes = (static_cast<std::int64_t>(row.packed_bytes(s.n, s.k)) + 63) / 64 * 64;
  const std::int64_t y_bytes = s.n * kernels::row_bytes(y.dtype, s.k);
  const at::Tensor panels = at::empty({matrices * panel_bytes}, at::kByte);
  char* const arranged = static_cast<char*>(panels.mutable_data_ptr());
  const char* const codes = static_cast<const char*>(y.values.const_data_ptr());
  for_items(matrices, s.n * s.k, [&](std::int64_t i) {
    row.prepack(codes + i * y_bytes, s.n, s.k, arranged + i * panel_bytes, torch_parallel());
  });

  const kernels::Dtype from = kernel_dtype(op, "x", rows.data), to = out_dtype(out);
  const std::int64_t out_row = kernels::row_bytes(to, s.n);
  const char* const x = static_cast<const char*>(rows.data.const_data_ptr());
  char* const result = static_cast<char*>(out.mutable_data_ptr());
  for_items(batch.count(), s.m * s.n * s.k, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const kernels::GemmInput input = {x + kernels::row_bytes(from, rows.offsets[at]), from,
                                      kernels::row_bytes(from, rows.stride), q.bias_data(), q.step()};
    check_status(op, row.run(s, input, arranged + y_of[at] * panel_bytes,
                             {result + i * s.m * out_row, to, out_row, q.result_scale()}, torch_parallel()));
  });
}

}  // namespace

GemmBatch::GemmBatch(const at::Tensor& x, const at::Tensor& y) : shape{x.size(-2), y.size(-2), x.size(-1)} {
  const std::int64_t axes = std::max(x.dim(), y.dim()) - 2;
  const auto size = [axes](const at::Tensor& t, std::int64_t axis) {
    const std::int64_t own = axis - (axes - (t.dim() - 2));
    return own < 0 ? 1 : t.size(own);
  };
  std::int64_t last = axes;
  for (; last > 0 && size(y, last - 1) == 1; --last) shape.m *= size(x, last - 1);
  for (std::int64_t axis = 0; axis < last; ++axis) {
    x_sizes.push_back(size(x, axis));
    y_sizes.push_back(size(y, axis));
    sizes.push_back(x_sizes.back() == 1 ? y_sizes.back() : x_sizes.back());
  }
}

std::int64_t GemmBatch::count() const { return c10::multiply_integers(sizes); }

at::Tensor GemmBatch::entries(const at::Tensor& t, const at::DimVector& own, std::int64_t rows) const {
  const std::int64_t columns = t.size(-1);
  return t.reshape(with_matrix(own, rows, columns))
      .expand(with_matrix(sizes, rows, columns))
      .reshape({count(), rows, columns});
}

at::Tensor GemmBatch::reduced(const at::Tensor& grad, const at::DimVector& own, at::IntArrayRef shape_of) const {
  const std::int64_t rows = grad.size(-2), columns = grad.size(-1);
  return at::sum_to(grad.view(with_matrix(sizes, rows, columns)), with_matrix(own, rows, columns))
      .contiguous()
      .view(shape_of);
}

void run_gemm_batch(const char* op, const GemmTables& tables, const GemmBatch& batch, const at::Tensor& x,
                    const Quantiser& q, const Weight& y, const at::Tensor& out) {
  const BatchRows rows = rows_of_batch(batch, x);
  const std::vector<std::int64_t> y_of = y_numbers(batch);
  if (!out.is_cuda()) return run_on_cpu(op, tables.cpu, batch, rows, y_of, q, y, out);
  const kernels::GemmShape& s = batch.shape;
  const kernels::Dtype from = kernel_dtype(op, "x", rows.data);
  Weight one = y;
  for (std::int64_t i = 0; i < batch.count(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const at::Tensor data =
        at::as_strided(rows.data, {s.m, s.k}, {rows.stride, 1}, rows.data.storage_offset() + rows.offsets[at]);
    one.values = y.values.view({-1, s.n, y.values.size(-1)}).select(0, y_of[at]);
    run_gemm(op, tables, s, {data, s.m, kernels::row_bytes(from, rows.stride)}, from, q, one, out.select(0, i));
  }
}

}  // namespace bie::ops
