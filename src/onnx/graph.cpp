// The only file that knows protobuf.
#include "onnx/graph.h"

#include <onnx-ml.pb.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "formats/foreign_file.h"
#include "formats/half.h"

namespace bie::onnx {
namespace {

using formats::in_quotes;
using ::onnx::AttributeProto, ::onnx::TensorProto;

constexpr const char* kind = "onnx file";
constexpr std::int64_t most_elements = std::int64_t{1} << 28;

/// Numbers of a file, little-endian.
template <class T>
std::vector<T> raw_numbers(std::string_view bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

class Reader {
 public:
  Reader(const std::string& name, std::string folder) : name_(name), folder_(std::move(folder)) {}

  Graph graph(const ::onnx::ModelProto& model) const {
    if (!model.has_graph()) fail("has no graph");
    if (model.functions_size() > 0) fail("has functions of its own, which are not read");
    Graph graph;
    for (const auto& opset : model.opset_import())
      if (opset.domain().empty() || opset.domain() == "ai.onnx") graph.opset = opset.version();
    if (graph.opset < 7 || graph.opset > 99)
      fail("has operators of version ", graph.opset, ", 7 and later ones are read");
    if (model.graph().sparse_initializer_size() > 0) fail("has sparse initialisers, which are not read");
    for (const TensorProto& proto : model.graph().initializer()) {
      if (proto.name().empty()) fail("has an initialiser without a name");
      if (!graph.constants.emplace(proto.name(), tensor(proto, in_quotes(proto.name()))).second)
        fail("has two initialisers ", in_quotes(proto.name()));
    }
    for (const auto& proto : model.graph().input())
      if (graph.constants.count(proto.name()) == 0) graph.inputs.push_back(input(proto));
    for (const auto& proto : model.graph().output()) graph.outputs.push_back(proto.name());
    if (graph.outputs.empty()) fail("has no output");
    for (const auto& proto : model.graph().node()) {
      graph.nodes.push_back(node(proto));
      graph.nodes.back().number = graph.nodes.size() - 1;
    }
    check_order(graph);
    expand_codes(graph);
    for (const auto& [location, file] : files_)
      graph.files.push_back((std::filesystem::path(folder_) / location).string());
    return graph;
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    formats::fail_file(kind, name_, parts...);
  }

 private:
  /// A file of tensors beside the model, mapped once.
  const formats::MappedFile& beside(const std::string& location, const std::string& what) const {
    if (folder_.empty()) fail("keeps tensor ", what, " in another file, which a model in memory does not have");
    const bool is_sibling = !location.empty() && location != "." && location != ".." &&
                            location.find_first_of("/\\") == std::string::npos &&
                            location.find('\0') == std::string::npos;
    if (!is_sibling) fail("tensor ", what, ": expected a file in the model's own folder, got ", in_quotes(location));
    auto& file = files_[location];
    if (file) return *file;
    const std::filesystem::path folder(folder_), path = folder / location;
    std::error_code error;
    const auto real = std::filesystem::canonical(path, error);
    if (error) fail("keeps tensor ", what, " in ", in_quotes(location), ", which cannot be opened: ", error.message());
    if (real.parent_path() != std::filesystem::canonical(folder, error))
      fail("keeps tensor ", what, " in ", in_quotes(location), ", which is a link to another folder");
    file = std::make_unique<formats::MappedFile>("file of tensors", real.string());
    return *file;
  }

  /// The bytes of a tensor: those in the model, or a part of the file that it names.
  std::string_view raw_of(const TensorProto& proto, const std::string& what) const {
    if (proto.data_location() != TensorProto::EXTERNAL) {
      if (proto.external_data_size() > 0) fail("keeps tensor ", what, " in two places");
      return proto.raw_data();
    }
    if (proto.has_raw_data()) fail("keeps tensor ", what, " in two places");
    std::string location;
    std::int64_t offset = 0, length = -1;
    for (const auto& entry : proto.external_data()) {
      const auto number = [&] {
        std::int64_t value = -1;
        const char* const end = entry.value().data() + entry.value().size();
        const auto [rest, error] = std::from_chars(entry.value().data(), end, value);
        if (error != std::errc() || rest != end || value < 0)
          fail("has tensor ", what, " whose ", in_quotes(entry.key()), " is ", in_quotes(entry.value()));
        return value;
      };
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "offset") offset = number();
      if (entry.key() == "length") length = number();
    }
    const formats::MappedFile& file = beside(location, what);
    if (length < 0) length = std::max<std::int64_t>(0, file.size() - offset);
    if (offset > file.size() || length > file.size() - offset)
      fail("has tensor ", what, " at byte ", offset, " of ", in_quotes(location), ", ", length,
           " bytes, and that file has ", file.size());
    return {reinterpret_cast<const char*>(file.data()) + offset, static_cast<std::size_t>(length)};
  }

  Tensor tensor(const TensorProto& proto, const std::string& what) const {
    if (proto.has_segment()) fail("has tensor ", what, " in segments, which are not read");
    Tensor tensor;
    std::int64_t count = 1;
    for (const std::int64_t size : proto.dims()) {
      if (size < 0 || size > most_elements || (count *= size) > most_elements)
        fail("has tensor ", what, " of ", formats::listed({proto.dims().begin(), proto.dims().end()}));
      tensor.sizes.push_back(size);
    }
    const std::string_view raw = raw_of(proto, what);
    const bool is_raw = proto.has_raw_data() || proto.data_location() == TensorProto::EXTERNAL;
    std::size_t bytes = 0;  // of an element
    switch (proto.data_type()) {
      case TensorProto::FLOAT:
        tensor.floats =
            is_raw ? raw_numbers<float>(raw) : std::vector<float>(proto.float_data().begin(), proto.float_data().end());
        bytes = 4;
        break;
      case TensorProto::FLOAT16: tensor.floats = halves(proto, raw, is_raw), bytes = 2; break;
      case TensorProto::UINT8:
        tensor.type = Type::u8, tensor.ints = integers<std::uint8_t>(proto, raw, is_raw), bytes = 1;
        break;
      case TensorProto::INT8:
        tensor.type = Type::s8, tensor.ints = integers<std::int8_t>(proto, raw, is_raw), bytes = 1;
        break;
      case TensorProto::BOOL:
        tensor.type = Type::integer, tensor.ints = integers<std::uint8_t>(proto, raw, is_raw), bytes = 1;
        break;
      case TensorProto::INT32:
        tensor.type = Type::integer, tensor.ints = integers<std::int32_t>(proto, raw, is_raw), bytes = 4;
        break;
      case TensorProto::INT64:
        tensor.type = Type::integer, bytes = 8;
        tensor.ints = is_raw ? raw_numbers<std::int64_t>(raw)
                             : std::vector<std::int64_t>(proto.int64_data().begin(), proto.int64_data().end());
        break;
      default: fail("has tensor ", what, " of type ", type_name(proto.data_type()), ", which no net has");
    }
    if (tensor.count() != count || (is_raw && raw.size() != bytes * static_cast<std::size_t>(count)))
      fail("has tensor ", what, " of ", formats::listed(tensor.sizes), " with numbers of another count");
    return tensor;
  }

  template <class T>
  static std::vector<std::int64_t> integers(const TensorProto& proto, std::string_view raw, bool is_raw) {
    if (!is_raw) return {proto.int32_data().begin(), proto.int32_data().end()};
    const std::vector<T> numbers = raw_numbers<T>(raw);
    return {numbers.begin(), numbers.end()};
  }

  static std::vector<float> halves(const TensorProto& proto, std::string_view raw, bool is_raw) {
    std::vector<float> numbers;
    if (is_raw) {
      for (const std::uint16_t half : raw_numbers<std::uint16_t>(raw)) numbers.push_back(formats::float_of_half(half));
    } else {
      for (const std::int32_t half : proto.int32_data())
        numbers.push_back(formats::float_of_half(static_cast<std::uint16_t>(half)));
    }
    return numbers;
  }

  static std::string type_name(std::int32_t type) {
    return TensorProto::DataType_IsValid(type) ? TensorProto::DataType_Name(static_cast<TensorProto::DataType>(type))
                                               : std::to_string(type);
  }

  GraphInput input(const ::onnx::ValueInfoProto& proto) const {
    const auto& type = proto.type().tensor_type();
    GraphInput input{proto.name(), type.elem_type() == TensorProto::FLOAT, {}};
    for (const auto& dim : type.shape().dim()) input.sizes.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
    return input;
  }

  Node node(const ::onnx::NodeProto& proto) const {
    Node node{proto.op_type(), proto.domain() == "ai.onnx" ? "" : proto.domain(), proto.name(), {}, {}, {}, 0, {}, {}};
    node.inputs.assign(proto.input().begin(), proto.input().end());
    node.outputs.assign(proto.output().begin(), proto.output().end());
    for (const AttributeProto& from : proto.attribute()) {
      Attribute to;
      to.floats.assign(from.floats().begin(), from.floats().end());
      to.ints.assign(from.ints().begin(), from.ints().end());
      if (from.has_f()) to.floats = {from.f()};
      if (from.has_i()) to.ints = {from.i()};
      if (from.has_s()) to.text = from.s();
      to.has_tensor = from.has_t();
      // Tensors of other nodes are not read, so their kind does not matter.
      if (from.has_t() && node.op == "Constant")
        to.tensor = tensor(from.t(), formats::joined("of node ", in_quotes(node.name)));
      node.attributes[from.name()] = std::move(to);
    }
    return node;
  }

  /// Every value is there before it is read, and is written once.
  void check_order(const Graph& graph) const {
    std::set<std::string> written;
    for (const auto& [name, tensor] : graph.constants) written.insert(name);
    for (const GraphInput& input : graph.inputs)
      if (!written.insert(input.name).second) fail("has two inputs ", in_quotes(input.name));
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const std::string& input : graph.nodes[i].inputs)
        if (!input.empty() && written.count(input) == 0)
          fail(name_of(graph, i), " reads ", in_quotes(input), ", which is neither an initialiser nor written before");
      for (const std::string& output : graph.nodes[i].outputs)
        if (!output.empty() && !written.insert(output).second)
          fail(name_of(graph, i), " writes ", in_quotes(output), ", which is there already");
    }
    for (const std::string& output : graph.outputs)
      if (written.count(output) == 0) fail("has an output ", in_quotes(output), " that nothing writes");
  }

  const std::string& name_;
  std::string folder_;
  mutable std::map<std::string, std::unique_ptr<formats::MappedFile>> files_;
};

}  // namespace

std::string name_of(const Graph& graph, std::size_t i) {
  const Node& node = graph.nodes[i];
  std::string text = formats::joined("node ", node.number, " ");
  if (!node.name.empty()) text += in_quotes(node.name) + " ";
  text += "(";
  const bool is_part = !node.file_op.empty();
  const std::string& domain = is_part ? node.file_domain : node.domain;
  if (!domain.empty()) text += in_quotes(domain) + " ";
  return text + in_quotes(is_part ? node.file_op : node.op) + ")";
}

Graph read_graph(const std::string& name, const std::uint8_t* bytes, std::int64_t size, const std::string& folder) {
  const Reader reader(name, folder);
  if (size == 0) reader.fail("is empty");
  if (size > INT_MAX) reader.fail("has more than 2 GB");
  ::onnx::ModelProto model;
  const std::string other = formats::foreign_file(bytes, size);
  if (!other.empty() && other != formats::a_text) reader.fail("is ", other, ", no ONNX file");
  if (!model.ParseFromArray(bytes, static_cast<int>(size))) reader.fail("is no ONNX file, or is cut or damaged");
  return reader.graph(model);
}

}  // namespace bie::onnx
