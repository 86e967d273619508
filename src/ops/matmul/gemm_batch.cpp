#include "ops/matmul/gemm_batch.h"

#include <ATen/ExpandUtils.h>
#include <c10/util/accumulate.h>

#include <algorithm>

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

}  // namespace

BatchRows::BatchRows(const GemmBatch& batch, const at::Tensor& x) {
  const std::int64_t k = batch.shape.k;
  data = x.reshape(with_matrix(batch.x_sizes, batch.shape.m, k));
  if ((k > 1 && data.stride(-1) != 1) || (batch.shape.m > 1 && data.stride(-2) < k)) data = data.contiguous();
  stride = batch.shape.m > 1 ? data.stride(-2) : k;
  offsets = ops::offsets(batch, batch.x_sizes, data.strides());
}

std::vector<std::int64_t> GemmBatch::y_numbers() const {
  at::DimVector strides(y_sizes.size());
  std::int64_t stride = 1;
  for (std::size_t axis = strides.size(); axis-- > 0; stride *= y_sizes[axis]) strides[axis] = stride;
  return offsets(*this, y_sizes, strides);
}

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

}  // namespace bie::ops
