// A matrix of a model's file, in the file's own bytes: what its numbers mean, told once for every kind of file.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "bie/formats/array.h"
#include "bie/formats/gguf.h"
#include "bie/kernels/dtype.h"
#include "bie/kernels/weight_format.h"

namespace bie::weights {

/// Opens rows of codes, one at a time; threads share it.
class CodedRowReader {
 public:
  virtual ~CodedRowReader() = default;
  /// Writes the codes of a row, its scales and, with Offset::value, its zeros, as kernels::WeightRows::open does.
  virtual void open(std::int64_t row, std::uint8_t* codes, float* scales, float* zeros) const = 0;
  /// Writes the factors of a row's scales where the form has super-blocks, as kernels::WeightRows::open_levels does.
  virtual void open_levels(std::int64_t /*row*/, const kernels::ScaleLevels& /*to*/) const {}
  /// The bytes that rows are opened from.
  virtual std::shared_ptr<const formats::Bytes> bytes() const = 0;
};

/// W [rows, columns]: row-major, as files are. The bytes stay in the file's map, which this keeps open.
///
/// Codes are W = s * q - z or W = s * (step * q - zero), one s (and z) for each group of columns; plain numbers are
/// float32, float16 or bfloat16. Source: docs/spec/files.md#gguf.
class FileMatrix {
 public:
  /// @param what  names the tensor in sentences.
  /// @throws formats::Error naming the tensor: no matrix, or a type whose numbers are not read.
  FileMatrix(std::string what, const formats::GgufTensor& tensor);
  /// Codes of another file.
  /// @param form  its k, n, group, bits, scale_dtype, offset, step and zero.
  FileMatrix(std::string what, const kernels::WeightRows& form, std::shared_ptr<const CodedRowReader> rows);

  std::int64_t rows() const { return form_.n; }
  std::int64_t columns() const { return form_.k; }
  std::int64_t bytes() const { return bytes_->size; }
  bool is_coded() const { return reader_ != nullptr; }
  /// Where the matrix holds plain numbers: their type and place, row-major and dense.
  kernels::Dtype float_dtype() const { return form_.scale_dtype; }
  const void* floats() const { return bytes_->data; }
  /// The name that sentences use.
  const std::string& what() const { return what_; }

  /// The codes for `prepack_rows`, valid as long as this is. Symmetric codes, and whole numbers times a scale, have no
  /// float zero. Coded matrices alone.
  kernels::WeightRows coded() const;

  /// W[row, :] in float32, one rounding an operation.
  void read_row(std::int64_t row, float* values) const;

  /// Takes what has been read of the file out of this process; it is read again where it is wanted.
  void let_go() const;

  /// @throws formats::Error where a row that `coded` opened has NaN or infinity in a scale.
  void check_opened() const;

 private:
  static void open(const void* matrix, std::int64_t row, std::uint8_t* codes, float* scales, float* zeros);
  static void open_levels(const void* matrix, std::int64_t row, const kernels::ScaleLevels& to);

  std::string what_;
  kernels::WeightRows form_{};  ///< without its functions; of plain numbers k, n and, as scale_dtype, their type
  std::shared_ptr<const CodedRowReader> reader_;  ///< null of plain numbers
  std::shared_ptr<const formats::Bytes> bytes_;
  std::shared_ptr<std::atomic<std::int64_t>> bad_row_;  ///< -1: none
};

}  // namespace bie::weights
