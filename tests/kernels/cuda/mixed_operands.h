// Operands for the tests of products of floats and codes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bie/kernels/cuda/mixed_product.h"
#include "kernels/arithmetic/float_bits.h"
#include "tests/kernels/cuda/device_memory.h"

namespace bie::kernels::test {

using cuda::MixedProduct;

#define BIE_NEEDS_MIXED_PRODUCTS() \
  BIE_NEEDS_GPU();                 \
  if (this_gpu().sm != 90) GTEST_SKIP() << "products of floats and codes are sm_90's"

inline bool convolves(MixedProduct::Kind kind) {
  return kind == MixedProduct::Kind::input_grad || kind == MixedProduct::Kind::weight_grad;
}

/// Elements of a product's operands and of its result.
struct ProductSizes {
  std::int64_t floats, codes, out;
};
inline ProductSizes sizes_of(const MixedProduct& p) {
  const Conv2dShape& s = p.shape;
  const std::int64_t image = s.batch * s.in_h * s.in_w * s.in_c, weight = s.out_c * s.taps() * s.in_c;
  switch (p.kind) {
    case MixedProduct::Kind::input_grad: return {s.batch * s.out_h() * s.out_w() * s.out_c, weight, image};
    case MixedProduct::Kind::weight_grad: return {s.batch * s.out_h() * s.out_w() * s.out_c, image, weight};
    default: return {p.rows * p.depth, p.depth * p.columns, p.rows * p.columns};
  }
}

inline MixedProduct of_matrices(MixedProduct::Kind kind, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  MixedProduct p{};
  p.kind = kind;
  p.rows = rows;
  p.columns = columns;
  p.depth = depth;
  return p;
}

/// Rounded to f16 or bf16.
inline std::vector<std::uint16_t> halves_of(const std::vector<float>& values, Dtype dtype) {
  std::vector<std::uint16_t> halves;
  for (const float value : values)
    halves.push_back(dtype == Dtype::f16 ? f16_from_float(value) : bf16_from_float(value));
  return halves;
}

/// Floats as a product takes them: rounded to 16 bits, or of f32 split into three parts.
class ProductFloats {
 public:
  /// `values` become what their dtype holds.
  ProductFloats(std::vector<float>* values, Dtype dtype) : dtype_(dtype) {
    const std::size_t bytes = 2 * values->size();
    if (dtype == Dtype::f32) {
      const DeviceBytes whole(*values);
      for (auto& part : parts_) part = std::make_unique<DeviceBytes>(bytes);
      EXPECT_EQ(cuda::split_floats(whole.as<float>(), static_cast<std::int64_t>(values->size()),
                                   {parts_[0]->get(), parts_[1]->get(), parts_[2]->get()}, default_queue),
                Status::ok);
      EXPECT_TRUE(device_is_well());
      return;
    }
    const std::vector<std::uint16_t> halves = halves_of(*values, dtype);
    for (std::size_t i = 0; i < halves.size(); ++i)
      (*values)[i] = dtype == Dtype::f16 ? float_from_f16(halves[i]) : float_from_bf16(halves[i]);
    parts_[0] = std::make_unique<DeviceBytes>(halves);
  }

  cuda::FloatParts parts() const {
    if (dtype_ != Dtype::f32) return {{parts_[0]->get(), nullptr, nullptr}, 1, dtype_};
    return {{parts_[0]->get(), parts_[1]->get(), parts_[2]->get()}, 3, Dtype::bf16};
  }

 private:
  Dtype dtype_;
  std::unique_ptr<DeviceBytes> parts_[3];
};

}  // namespace bie::kernels::test
