// Names of runs that quantise a model.
#pragma once

#include <string>

#include "bie/llm/quantize.h"

namespace bie::llm {

/// Tells runs apart whose parts would differ: the model's files, the plan, and the text or the importance.
std::string run_name(const ModelFile& model, const Quantized& planned, const QuantizeOptions& options);

}  // namespace bie::llm
