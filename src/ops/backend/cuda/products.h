// GEMM and convolution of tensors on CUDA: panels, workspace, the row and its launch. In builds with CUDA alone; what
// calls this stands behind `if constexpr (with_cuda)`.
#pragma once

#include "ops/bridge.h"

namespace bie::ops {

/// The GPU of that number; a sentence where it cannot be used.
const kernels::cuda::Gpu& gpu_of(const char* op, int device);

/// run_gemm, run_conv2d, prepack_gemm and prepack_conv2d of bridge.h for tensors on CUDA.
void run_gemm_cuda(const char* op, const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape,
                   const Rows& x, kernels::Dtype dtype, const Quantiser& quantiser, const Weight& weight,
                   const at::Tensor& out, std::int64_t kernel_id);
void run_conv2d_cuda(const char* op, const kernels::cuda::Conv2dTable& table, const kernels::Conv2dShape& shape,
                     const at::Tensor& x, const Quantiser& quantiser, const Weight& weight, const at::Tensor& out);
at::Tensor prepack_gemm_cuda(const char* op, const kernels::cuda::GemmTable& table, const at::Tensor& weight,
                             kernels::Dtype dtype, std::int64_t n, std::int64_t k);
at::Tensor prepack_conv2d_cuda(const char* op, const kernels::cuda::Conv2dTable& table, const at::Tensor& weight,
                               kernels::Dtype dtype, const kernels::Conv2dShape& shape);

}  // namespace bie::ops
