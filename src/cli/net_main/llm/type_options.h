// How the options of bie quantize name the types of a language model's matrices.
#pragma once

#include <cstdint>
#include <string>

#include "bie/llm/quantize.h"
#include "cli/llm/language.h"

namespace bie::cli {

/// --type, --size, --bpw and --plan exclude each other, and others go with some of them alone.
/// @throws CLI::ValidationError, here and below.
void check_type_options(const QuantizeArguments& a);

inline bool has_size(const QuantizeArguments& a) { return !a.size.empty() || a.bits > 0; }
/// Whether the output is a plan alone.
inline bool writes_plan(const QuantizeArguments& a) { return a.out.ends_with(".json"); }

/// Embedding, head and single matrices, as options name their types.
llm::TypePlan named_types(const QuantizeArguments& a);

/// The same, then the types of the file of --plan by whole names.
/// @throws formats::Error, one sentence naming the file.
llm::TypePlan read_plan(const QuantizeArguments& a);

}  // namespace bie::cli
