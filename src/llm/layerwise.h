// GPTQ over a whole model: a layer at a time, in the activations that the quantised layers before it make.
// Source: docs/spec/language-models.md#gptq-on-the-grid-of-a-type.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"
#include "bie/llm/model_file.h"
#include "llm/parts.h"

namespace bie::llm {

struct Layerwise {
  std::vector<std::int32_t> tokens;  ///< of the calibration text
  std::int64_t window = 0;           ///< texts of so many tokens; what is left behind the last whole one is not read
  /// The type of a matrix by GGUF's name.
  std::function<const formats::GgufType&(const std::string& name)> type_of;
  /// Called between pieces of work with the share that is done, 0 to 1; what it throws ends the work.
  std::function<void(double done)> progress;
};

/// Puts every matrix of a model among the parts: GPTQ's codes where its type has codes and its inputs are known, the
/// nearest ones else.
/// @throws what `progress` throws, and formats::Error, one sentence: what the model's files refuse, a tensor that is
/// missing or not expected, inputs that are NaN or infinite, a matrix that cannot be rounded to its type.
void quantize_layers(const ModelFile& model, const Layerwise& work, const Parts& parts,
                     const kernels::Parallel& parallel);

}  // namespace bie::llm
