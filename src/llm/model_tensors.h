// The tensors of a model's files by the names of GGUF: vectors, matrices and linears, each checked when it is taken.
#pragma once

#include <array>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"
#include "bie/llm/model.h"
#include "bie/weights/file_matrix.h"
#include "llm/rounded_rows.h"

namespace bie::llm {

/// A matrix whose rows are opened one at a time; threads share it.
struct OpenMatrix {
  ReadRow read;
  std::function<void()> let_go;  ///< takes what was read of the file out of this process
};

/// Takes tensors by name, checks their shapes, and knows which ones nobody took.
class ModelTensors {
 public:
  /// @param one_scale  ternary matrices of one scale are multiplied as such.
  ModelTensors(const ModelFile& file, Arithmetic arithmetic, bool one_scale, const kernels::Parallel& parallel);

  bool has(const std::string& name) const { return by_name_.count(name) > 0; }
  Vector vector(const std::string& name, std::int64_t size);
  /// NAME [rows, columns], of floats, of blocks, of ternary codes or of an embedding's codes.
  weights::FileMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns);
  /// NAME [rows, columns] of any kind, linears of codes among them.
  OpenMatrix open(const std::string& name, std::int64_t rows, std::int64_t columns);
  /// NAME.bias where the files have it, else null.
  Vector bias(const std::string& name, std::int64_t outputs);
  /// The bias of a linear, which codes carry with them.
  Vector bias_of(const std::string& name, std::int64_t outputs);
  /// NAME and, where the files have it, its bias.
  weights::Linear linear(const std::string& name, std::int64_t outputs, std::int64_t inputs);
  weights::Linear linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, const Vector& bias);

  void expect_all_taken(std::string_view architecture) const;
  void pass_over(const std::string& name) { taken_.insert(name); }
  std::int64_t parameters() const { return parameters_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  const formats::GgufTensor& take(const std::string& name, const std::vector<std::int64_t>& sizes);
  /// Null where the files have no codes under this name.
  const formats::CodedLayer* take_codes(const std::string& name, std::int64_t rows, std::int64_t columns);
  void expect_sizes(const std::string& name, const std::vector<std::int64_t>& got,
                    const std::vector<std::int64_t>& expected) const;
  std::string said(const std::string& name) const { return "the tensor " + formats::in_quotes(file_.called(name)); }
  std::string what(const std::string& name) const {
    return formats::joined(file_.kind, " ", file_.path(), ": tensor ", formats::in_quotes(file_.called(name)));
  }

  const ModelFile& file_;
  Arithmetic arithmetic_;
  bool one_scale_;
  const kernels::Parallel& parallel_;
  std::unordered_map<std::string_view, const formats::GgufTensor*> by_name_;
  std::set<std::string> taken_;
  std::int64_t parameters_ = 0, bytes_ = 0;
};

/// A linear of a layer: its name behind "blk.N.", its place and its sizes.
struct LinearPart {
  const char* name;
  weights::Linear LayerWeights::*linear;
  std::int64_t outputs, inputs;
};
std::array<LinearPart, 7> linear_parts(const Config& config);

/// Norms of a layer; its linears are empty.
LayerWeights norms_of_layer(ModelTensors& tensors, const Config& config, std::int64_t index);

/// "blk.N."
std::string layer_prefix(std::int64_t index);

}  // namespace bie::llm
