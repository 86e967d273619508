#include "ops/backend/packing.h"

#include "bie/kernels/cuda/packing.h"
#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"

namespace bie::ops::cuda {
namespace {

const std::uint8_t* bytes(const at::Tensor& t) { return static_cast<const std::uint8_t*>(t.const_data_ptr()); }
std::uint8_t* mutable_bytes(const at::Tensor& t) { return static_cast<std::uint8_t*>(t.mutable_data_ptr()); }

class CudaPacking final : public Packing {
  void pack_signs(const char* op, const kernels::RowsShape& shape, const Rows& x, const at::Tensor& bias,
                  const at::Tensor& packed) const override {
    const float* added = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
    const CudaCall call(op, packed.device());
    call(kernels::cuda::pack_signs, shape, x.data.const_data_ptr(), kernel_dtype(op, "x", x.data), x.stride, added,
         mutable_bytes(packed));
  }
  void unpack_signs(const char* op, const kernels::RowsShape& shape, const at::Tensor& packed,
                    const at::Tensor& signs) const override {
    const CudaCall call(op, packed.device());
    call(kernels::cuda::unpack_signs, shape, bytes(packed), signs.mutable_data_ptr<std::int8_t>());
  }
  void pack_int4(const char* op, const kernels::RowsShape& shape, const at::Tensor& codes,
                 const at::Tensor& packed) const override {
    const CudaCall call(op, codes.device());
    call(kernels::cuda::pack_int4, shape, codes.const_data_ptr<std::int8_t>(), mutable_bytes(packed));
  }
  void unpack_int4(const char* op, const kernels::RowsShape& shape, const at::Tensor& packed,
                   const at::Tensor& codes) const override {
    const CudaCall call(op, packed.device());
    call(kernels::cuda::unpack_int4, shape, bytes(packed), codes.mutable_data_ptr<std::int8_t>());
  }
  void signs_from_layout(const char* op, const kernels::SignRows& rows, const at::Tensor& from,
                         const at::Tensor& packed) const override {
    const CudaCall call(op, from.device());
    call(kernels::cuda::signs_from_layout, rows, bytes(from), mutable_bytes(packed));
  }
  void signs_to_layout(const char* op, const kernels::SignRows& rows, const at::Tensor& packed,
                       const at::Tensor& to) const override {
    const CudaCall call(op, packed.device());
    call(kernels::cuda::signs_to_layout, rows, bytes(packed), mutable_bytes(to));
  }
};

}  // namespace

const Packing& packing() {
  static const CudaPacking it;
  return it;
}

}  // namespace bie::ops::cuda
