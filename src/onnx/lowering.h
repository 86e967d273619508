// From the operators of an ONNX graph to the nodes of a net.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bie/formats/error.h"
#include "bie/onnx/onnx_import.h"
#include "bie/runtime/net_builder.h"
#include "onnx/graph.h"

namespace bie::onnx {

using runtime::Symbol;
using Sizes = std::vector<std::int64_t>;

/// Placeholder that Shape gives for the batch size: a number that no size is. Only Reshape may read it.
constexpr std::int64_t open_batch = std::numeric_limits<std::int64_t>::min() + 1;

/// Parameters of QuantizeLinear: clamp(rint(x / step) + zero, lo, hi).
struct Steps {
  float step;
  std::int64_t zero, lo, hi;

  bool operator==(const Steps& o) const { return step == o.step && zero == o.zero && lo == o.lo && hi == o.hi; }
};

/// The comparison of Greater and its like with each number of a value; Where alone reads it.
struct Compared {
  kernels::Comparison comparison;
  float limit;
};

/// A value of the graph that depends on its input.
struct Value {
  Symbol symbol;
  Sizes sizes;                 ///< of one sample as ONNX has them, the batch left out
  std::optional<Steps> steps;  ///< the value is that of the symbol, rounded to them
  bool is_codes = false;       ///< between QuantizeLinear and DequantizeLinear
  std::optional<Compared> compared = std::nullopt;
};

/// A constant of the graph, and the codes that it was dequantised of.
struct Constant {
  Tensor tensor;
  std::optional<Tensor> codes;  ///< of type u8 or s8
  std::vector<float> steps;     ///< one, or one a slice along the axis
  std::int64_t axis = 0;
};

class Lowering;

/// A node and how its parts are asked for. Whatever is not as asked is a sentence that names the node.
class NodeView {
 public:
  NodeView(Lowering& lowering, std::size_t number) : lowering_(lowering), number_(number) {}

  const Node& node() const;
  bool has(std::size_t input) const { return input < node().inputs.size() && !node().inputs[input].empty(); }
  bool is_constant(std::size_t input) const;
  bool reads_constants_alone() const;
  const Value& value(std::size_t input) const;
  const Constant& constant(std::size_t input) const;
  /// Floats of a constant.
  const std::vector<float>& floats(std::size_t input) const;
  const std::vector<std::int64_t>& ints(std::size_t input) const;

  float number(const char* attribute, float otherwise) const;
  std::int64_t integer(const char* attribute, std::int64_t otherwise) const;
  Sizes integers(const char* attribute, Sizes otherwise) const;
  std::string text(const char* attribute, const std::string& otherwise) const;
  bool has_attribute(const char* name) const { return node().attributes.count(name) > 0; }
  std::int64_t opset() const;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_with(formats::joined(parts...));
  }
  template <class... Parts>
  void wants(bool holds, const Parts&... parts) const {
    if (!holds) fail_with(formats::joined(parts...));
  }

  Lowering& lowering() const { return lowering_; }
  std::size_t index() const { return number_; }

 private:
  [[noreturn]] void fail_with(const std::string& reason) const;

  Lowering& lowering_;
  std::size_t number_;
};

class Lowering {
 public:
  Lowering(std::string name, Graph graph, InputForm form)
      : name_(std::move(name)), graph_(std::move(graph)), form_(std::move(form)) {}

  formats::NetFile run();

  runtime::NetBuilder& net() { return net_; }
  const Graph& graph() const { return graph_; }
  const std::string& name() const { return name_; }
  std::int64_t batch() const { return batch_; }  ///< -1: any

  /// The floats of a value, rounded where it is.
  Symbol floats(const Value& value);
  /// The value's sizes as [features] or [channels, height, width].
  Symbol shaped(const Value& value);
  /// The value flattened to one list of features.
  Symbol features(const Value& value);
  /// The value's symbol as its sizes say, whether it is to be rounded or not.
  Symbol source(const Value& value);

  void set(const NodeView& n, Value value);
  void set(const NodeView& n, Constant constant);
  /// Under the output of another node.
  void set(const std::string& output, Value value) { values_.insert_or_assign(output, std::move(value)); }
  /// The one node that reads what this one writes, where there is one, and it is not an output of the net.
  std::optional<std::size_t> only_reader(const NodeView& n) const;
  void skip(std::size_t node) { is_done_[node] = true; }

 private:
  friend class NodeView;

  void count_readers();
  std::vector<bool> needed_nodes() const;
  /// Refuses an operator and an attribute that no lowering knows.
  void check_known(const NodeView& view);
  /// The input, its mean taken off and divided by its deviation where the form has them.
  Symbol add_input(const Sizes& sizes);

  std::string name_;
  Graph graph_;
  InputForm form_;
  runtime::NetBuilder net_;
  std::map<std::string, Value> values_;
  std::map<std::string, Constant> constants_;
  std::map<std::pair<Symbol, std::string>, Symbol> rounded_;
  struct Readers {
    std::size_t count = 0, last = 0;  ///< inputs of that name, and the last node that has one
    bool is_output = false;
  };
  std::unordered_map<std::string, Readers> readers_;  ///< per value
  std::vector<bool> is_done_;                         ///< by node: constants, and what another node took over
  std::int64_t batch_ = -1;
};

/// The numbers that a constant has for the channels of a value of these sizes, along which it is broadcast.
std::vector<float> along_channels(const NodeView& n, const Tensor& tensor, const Sizes& sizes);
/// The number of elements, or channels.
std::int64_t elements_of(const Sizes& sizes);

using Lower = void (*)(const NodeView&);

/// An operator that a net can have.
struct Operator {
  const char* name;
  Lower lower;
  const char* attributes;    ///< names with blanks between them; any other attribute is refused
  Lower fold = nullptr;      ///< makes a constant of constants; null: no such constant is made
  bool takes_codes = false;  ///< reads codes as they are, without DequantizeLinear in between
};
/// Null where a net has no such operator.
const Operator* operator_of(const Node& node);
/// Whether the operator has such an attribute in this version of the operators.
bool knows(const Operator& op, std::string_view attribute, std::int64_t opset);

// products.cpp
void lower_conv(const NodeView&);
void lower_gemm(const NodeView&);
void lower_mat_mul(const NodeView&);
// elementwise.cpp
void lower_batch_norm(const NodeView&);
void lower_relu(const NodeView&);
void lower_leaky_relu(const NodeView&);
void lower_prelu(const NodeView&);
void lower_clip(const NodeView&);
void lower_sigmoid(const NodeView&);
void lower_softmax(const NodeView&);
void lower_add(const NodeView&);
/// Add, Sub, Mul or Div of two constants, as the shapes of a graph are computed.
void fold_arithmetic(const NodeView&);
void lower_sub(const NodeView&);
void lower_mul(const NodeView&);
void lower_div(const NodeView&);
void lower_quantize(const NodeView&);
void lower_dequantize(const NodeView&);
/// An axis of `rank` axes, the batch among them, counted from 0.
std::int64_t axis_of(const NodeView& n, std::int64_t axis, std::int64_t rank);

// functions.cpp
void lower_hard_sigmoid(const NodeView&);
void lower_hard_swish(const NodeView&);
void lower_tanh(const NodeView&);
void lower_elu(const NodeView&);
void lower_softplus(const NodeView&);
void lower_erf(const NodeView&);
void lower_gelu(const NodeView&);
void lower_pow(const NodeView&);
void lower_layer_norm(const NodeView&);
void lower_slice(const NodeView&);
void lower_compare(const NodeView&);
void lower_where(const NodeView&);
void lower_split(const NodeView&);
// pools.cpp
void lower_max_pool(const NodeView&);
void lower_average_pool(const NodeView&);
void lower_global_average_pool(const NodeView&);
void lower_global_max_pool(const NodeView&);
void lower_reduce_max(const NodeView&);
void lower_reduce_mean(const NodeView&);
void lower_pad(const NodeView&);
// shapes.cpp
void lower_constant(const NodeView&);
void lower_same(const NodeView&);
void lower_flatten(const NodeView&);
void lower_reshape(const NodeView&);
void lower_squeeze(const NodeView&);
void lower_unsqueeze(const NodeView&);
void lower_transpose(const NodeView&);
void lower_concat(const NodeView&);
void lower_shape(const NodeView&);
void lower_gather(const NodeView&);
void lower_cast(const NodeView&);

/// The scale and shift of a BatchNormalization, one per channel.
void norm_of(const NodeView& n, std::int64_t channels, std::vector<float>* scale, std::vector<float>* shift);

/// The pads of a window, top, left, bottom, right, from `pads` or `auto_pad`.
std::array<std::int64_t, 4> pads_of(const NodeView& n, const Sizes& image, const std::array<std::int64_t, 2>& kernel,
                                    const std::array<std::int64_t, 2>& stride,
                                    const std::array<std::int64_t, 2>& dilation);
/// Two numbers of an attribute, each in 1 to 65536.
std::array<std::int64_t, 2> pair_of(const NodeView& n, const char* attribute, std::int64_t otherwise);

}  // namespace bie::onnx
