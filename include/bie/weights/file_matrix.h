// A matrix of a model's file, in the file's own bytes: what its numbers mean, told once for every kind of file.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "bie/formats/gguf.h"
#include "bie/formats/mapped_file.h"
#include "bie/kernels/weight_format.h"

namespace bie::weights {

/// W [rows, columns]: row-major, as files are. The bytes stay in the file's map, which this keeps open.
///
/// Codes are W = s * q - z or W = s * (step * q - zero), one s (and z) for each group of columns; plain numbers are
/// float32, float16 or bfloat16. Source: docs/spec/files.md#gguf.
class FileMatrix {
 public:
  /// @throws formats::Error naming the file and the tensor: no matrix, or a type whose numbers are not read.
  FileMatrix(const formats::GgufFile& file, const formats::GgufTensor& tensor);

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t bytes() const { return bytes_->size; }
  bool is_coded() const { return type_->kind == formats::GgufType::Kind::codes; }
  const formats::GgufType& type() const { return *type_; }
  /// The name that sentences use.
  const std::string& what() const { return what_; }

  /// The codes for `prepack_rows`, valid as long as this is. Symmetric codes, and whole numbers times a scale, have no
  /// float zero. Coded matrices alone.
  kernels::WeightRows coded() const;

  /// W[row, :] in float32, one rounding an operation.
  void read_row(std::int64_t row, float* values) const;

  /// Takes what has been read of the file out of this process; it is read again where it is wanted.
  void let_go() const { formats::let_go(*bytes_); }

  /// @throws formats::Error where a row that `coded` opened has NaN or infinity in a scale.
  void check_opened() const;

 private:
  static void open(const void* file, std::int64_t row, std::uint8_t* codes, float* scales, float* zeros);

  std::string what_;
  const formats::GgufType* type_;
  std::int64_t rows_ = 0, columns_ = 0;
  std::shared_ptr<const formats::Bytes> bytes_;
  std::shared_ptr<std::atomic<std::int64_t>> bad_row_;  ///< -1: none
};

}  // namespace bie::weights
