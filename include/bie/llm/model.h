// A language model: its sizes and its weights, arranged for this process. Threads share it; it never changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bie/kernels/parallel.h"
#include "bie/llm/config.h"
#include "bie/llm/model_file.h"
#include "bie/weights/linear.h"

namespace bie::llm {

using weights::Arithmetic;
using Vector = std::shared_ptr<const float[]>;

/// One block. Norms of heads, those behind attention and gated unit, and those before their last products (sub-norms)
/// are null where the architecture has none.
struct LayerWeights {
  Vector attention_norm, inner_norm, query_norm, key_norm, attention_end_norm, inner_end_norm, attention_sub_norm,
      inner_sub_norm;
  weights::Linear query, key, value, output, gate, up, down;
};

class Model {
 public:
  /// Maps the files, a GGUF file or a folder, and arranges their weights.
  /// @throws formats::Error, one sentence: what open_model and read_config refuse, a tensor that is missing, misshapen
  /// or unknown; std::bad_alloc.
  Model(const std::string& path, Arithmetic arithmetic, const kernels::Parallel& parallel);
  /// Files that are open already.
  Model(ModelFile file, Arithmetic arithmetic, const kernels::Parallel& parallel);

  const Config& config() const { return config_; }
  const ModelFile& file() const { return file_; }
  Arithmetic arithmetic() const { return arithmetic_; }
  const weights::FileMatrix& embedding() const { return *embedding_; }
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const Vector& output_norm() const { return output_norm_; }
  const weights::Linear& head() const { return head_; }
  /// A model that ranks documents has one, whose outputs are scores; null in others.
  const weights::Linear* classifier() const { return classifier_ ? &*classifier_ : nullptr; }
  /// Numbers that were trained, and what the arranged weights take.
  std::int64_t parameters() const { return parameters_; }
  std::int64_t weight_bytes() const { return weight_bytes_; }

 private:
  ModelFile file_;
  Config config_;
  Arithmetic arithmetic_;
  std::unique_ptr<weights::FileMatrix> embedding_;
  std::vector<LayerWeights> layers_;
  Vector output_norm_;
  weights::Linear head_;
  std::optional<weights::Linear> classifier_;
  std::int64_t parameters_ = 0, weight_bytes_ = 0;
};

}  // namespace bie::llm
