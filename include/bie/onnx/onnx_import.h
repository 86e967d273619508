// Nets that other frameworks wrote as ONNX files. docs/spec/nets.md says what each operator becomes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/input_range.h"
#include "bie/formats/net_file.h"

namespace bie::onnx {

/// Facts about a model's input that its ONNX file does not hold.
struct InputForm {
  /// Where not given: `unit` with mean or std, else `any` for images and `numbers` for features.
  std::optional<formats::InputRange> range = {};
  /// The net computes (x - mean) / std first, x in that range: a number per channel, or one for all. None: 0 and 1.
  std::vector<float> mean = {}, std = {};
};

/// The net of an ONNX file, node by node and not folded: floats, and codes of 8 bits where the file has
/// QuantizeLinear and DequantizeLinear around a product. A BatchNormalization behind the only product that it reads
/// goes into that product's weight.
/// @throws formats::Error, one sentence that names the file and, where one is at fault, the node.
/// @param files  gets the paths of the files beside it that hold its tensors.
formats::NetFile import_onnx(const std::string& path, const InputForm& form = {},
                             std::vector<std::string>* files = nullptr);
/// Imports from memory.
/// @param name  names the model in error sentences.
formats::NetFile import_onnx(const std::string& name, const std::uint8_t* bytes, std::int64_t size,
                             const InputForm& form = {});

}  // namespace bie::onnx
