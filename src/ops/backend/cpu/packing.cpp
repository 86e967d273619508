#include "ops/backend/packing.h"

#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/torch_parallel.h"

namespace bie::ops::cpu {
namespace {

const std::uint8_t* bytes(const at::Tensor& t) { return static_cast<const std::uint8_t*>(t.const_data_ptr()); }
std::uint8_t* mutable_bytes(const at::Tensor& t) { return static_cast<std::uint8_t*>(t.mutable_data_ptr()); }

class CpuPacking final : public Packing {
  void pack_signs(const char* op, const kernels::RowsShape& shape, const Rows& x, const at::Tensor& bias,
                  const at::Tensor& packed) const override {
    const float* added = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
    check_status(op, chosen(op, kernels::sign_pack_table(), shape)
                         .run(shape, x.data.const_data_ptr(), kernel_dtype(op, "x", x.data), x.stride, added,
                              mutable_bytes(packed), torch_parallel()));
  }
  void unpack_signs(const char*, const kernels::RowsShape& shape, const at::Tensor& packed,
                    const at::Tensor& signs) const override {
    kernels::unpack_signs(shape, bytes(packed), signs.mutable_data_ptr<std::int8_t>(), torch_parallel());
  }
  void pack_int4(const char* op, const kernels::RowsShape& shape, const at::Tensor& codes,
                 const at::Tensor& packed) const override {
    check_status(op, chosen(op, kernels::int4_pack_table(), shape)
                         .run(shape, codes.const_data_ptr<std::int8_t>(), mutable_bytes(packed), torch_parallel()));
  }
  void unpack_int4(const char*, const kernels::RowsShape& shape, const at::Tensor& packed,
                   const at::Tensor& codes) const override {
    kernels::unpack_int4(shape, bytes(packed), codes.mutable_data_ptr<std::int8_t>(), torch_parallel());
  }
  void signs_from_layout(const char* op, const kernels::SignRows& rows, const at::Tensor& from,
                         const at::Tensor& packed) const override {
    check_status(op, kernels::signs_from_layout(rows, bytes(from), mutable_bytes(packed), torch_parallel()));
  }
  void signs_to_layout(const char* op, const kernels::SignRows& rows, const at::Tensor& packed,
                       const at::Tensor& to) const override {
    check_status(op, kernels::signs_to_layout(rows, bytes(packed), mutable_bytes(to), torch_parallel()));
  }
};

}  // namespace

const Packing& packing() {
  static const CpuPacking it;
  return it;
}

}  // namespace bie::ops::cpu
