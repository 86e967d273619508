// Types of a model's matrices under which its file has a size and loses little.
// Source: docs/spec/language-models.md#plans-for-a-size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bie/llm/quantize.h"

namespace bie::llm {

/// A type has a price for a group of matrices, in bytes and in divergence.
struct TypeCost {
  const formats::GgufType* type;
  std::int64_t bytes;
  double divergence;  ///< nats of the last logits, the group alone having the type
};

/// For each group the index of its type: the least sum of divergences under a sum of bytes that a Lagrange multiplier
/// and changes of one or two groups after it find. Empty where no plan has so few bytes.
/// @param groups  the types of each, the smallest first.
std::vector<std::size_t> cheapest_types(const std::vector<std::vector<TypeCost>>& groups, std::int64_t bytes);

struct SizeOptions {
  ModelFormat format = ModelFormat::gguf;  ///< whose types are chosen from
  std::int64_t file_bytes = 0;             ///< of the whole file, at most
  TypePlan fixed;                          ///< embedding, head and keep, where they are set; the others are free
  Calibration text;                        ///< the divergence is measured on its first windows
  bool search = true;  ///< scales are those of a search, or of GPTQ, which begins with one; else the nearest
  /// Called between pieces of work with the share that is done; what it throws ends the work.
  std::function<void(double done)> progress;
};

struct SizePlan {
  std::vector<std::pair<std::string, const formats::GgufType*>> types;  ///< of every matrix
  std::int64_t file_bytes = 0;
  double divergence = 0;  ///< the sum over the groups, which quantised alone have so much
};

/// Measures how far the last logits move when one group of matrices alone is quantised: queries, keys and values of a
/// layer, its output, gate and up, down, the embedding, the head. From one type per group, the errors of the weights
/// tell the other types.
/// @throws what `progress` throws, and formats::Error, one sentence: what reading and rounding the model refuses, a
/// text of less than a window, a size below the smallest plan.
SizePlan plan_for_size(const ModelFile& model, const SizeOptions& options, const kernels::Parallel& parallel);

}  // namespace bie::llm
