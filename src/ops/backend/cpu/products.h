// Parts of the CPU's products that tuning and the backward passes use too.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "bie/kernels/gemm.h"
#include "ops/backend/products.h"

namespace bie::ops::cpu {

/// The table for operands in codes of this type: bits, s8 or s4.
kernels::GemmTable gemm_table(kernels::Dtype code);

std::unique_ptr<OutputGrad> output_grad(const char* op, const at::Tensor& g);

}  // namespace bie::ops::cpu
