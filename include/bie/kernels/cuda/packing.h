// Sign bits and int4 nibbles on CUDA: the bytes of bie/kernels/packing.h and bie/kernels/sign_layout.h.
#pragma once

#include <cstdint>

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/dtype.h"
#include "bie/kernels/packing.h"
#include "bie/kernels/sign_layout.h"

namespace bie::kernels::cuda {

/// Like SignPackKernel::run.
Status pack_signs(const RowsShape&, const void* x, Dtype dtype, std::int64_t row_stride, const float* bias,
                  std::uint8_t* packed, const Queue&);
Status unpack_signs(const RowsShape&, const std::uint8_t* packed, std::int8_t* signs, const Queue&);

Status pack_int4(const RowsShape&, const std::int8_t* codes, std::uint8_t* packed, const Queue&);
Status unpack_int4(const RowsShape&, const std::uint8_t* packed, std::int8_t* codes, const Queue&);

Status signs_from_layout(const SignRows&, const std::uint8_t* bytes, std::uint8_t* packed, const Queue&);
/// Rows beyond n become zeros.
Status signs_to_layout(const SignRows&, const std::uint8_t* packed, std::uint8_t* bytes, const Queue&);

}  // namespace bie::kernels::cuda
