// An ONNX graph as plain structs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace bie::onnx {

enum class Type : std::uint8_t { f32, u8, s8, integer };

/// A constant: floats where its type is f32, else ints.
struct Tensor {
  Type type = Type::f32;
  std::vector<std::int64_t> sizes;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;

  std::int64_t count() const { return static_cast<std::int64_t>(type == Type::f32 ? floats.size() : ints.size()); }
};

/// One of these, as the attribute has it; a number is a list of one.
struct Attribute {
  std::vector<float> floats;
  std::vector<std::int64_t> ints;
  std::optional<std::string> text;
  Tensor tensor;
  bool has_tensor = false;
};

struct Node {
  std::string op, domain, name;
  std::vector<std::string> inputs, outputs;  ///< "": left out
  std::map<std::string, Attribute> attributes;
  std::size_t number = 0;            ///< its place in the file
  std::string file_domain, file_op;  ///< of the node in the file that this one is a part of; "": itself
};

struct GraphInput {
  std::string name;
  bool is_float;
  std::vector<std::int64_t> sizes;  ///< -1: any
};

struct Graph {
  std::int64_t opset = 0;
  std::vector<Node> nodes;  ///< each behind those whose values it reads
  std::map<std::string, Tensor> constants;
  std::vector<GraphInput> inputs;  ///< but those that are constants
  std::vector<std::string> outputs;
  std::vector<std::string> files;  ///< of tensors, beside the model
};

/// Puts nodes on floats in the place of those on codes, such as QLinearConv.
void expand_codes(Graph& graph);

/// "node 3 "conv1" (Conv)"
std::string name_of(const Graph& graph, std::size_t node);

/// Trusts nothing. @throws formats::Error, one sentence that names the file.
/// @param folder  where the files of tensors lie that the model keeps beside it; "": a model that names some is
/// refused.
Graph read_graph(const std::string& name, const std::uint8_t* bytes, std::int64_t size, const std::string& folder);

}  // namespace bie::onnx
