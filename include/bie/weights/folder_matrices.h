// Matrices of folders whose outputs lie one after the other: embeddings of codes, and BitNet's linears.
#pragma once

#include <string>

#include "bie/formats/coded_layers.h"
#include "bie/formats/ternary_layers.h"
#include "bie/weights/file_matrix.h"

namespace bie::weights {

/// W [rows, columns] = s * q - z of an embedding that `bie.formats.save_weights` wrote: CodedLayer::Kind::table.
/// @param what  names it in sentences.
/// @throws formats::Error naming it: a linear, an entry that is missing.
/// Source: docs/spec/weight-only.md#weight-only-embedding.
FileMatrix coded_table(std::string what, const formats::CodedLayer& layer);

/// W [outputs, inputs] = (q - 1) * s, in one group.
FileMatrix ternary_matrix(std::string what, const formats::TernaryLayer& layer);

}  // namespace bie::weights
