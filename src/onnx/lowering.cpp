#include "onnx/lowering.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "bie/formats/mapped_file.h"
#include "bie/onnx/onnx_import.h"

namespace bie::onnx {
namespace {

constexpr const char* kind = "onnx file";

}  // namespace

std::int64_t elements_of(const Sizes& sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

const Node& NodeView::node() const { return lowering_.graph_.nodes[number_]; }
std::int64_t NodeView::opset() const { return lowering_.graph_.opset; }

void NodeView::fail_with(const std::string& reason) const {
  formats::fail_file(kind, lowering_.name_, name_of(lowering_.graph_, number_), ": ", reason);
}

bool NodeView::is_constant(std::size_t input) const {
  return has(input) && lowering_.constants_.count(node().inputs[input]) > 0;
}

bool NodeView::reads_constants_alone() const {
  for (std::size_t i = 0; i < node().inputs.size(); ++i)
    if (has(i) && !is_constant(i)) return false;
  return true;
}

const Value& NodeView::value(std::size_t input) const {
  wants(has(input), "has no input ", input);
  const auto found = lowering_.values_.find(node().inputs[input]);
  wants(found != lowering_.values_.end(), "input ", input,
        ": expected a value that depends on the net's input, got a constant");
  wants(!found->second.is_codes || operator_of(node())->takes_codes,
        "expected floats, got codes without a DequantizeLinear in between");
  wants(!found->second.compared || node().op == "Where", "reads truth values, which Where alone can");
  return found->second;
}

const Constant& NodeView::constant(std::size_t input) const {
  wants(has(input), "has no input ", input);
  const auto found = lowering_.constants_.find(node().inputs[input]);
  wants(found != lowering_.constants_.end(), "input ", input,
        ": expected a constant, got a value that depends on the net's input");
  return found->second;
}

const std::vector<float>& NodeView::floats(std::size_t input) const {
  const Tensor& tensor = constant(input).tensor;
  wants(tensor.type == Type::f32, "input ", input, ": expected floats, got integers");
  for (const float number : tensor.floats) wants(std::isfinite(number), "input ", input, " holds NaN or infinity");
  return tensor.floats;
}

const std::vector<std::int64_t>& NodeView::ints(std::size_t input) const {
  const Tensor& tensor = constant(input).tensor;
  wants(tensor.type != Type::f32, "input ", input, ": expected integers, got floats");
  const bool passes = node().op == "Reshape" || node().op == "Concat" || node().op == "Gather";
  wants(passes || std::count(tensor.ints.begin(), tensor.ints.end(), open_batch) == 0, "input ", input,
        " is the size of the batch, which is not fixed");
  return tensor.ints;
}

float NodeView::number(const char* name, float otherwise) const {
  const auto found = node().attributes.find(name);
  if (found == node().attributes.end()) return otherwise;
  wants(found->second.floats.size() == 1 && std::isfinite(found->second.floats[0]), name, " is no number");
  return found->second.floats[0];
}

std::int64_t NodeView::integer(const char* name, std::int64_t otherwise) const {
  const auto found = node().attributes.find(name);
  if (found == node().attributes.end()) return otherwise;
  wants(found->second.ints.size() == 1, name, " is no integer");
  return found->second.ints[0];
}

Sizes NodeView::integers(const char* name, Sizes otherwise) const {
  const auto found = node().attributes.find(name);
  if (found == node().attributes.end()) return otherwise;
  const Attribute& given = found->second;
  wants(given.floats.empty() && !given.text && !given.has_tensor, name, " is no list of integers");
  return given.ints;
}

std::string NodeView::text(const char* name, const std::string& otherwise) const {
  const auto found = node().attributes.find(name);
  if (found == node().attributes.end()) return otherwise;
  wants(found->second.text.has_value(), name, " is no text");
  return *found->second.text;
}

Symbol Lowering::source(const Value& value) {
  if (net_.sizes(value.symbol) == value.sizes) return value.symbol;
  if (value.sizes.size() == 1) return net_.flatten(value.symbol);
  return net_.reshape(value.symbol, value.sizes);
}

Symbol Lowering::floats(const Value& value) {
  if (!value.steps) return value.symbol;
  const Steps& s = *value.steps;
  const auto key = std::pair(value.symbol, formats::joined(s.step, " ", s.zero, " ", s.lo, " ", s.hi));
  const auto found = rounded_.find(key);
  if (found != rounded_.end()) return found->second;
  return rounded_[key] = net_.round_to_steps(value.symbol, s.step, s.zero, s.lo, s.hi);
}

Symbol Lowering::shaped(const Value& value) { return source({floats(value), value.sizes, {}}); }

Symbol Lowering::features(const Value& value) { return source({floats(value), {onnx::elements_of(value.sizes)}, {}}); }

void Lowering::set(const NodeView& n, Value value) {
  const auto& outputs = n.node().outputs;
  n.wants(!outputs.empty() && !outputs[0].empty(), "has no output");
  for (std::size_t i = 1; i < outputs.size(); ++i)
    n.wants(outputs[i].empty() || n.node().op == "Dropout" || n.node().op == "BatchNormalization",
            "has a second output, which no net has");
  values_.insert_or_assign(outputs[0], std::move(value));
}

void Lowering::set(const NodeView& n, Constant constant) {
  n.wants(!n.node().outputs.empty() && !n.node().outputs[0].empty(), "has no output");
  constants_.insert_or_assign(n.node().outputs[0], std::move(constant));
}

void Lowering::count_readers() {
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
    for (const std::string& input : graph_.nodes[i].inputs) {
      Readers& readers = readers_[input];
      ++readers.count;
      readers.last = i;
    }
  for (const std::string& output : graph_.outputs) readers_[output].is_output = true;
}

std::optional<std::size_t> Lowering::only_reader(const NodeView& n) const {
  const auto found = readers_.find(n.node().outputs[0]);
  if (found == readers_.end() || found->second.count != 1 || found->second.is_output) return {};
  return found->second.last;
}

/// Nodes that an output depends on.
std::vector<bool> Lowering::needed_nodes() const {
  std::set<std::string> wanted(graph_.outputs.begin(), graph_.outputs.end());
  std::vector<bool> needed(graph_.nodes.size());
  for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
    const Node& node = graph_.nodes[i];
    for (const std::string& output : node.outputs) needed[i] = needed[i] || wanted.count(output) > 0;
    if (needed[i]) wanted.insert(node.inputs.begin(), node.inputs.end());
  }
  return needed;
}

void Lowering::check_known(const NodeView& view) {
  const Operator* const op = operator_of(view.node());
  view.wants(op != nullptr, "a net has no such operator");
  // Parts of an operator on codes have the axis of their scales, which came with version 13.
  constexpr std::int64_t version_of_parts = 13;
  const std::int64_t version = view.node().file_op.empty() ? graph_.opset : std::max(graph_.opset, version_of_parts);
  for (const auto& [name, attribute] : view.node().attributes)
    view.wants(knows(*op, name, version), "has the attribute ", formats::in_quotes(name),
               ", which bie does not know for this operator in version ", graph_.opset);
}

Symbol Lowering::add_input(const Sizes& sizes) {
  const Symbol x = net_.input(sizes);
  if (form_.mean.empty() && form_.std.empty()) return x;
  const auto channels = static_cast<std::size_t>(sizes[0]);
  const auto spread = [&](std::vector<float> numbers, const char* what, float otherwise) {
    if (numbers.empty()) numbers = {otherwise};
    if (numbers.size() == 1) numbers.resize(channels, numbers[0]);
    if (numbers.size() != channels)
      formats::fail_file(kind, name_, "expected 1 or ", channels, " numbers of ", what, ", one per channel, got ",
                         numbers.size());
    for (const float number : numbers)
      if (!std::isfinite(number)) formats::fail_file(kind, name_, "a ", what, " is not finite");
    return numbers;
  };
  const std::vector<float> mean = spread(form_.mean, "mean", 0), std = spread(form_.std, "std", 1);
  runtime::TailNumbers tail;
  for (std::size_t c = 0; c < channels; ++c) {
    if (!(std[c] > 0)) formats::fail_file(kind, name_, "expected a std above 0, got ", std[c]);
    tail.scale.push_back(1 / std[c]);
    tail.shift.push_back(-mean[c] / std[c]);
  }
  return net_.tail(x, tail);
}

formats::NetFile Lowering::run() {
  const auto fail = [&](const auto&... parts) { formats::fail_file(kind, name_, parts...); };
  if (graph_.inputs.size() != 1) fail("expected one input, got ", graph_.inputs.size());
  const GraphInput& input = graph_.inputs[0];
  const std::string in = "input " + formats::in_quotes(input.name);
  if (!input.is_float) fail(in, " is not of floats");
  Sizes sizes = input.sizes;
  if (sizes.size() != 2 && sizes.size() != 4)
    fail(in, ": expected [batch, features] or [batch, channels, height, width], got ", sizes.size(), " sizes");
  batch_ = sizes[0] < 1 ? -1 : sizes[0];
  sizes.erase(sizes.begin());
  for (const std::int64_t size : sizes) {
    if (size < 1) fail(in, " has a size that is not fixed, which only the batch may be");
    if (size > 1 << 26) fail(in, " is of ", formats::listed(sizes));
  }
  if (sizes.size() == 3 && elements_of({sizes[0], sizes[1]}) > 1 << 26) fail(in, " is of ", formats::listed(sizes));
  if (elements_of(sizes) > 1 << 26) fail(in, " is of ", formats::listed(sizes));
  values_[input.name] = {add_input(sizes), sizes, {}};
  for (auto& [name, tensor] : graph_.constants) constants_[name] = {std::move(tensor), {}, {}};

  const std::vector<bool> needed = needed_nodes();
  count_readers();
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
    if (needed[i]) check_known(NodeView(*this, i));
  is_done_.assign(graph_.nodes.size(), false);
  // Constants first: a product looks ahead to the numbers of the node that reads it.
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const NodeView view(*this, i);
    if (!needed[i] || operator_of(view.node())->fold == nullptr || !view.reads_constants_alone()) continue;
    is_done_[i] = true;
    operator_of(view.node())->fold(view);
  }
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const NodeView view(*this, i);
    if (!needed[i] || is_done_[i]) continue;
    // The shape of a value is a constant that is known here alone.
    const Operator& op = *operator_of(view.node());
    (op.fold != nullptr && view.reads_constants_alone() ? op.fold : op.lower)(view);
  }
  std::vector<Symbol> outputs;
  for (const std::string& output : graph_.outputs) {
    const auto found = values_.find(output);
    if (found == values_.end())
      fail("has an output ", formats::in_quotes(output), " that does not depend on its input");
    if (found->second.is_codes) fail("output ", formats::in_quotes(output), ": expected floats, got codes");
    if (found->second.compared) fail("output ", formats::in_quotes(output), ": expected floats, got truth values");
    outputs.push_back(features(found->second));
  }
  const Sizes image = sizes.size() == 3 ? sizes : Sizes{1, 1, sizes[0]};
  net_.set_metadata("arch", "onnx");
  net_.set_metadata("image", formats::joined(image[0], ",", image[1], ",", image[2]));
  const bool is_scaled = !form_.mean.empty() || !form_.std.empty();
  const auto guessed = is_scaled           ? formats::InputRange::unit
                       : sizes.size() == 3 ? formats::InputRange::any
                                           : formats::InputRange::numbers;
  net_.set_metadata("input", formats::name(form_.range.value_or(guessed)));
  try {
    return net_.finish(outputs, /*folds=*/false);
  } catch (const formats::Error& error) {
    fail("does not fit a net: ", error.what());
  }
  return {};
}

formats::NetFile import_onnx(const std::string& name, const std::uint8_t* bytes, std::int64_t size,
                             const InputForm& form) {
  return Lowering(name, read_graph(name, bytes, size, /*folder=*/""), form).run();
}

formats::NetFile import_onnx(const std::string& path, const InputForm& form, std::vector<std::string>* files) {
  const formats::MappedFile file(kind, path);
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  Graph graph = read_graph(path, file.data(), file.size(), folder);
  if (files != nullptr) *files = graph.files;
  return Lowering(path, std::move(graph), form).run();
}

}  // namespace bie::onnx
