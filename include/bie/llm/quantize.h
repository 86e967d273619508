// Language models with smaller weights. Source: docs/spec/files.md#writing; docs/language-models.md#quantise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"
#include "bie/llm/importance.h"
#include "bie/llm/model_file.h"

namespace bie::llm {

/// Which type each matrix gets. Vectors stay as they are.
struct TypePlan {
  const formats::GgufType* type = nullptr;       ///< of all that nothing below names; null: all are named
  const formats::GgufType* embedding = nullptr;  ///< null: as all
  const formats::GgufType* head = nullptr;
  /// By GGUF's name of a tensor; * stands for any letters, ? for one. The first that fits counts.
  std::vector<std::pair<std::string, const formats::GgufType*>> keep;
  bool fit = false;  ///< where rows are no whole blocks of a type, take the next best one
};

/// {"plan": [{"name": MATRIX, "type": TYPE}, ...]} of JSON, other keys aside, as entries of TypePlan::keep.
/// @throws formats::Error, one sentence.
std::vector<std::pair<std::string, const formats::GgufType*>> planned_types(const std::string& json);

/// GPTQ's text: docs/spec/language-models.md#gptq-on-the-grid-of-a-type.
struct Calibration {
  std::vector<std::int32_t> tokens;
  std::int64_t window = 0;  ///< texts of so many tokens, whole ones alone
};

/// The kinds of output.
enum class ModelFormat : std::uint8_t {
  gguf,    ///< a file; types of GGUF
  folder,  ///< of bie: groups of codes of any width, of the embedding too, and plain numbers
  gptq,    ///< a folder as GPTQ's: linears of 2, 3, 4 and 8 bits with whole zeros, embedding and head of plain numbers
};

struct QuantizeOptions {
  TypePlan plan;
  ModelFormat format = ModelFormat::gguf;
  bool write = true;  ///< else what would be written is told alone
  /// If it is set, each group's scale has the least error among several, weighted by the importance of a matrix's
  /// columns, or by 1 for a matrix that is not in it; null: each number becomes the nearest of its block.
  const Importance* importance = nullptr;
  /// If it is set, codes are GPTQ's, layer by layer.
  const Calibration* gptq = nullptr;
  /// Called between pieces of work, with the share that is done and what comes next; what it throws ends the work.
  std::function<void(double done, const std::string& next)> progress;

  /// Whether finished matrices stay in OUT.parts until all is written, so that the same call goes on from there.
  bool keeps_parts() const { return gptq != nullptr || importance != nullptr || format != ModelFormat::gguf; }
};

struct Quantized {
  std::int64_t file_bytes = 0;
  std::int64_t bytes = 0;                                  ///< of all tensors
  std::int64_t weights = 0;                                ///< numbers in them
  std::vector<std::pair<std::string, std::string>> plan;   ///< name and type of each matrix, in the file's order
  std::vector<std::pair<std::string, std::string>> unfit;  ///< matrices that got another type than was asked for
  double bits_a_weight() const { return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights); }
};

/// Writes a model, a GGUF file or a folder, with matrices of the planned types; codes are opened first.
/// @param out  is replaced when all is written; a folder must be empty or not there.
/// @throws what `progress` throws, and formats::Error, one sentence: a type that the format does not hold, importance
/// of another number of columns, rows that fit no block where `fit` is not set, a pattern that fits no matrix, a head
/// that is the embedding, NaN among weights, what `convert`, the readers and the writers of folders refuse.
Quantized quantize(const ModelFile& model, const std::string& out, const QuantizeOptions& options,
                   const kernels::Parallel& parallel);

}  // namespace bie::llm
