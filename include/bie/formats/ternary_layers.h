// The linears of BitNet's folders: weights of -1, 0 and 1 with one scale for a tensor.
// Source: transformers, integrations/bitnet.py; Ma et al. 2024, <https://arxiv.org/abs/2402.17764>;
// docs/spec/files.md#bitnet.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bie/formats/array.h"
#include "bie/formats/weights_folder.h"

namespace bie::formats {

/// W [out_features, in_features] = (q - 1) * scale. Output q * rows + r, rows = out_features / 4, is in bits 2q and
/// 2q + 1 of row r of `codes`; codes are 0, 1 and 2.
struct TernaryLayer {
  std::int64_t out_features = 0, in_features = 0;
  Array codes;  ///< uint8 [out_features / 4, in_features], dense
  float scale = 1;
};

struct TernaryModel {
  std::map<std::string, TernaryLayer> layers;  ///< by the name before ".weight"
  std::map<std::string, Array> rest;           ///< all other tensors
};

/// Layers whose `weight` is packed; and, where the configuration says that weights are quantised as they are used
/// (`"quantization_mode": "online"`) and `is_linear` that a matrix is one of these, the floats of such as they are
/// used:
///     scale = max(mean |W|, 1e-5)    q - 1 = clamp(rint(W / scale), -1, 1)
/// the mean taken in double in the order of the file and rounded to float32, 1 / scale and the product rounded once.
/// `weight_scale` divides where `linear_class` is "bitlinear", scale = 1 / weight_scale in float32, and multiplies
/// where it is "autobitlinear".
/// A folder of 1bitLLM, whose `architectures` are ["BitnetForCausalLM"], is such an online one.
/// @return nothing unless the configuration says `"quant_method": "bitnet"` or is of 1bitLLM.
/// @throws Error, one sentence naming the file and the tensor: a linear class or a mode that is not read, a scale that
/// is missing or no positive number, a code of 3.
std::optional<TernaryModel> ternary_layers(const WeightsFolder& folder, bool (*is_linear)(const std::string& name));

}  // namespace bie::formats
