#include "bie/weights/file_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bie/formats/error.h"
#include "kernels/arithmetic/float_bits.h"

namespace bie::weights {
namespace {

using formats::Element;
using formats::GgufType;

bool are_floats(const GgufType& type) {
  return type.kind == GgufType::Kind::elements &&
         (type.element == Element::f32 || type.element == Element::f16 || type.element == Element::bf16);
}

kernels::Dtype dtype_of(Element element) {
  return element == Element::f32   ? kernels::Dtype::f32
         : element == Element::f16 ? kernels::Dtype::f16
                                   : kernels::Dtype::bf16;
}

}  // namespace

FileMatrix::FileMatrix(const formats::GgufFile& file, const formats::GgufTensor& tensor)
    : what_(formats::joined("GGUF file ", file.path, ": tensor ", formats::in_quotes(tensor.name))),
      type_(tensor.type),
      bytes_(tensor.bytes),
      bad_row_(std::make_shared<std::atomic<std::int64_t>>(-1)) {
  if (tensor.sizes.size() != 2)
    throw formats::Error(formats::joined(what_, ": expected a matrix, got ", formats::listed(tensor.sizes)));
  if (!is_coded() && !are_floats(*type_))
    throw formats::Error(
        formats::joined(what_, " is ", type_->name, "; expected codes with scales, or float32, float16 or bfloat16"));
  rows_ = tensor.sizes[0];
  columns_ = tensor.sizes[1];
}

kernels::WeightRows FileMatrix::coded() const {
  kernels::WeightRows w{};
  w.k = columns_;
  w.n = rows_;
  w.group = type_->group;
  w.bits = type_->bits;
  w.scale_dtype = type_->halves || type_->are_signs() ? kernels::Dtype::f16 : kernels::Dtype::f32;
  w.offset = type_->zero == 0 && !type_->are_signs() ? kernels::Offset::value : kernels::Offset::none;
  w.step = type_->are_signs() ? 2 : 1;
  w.zero = type_->are_signs() ? 1 : type_->zero;
  w.open = open;
  w.file = this;
  return w;
}

void FileMatrix::open(const void* file, std::int64_t row, std::uint8_t* codes, float* scales, float* zeros) {
  const auto& self = *static_cast<const FileMatrix*>(file);
  const GgufType& type = *self.type_;
  const std::int64_t row_bytes = self.columns_ / type.weights * type.bytes, groups = self.columns_ / type.group;
  formats::gguf_row(type, self.bytes_->data + row * row_bytes, self.columns_, codes, scales, zeros);
  bool finite = true;
  for (std::int64_t g = 0; g < groups; ++g)
    finite = finite && std::isfinite(scales[g]) && (type.zero != 0 || std::isfinite(zeros[g]));
  if (!finite) self.bad_row_->store(row, std::memory_order_relaxed);
  if (type.are_signs()) std::copy_n(zeros, groups, scales);
}

void FileMatrix::check_opened() const {
  const std::int64_t row = bad_row_->load();
  if (row >= 0) throw formats::Error(formats::joined(what_, " holds NaN or infinity in a scale of row ", row));
}

void FileMatrix::read_row(std::int64_t row, float* values) const {
  if (!is_coded()) {
    const kernels::Dtype dtype = dtype_of(type_->element);
    for (std::int64_t i = 0; i < columns_; ++i)
      values[i] = kernels::load_float(bytes_->data, dtype, row * columns_ + i);
    return;
  }
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(columns_));
  std::vector<float> scales(static_cast<std::size_t>(columns_ / type_->group)), zeros(scales.size());
  open(this, row, codes.data(), scales.data(), zeros.data());
  const kernels::WeightRows w = coded();
  for (std::int64_t i = 0; i < columns_; ++i) {
    const auto g = static_cast<std::size_t>(i / type_->group);
    const int q = codes[static_cast<std::size_t>(i)];
    if (w.offset == kernels::Offset::value) {
      const float product = scales[g] * static_cast<float>(q);
      values[i] = product - zeros[g];
    } else {
      values[i] = scales[g] * static_cast<float>(w.step * q - w.zero);
    }
  }
}

}  // namespace bie::weights
