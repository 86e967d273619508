#include "bie/weights/file_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "kernels/arithmetic/float_bits.h"
#include "weights/elements.h"

namespace bie::weights {
namespace {

using formats::Element;
using formats::GgufType;

bool are_floats(const GgufType& type) {
  return type.kind == GgufType::Kind::elements &&
         (type.element == Element::f32 || type.element == Element::f16 || type.element == Element::bf16);
}

class GgufRows : public CodedRowReader {
 public:
  explicit GgufRows(const formats::GgufTensor& tensor)
      : type_(*tensor.type), columns_(tensor.columns()), bytes_(tensor.bytes) {}

  void open(std::int64_t row, std::uint8_t* codes, float* scales, float* zeros) const override {
    const std::int64_t row_bytes = columns_ / type_.weights * type_.bytes, begin = row * row_bytes;
    formats::gguf_row(type_, bytes_->data + begin, columns_, codes, scales, zeros);
    if (type_.are_signs()) std::copy_n(zeros, columns_ / type_.group, scales);
    // Whoever opens all rows of a matrix, one behind the other, holds little of the file at a time.
    constexpr std::int64_t piece = 1 << 20;
    if (const std::int64_t end = (begin + row_bytes) / piece * piece; end > begin)
      formats::let_go({bytes_->data + end - piece, piece, nullptr, bytes_->is_mapped});
  }
  void open_levels(std::int64_t row, const kernels::ScaleLevels& to) const override {
    formats::gguf_levels(type_, bytes_->data + row * (columns_ / type_.weights * type_.bytes), columns_, to.a, to.b,
                         to.d, to.least);
  }
  std::shared_ptr<const formats::Bytes> bytes() const override { return bytes_; }

 private:
  const GgufType& type_;
  std::int64_t columns_;
  std::shared_ptr<const formats::Bytes> bytes_;
};

/// What the codes of a type mean.
void put_form(const GgufType& type, kernels::WeightRows* w) {
  w->group = type.group;
  w->bits = type.bits;
  w->scale_dtype = type.are_signs() ? kernels::Dtype::f16 : dtype_of(type.numbers);
  w->offset = type.zero == 0 && !type.are_signs() ? kernels::Offset::value : kernels::Offset::none;
  w->step = type.are_signs() ? 2 : 1;
  w->zero = type.are_signs() ? 1 : type.zero;
  w->super_block = type.has_levels ? type.weights : 0;
}

}  // namespace

FileMatrix::FileMatrix(std::string what, const formats::GgufTensor& tensor)
    : what_(std::move(what)), bytes_(tensor.bytes), bad_row_(std::make_shared<std::atomic<std::int64_t>>(-1)) {
  const GgufType& type = *tensor.type;
  if (tensor.sizes.size() != 2)
    throw formats::Error(formats::joined(what_, ": expected a matrix, got ", formats::listed(tensor.sizes)));
  form_.n = tensor.sizes[0];
  form_.k = tensor.sizes[1];
  if (type.kind == GgufType::Kind::codes) {
    put_form(type, &form_);
    reader_ = std::make_shared<GgufRows>(tensor);
  } else if (are_floats(type)) {
    form_.scale_dtype = dtype_of(type.element);
  } else {
    throw formats::Error(
        formats::joined(what_, " is ", type.name, "; expected codes with scales, or float32, float16 or bfloat16"));
  }
}

FileMatrix::FileMatrix(std::string what, const kernels::WeightRows& form, std::shared_ptr<const CodedRowReader> rows)
    : what_(std::move(what)),
      form_(form),
      reader_(std::move(rows)),
      bytes_(reader_->bytes()),
      bad_row_(std::make_shared<std::atomic<std::int64_t>>(-1)) {
  form_.super_block = 0;
}

kernels::WeightRows FileMatrix::coded() const {
  kernels::WeightRows w = form_;
  w.open = open;
  w.open_levels = form_.super_block == 0 ? nullptr : open_levels;
  w.file = this;
  return w;
}

void FileMatrix::open(const void* matrix, std::int64_t row, std::uint8_t* codes, float* scales, float* zeros) {
  const auto& self = *static_cast<const FileMatrix*>(matrix);
  self.reader_->open(row, codes, scales, zeros);
  const bool has_zeros = self.form_.offset == kernels::Offset::value;
  bool finite = true;
  for (std::int64_t g = 0; g < self.form_.groups(); ++g)
    finite = finite && std::isfinite(scales[g]) && (!has_zeros || std::isfinite(zeros[g]));
  if (!finite) self.bad_row_->store(row, std::memory_order_relaxed);
}

void FileMatrix::open_levels(const void* matrix, std::int64_t row, const kernels::ScaleLevels& to) {
  static_cast<const FileMatrix*>(matrix)->reader_->open_levels(row, to);
}

void FileMatrix::check_opened() const {
  const std::int64_t row = bad_row_->load();
  if (row >= 0) throw formats::Error(formats::joined(what_, " holds NaN or infinity in a scale of row ", row));
}

void FileMatrix::let_go() const { formats::let_go(*bytes_); }

void FileMatrix::read_row(std::int64_t row, float* values) const {
  if (!is_coded()) {
    // Byte by byte, as bytes that a caller hands over may lie anywhere.
    const std::int64_t first = row * columns();
    if (float_dtype() == kernels::Dtype::f32) {
      std::memcpy(values, bytes_->data + 4 * first, static_cast<std::size_t>(4 * columns()));
      return;
    }
    for (std::int64_t i = 0; i < columns(); ++i) {
      std::uint16_t half;
      std::memcpy(&half, bytes_->data + 2 * (first + i), 2);
      values[i] = float_dtype() == kernels::Dtype::f16 ? kernels::float_from_f16(half) : kernels::float_from_bf16(half);
    }
    return;
  }
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(columns()));
  std::vector<float> scales(static_cast<std::size_t>(form_.groups())), zeros(scales.size());
  open(this, row, codes.data(), scales.data(), zeros.data());
  for (std::int64_t i = 0; i < columns(); ++i) {
    const auto g = static_cast<std::size_t>(i / form_.group);
    const int q = codes[static_cast<std::size_t>(i)];
    if (form_.offset == kernels::Offset::value) {
      const float product = scales[g] * static_cast<float>(q);
      values[i] = product - zeros[g];
    } else {
      values[i] = scales[g] * static_cast<float>(form_.step * q - form_.zero);
    }
  }
}

}  // namespace bie::weights
