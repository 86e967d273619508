// Nets that other frameworks wrote as ONNX files. docs/spec/nets.md says what each operator becomes.
#pragma once

#include <cstdint>
#include <string>

#include "bie/formats/net_file.h"

namespace bie::onnx {

/// The net of an ONNX file, node by node and not folded: floats, and codes of 8 bits where the file has
/// QuantizeLinear and DequantizeLinear around a product. A BatchNormalization behind the only product that it reads
/// goes into that product's weight.
/// @throws formats::Error, one sentence that names the file and, where one is at fault, the node.
formats::NetFile import_onnx(const std::string& path);
/// The same of bytes in memory.
/// @param name  what sentences call them.
formats::NetFile import_onnx(const std::string& name, const std::uint8_t* bytes, std::int64_t size);

}  // namespace bie::onnx
