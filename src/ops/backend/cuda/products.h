// Parts of CUDA's products that tuning and the backward passes use too.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "bie/kernels/cuda/gemm.h"
#include "ops/backend/products.h"

namespace bie::ops::cuda {

/// The GPU of that number; throws where it cannot be used.
const kernels::cuda::Gpu& gpu_of(const char* op, int device);

/// The table for operands in codes of this type: bits, s8 or s4.
kernels::cuda::GemmTable gemm_table(kernels::Dtype code);

std::unique_ptr<OutputGrad> output_grad(const char* op, const at::Tensor& g);

}  // namespace bie::ops::cuda
