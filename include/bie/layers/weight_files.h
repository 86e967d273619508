// Layers of the weights that other people's files hold.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/formats/coded_layers.h"
#include "bie/formats/coded_rows.h"
#include "bie/layers/weight_only.h"

namespace bie::layers {

/// y = x . W^T + bias with the codes of a file, in evaluation mode: `open()` is the transpose of what the file says, to
/// the bit.
/// @param bias  [rows] float or undefined.
/// @throws c10::ValueError where the bias or a scale is not finite or the bias has another size.
/// Source: docs/spec/files.md#rows-of-codes.
WeightOnlyLinear weight_only_linear(const formats::CodedRows& rows, const at::Tensor& bias = {});

/// Makes a layer of GPTQ's files or of GreenBit's legacy files. Scales that are quantised themselves are dequantized in
/// the dtype that the file has for them.
/// @throws c10::ValueError for rows that are permuted: those are mbwq_linear's.
/// Source: docs/spec/files.md#gptq, docs/spec/weight-only.md#double-quantization.
WeightOnlyLinear weight_only_linear(const formats::CodedLayer& layer);

/// A layer of GreenBit's whose rows are permuted, of one width or of several, in evaluation mode.
/// @throws c10::ValueError for another kind, and for tables that MBWQLinear does not take.
/// Source: docs/spec/files.md#greenbit, docs/spec/weight-only.md#permuted-and-mixed-rows.
MBWQLinear mbwq_linear(const formats::CodedLayer& layer);

}  // namespace bie::layers
