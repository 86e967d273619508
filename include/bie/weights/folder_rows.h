// The linears of folders, output by output: as codes that other files hold, or as floats.
#pragma once

#include <optional>
#include <vector>

#include "bie/formats/coded_rows.h"
#include "bie/formats/ternary_layers.h"
#include "bie/kernels/parallel.h"
#include "bie/weights/coded_columns.h"

namespace bie::weights {

/// Codes of consecutive groups in the order of the inputs. Float zeros that are s * 2^(bits - 1) everywhere become the
/// whole zero in the middle.
/// @return nothing where the rows are of mixed widths, in an order of their own, multiplied by a channel scale, or in
/// groups that do not lie one behind the other.
std::optional<formats::CodedRows> coded_rows(const CodedColumns& columns);
formats::CodedRows coded_rows(const formats::TernaryLayer& layer);

/// W [n, k] in float32, times the channel scale where there is one.
/// @throws formats::Error naming it: what check_weight refuses.
std::vector<float> opened_rows(const CodedColumns& columns, const kernels::Parallel& parallel);

}  // namespace bie::weights
