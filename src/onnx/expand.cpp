// Operators on codes, which onnxruntime's quantiser writes in its QOperator format, as the operators on floats between
// DequantizeLinear and QuantizeLinear that they stand for.
#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "onnx/graph.h"

namespace bie::onnx {
namespace {

constexpr const char* microsoft = "com.microsoft";

/// Inputs are values with their scales and zero points, then the scale and zero point of the output.
struct CodedOperator {
  const char *domain, *name, *floats;
  std::size_t operands;
};
constexpr CodedOperator coded_operators[] = {
    {"", "QLinearConv", "Conv", 2},
    {"", "QLinearMatMul", "MatMul", 2},
    {microsoft, "QGemm", "Gemm", 2},
    {microsoft, "QLinearAdd", "Add", 2},
    {microsoft, "QLinearAveragePool", "AveragePool", 1},
    {microsoft, "QLinearConcat", "Concat", 0},
    {microsoft, "QLinearGlobalAveragePool", "GlobalAveragePool", 1},
    {microsoft, "QLinearLeakyRelu", "LeakyRelu", 1},
    {microsoft, "QLinearMul", "Mul", 2},
    {microsoft, "QLinearSigmoid", "Sigmoid", 1},
};

const CodedOperator* coded_operator_of(const Node& node) {
  const auto* const found =
      std::find_if(std::begin(coded_operators), std::end(coded_operators),
                   [&](const CodedOperator& o) { return node.op == o.name && node.domain == o.domain; });
  return found == std::end(coded_operators) ? nullptr : found;
}

Attribute integer(std::int64_t number) {
  Attribute attribute;
  attribute.ints = {number};
  return attribute;
}

bool is_integer(const Node& node, const char* name, std::int64_t number) {
  const auto found = node.attributes.find(name);
  return found != node.attributes.end() && found->second.ints == std::vector<std::int64_t>{number};
}

class Expansion {
 public:
  explicit Expansion(Graph& graph) : graph_(graph) {
    for (const auto& [name, tensor] : graph.constants) names_.insert(name);
    for (const GraphInput& input : graph.inputs) names_.insert(input.name);
    for (const Node& node : graph.nodes) names_.insert(node.outputs.begin(), node.outputs.end());
  }

  void run() {
    std::vector<Node> given = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : given) {
      const CodedOperator* const op = coded_operator_of(node);
      if (op == nullptr)
        graph_.nodes.push_back(std::move(node));
      else
        expand(node, *op);
    }
  }

 private:
  std::string new_name() {
    std::string name;
    do name = "codes." + std::to_string(count_++);
    while (!names_.insert(name).second);
    return name;
  }

  /// A node in the place of another one, whose place and name sentences give.
  std::string add(const Node& of, const char* op, std::vector<std::string> inputs,
                  std::map<std::string, Attribute> attributes, std::string output) {
    graph_.nodes.push_back(
        {op, "", of.name, std::move(inputs), {output}, std::move(attributes), of.number, of.domain, of.op});
    return output;
  }

  static std::string input(const Node& node, std::size_t i) {
    return i < node.inputs.size() ? node.inputs[i] : std::string();
  }

  std::string opened(const Node& node, std::size_t first, std::int64_t axis) {
    return add(node, "DequantizeLinear", {input(node, first), input(node, first + 1), input(node, first + 2)},
               {{"axis", integer(axis)}}, new_name());
  }

  void expand(const Node& node, const CodedOperator& op) {
    const std::string_view kind = op.floats;
    const bool is_concat = kind == "Concat", is_gemm = kind == "Gemm";
    // The codes of a weight have a scale for each output, along this axis.
    const std::int64_t axis = kind == "Conv" || (is_gemm && is_integer(node, "transB", 1)) ? 0 : 1;
    const std::size_t operands = is_concat ? (std::max<std::size_t>(node.inputs.size(), 2) - 2) / 3 : op.operands;
    std::vector<std::string> inputs;
    for (std::size_t i = 0; i < operands; ++i) inputs.push_back(opened(node, 3 * i + (is_concat ? 2 : 0), axis));
    const std::size_t bias = kind == "Conv" ? 8 : 6, scale = is_concat ? 0 : is_gemm ? 7 : 3 * operands;
    if ((kind == "Conv" || is_gemm) && !input(node, bias).empty()) {
      // Its scale is the product of the other two: that of a sum of products.
      const std::string step = add(node, "Mul", {input(node, 1), input(node, 4)}, {}, new_name());
      inputs.push_back(add(node, "DequantizeLinear", {input(node, bias), step}, {{"axis", integer(0)}}, new_name()));
    }
    std::map<std::string, Attribute> attributes = node.attributes;
    if (is_integer(node, "channels_last", 0)) attributes.erase("channels_last");
    const std::string output = node.outputs.empty() ? std::string() : node.outputs[0];
    if (is_gemm && input(node, scale).empty()) {  // which writes floats
      add(node, op.floats, std::move(inputs), std::move(attributes), output);
      return;
    }
    const std::string y = add(node, op.floats, std::move(inputs), std::move(attributes), new_name());
    add(node, "QuantizeLinear", {y, input(node, scale), input(node, scale + 1)}, {}, output);
  }

  Graph& graph_;
  std::set<std::string> names_;
  std::size_t count_ = 0;
};

}  // namespace

void expand_codes(Graph& graph) { Expansion(graph).run(); }

}  // namespace bie::onnx
