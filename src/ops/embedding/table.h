// Checks shared by lookups in tables of low-bit rows and by DiodeMix's steps on them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bie::ops {

/// int64 [count], in range; on CUDA the lookup itself aborts the program if one is not.
at::Tensor flat_indices(const char* op, const at::Tensor& indices, std::int64_t rows);

/// Packed signs of `dim` elements, or bools.
void check_table(const char* op, const at::Tensor& weight, std::int64_t dim);

}  // namespace bie::ops
