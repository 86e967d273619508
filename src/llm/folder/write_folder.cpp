#include "llm/folder/write_folder.h"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "bie/formats/coded_rows.h"
#include "bie/formats/error.h"
#include "bie/formats/group_types.h"
#include "bie/formats/new_folder.h"
#include "bie/formats/replacing_file.h"
#include "bie/formats/safetensors.h"
#include "bie/llm/config.h"
#include "bie/weights/file_matrix.h"
#include "formats/json_text.h"
#include "llm/architectures.h"
#include "llm/folder/coded_arrays.h"
#include "llm/folder/family.h"
#include "llm/folder/text_files.h"
#include "weights/elements.h"

namespace bie::llm::folder {
namespace {

using formats::DenseArray;
using formats::Element;
using formats::GgufType;
using formats::in_quotes;
using formats::joined;
using nlohmann::json;

constexpr const char* weights_file = "model.safetensors";
constexpr const char *table_stem = "model.embed_tokens", *head_stem = "lm_head";

/// Bytes that are made when it is their turn.
using Make = std::function<std::vector<std::uint8_t>()>;

template <class T>
std::vector<std::uint8_t> bytes_of(const std::vector<T>& values) {
  const auto* const from = reinterpret_cast<const std::uint8_t*>(values.data());
  return {from, from + sizeof(T) * values.size()};
}

class Writer {
 public:
  Writer(const ModelFile& model, const FolderContents& contents, const kernels::Parallel& parallel)
      : model_(model), contents_(contents), parallel_(parallel), config_(read_config(model)) {
    if (config_.architecture->tensor_scales)
      model.fail(joined("expected a model whose folders hold codes of any width, got ", config_.architecture->name,
                        ", whose folders hold ternary ones"));
    family_ = model.is_folder() ? model.family : family_of(config_.architecture->name, config_.layer(0).window > 0);
  }

  WrittenFolder write(const std::string& out) {
    for (const formats::GgufTensor& tensor : model_.gguf.tensors) {
      if (tensor.sizes.size() == 2)
        add_matrix(tensor.name, tensor.sizes[0], tensor.sizes[1]);
      else if (tensor.name != "rope_freqs.weight")  // config.json says them
        add_vector(tensor);
    }
    for (const auto& [name, layer] : model_.codes) {
      add_matrix(name + ".weight", layer.out_features, layer.in_features);
      if (const auto bias = layer.tensors.find("bias"); bias != layer.tensors.end()) add_bias(name, bias->second);
    }
    for (const auto& [name, layer] : model_.ternary)
      add_matrix(name + ".weight", layer.out_features, layer.in_features);
    std::map<std::string, std::string> files = text_files(model_, dtype());
    if (is_gptq())
      describe_gptq(&files);
    else
      describe_own(&files);
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
    if (!is_gptq()) metadata["bie"] = own_metadata();
    WrittenFolder result{formats::safetensors_bytes(weights_file, arrays_, metadata), 0, weights_};
    for (const auto& [name, array] : arrays_) {
      std::int64_t count = formats::size_of(array.element);
      for (const std::int64_t size : array.sizes) count *= size;
      result.bytes += count;
    }
    for (const auto& [name, text] : files) result.file_bytes += std::ssize(text);
    if (!contents_.write) return result;
    formats::NewFolder folder(out);
    for (const auto& [name, text] : files) {
      formats::ReplacingFile file("file", folder.file(name));
      file.write(text.data(), std::ssize(text));
      file.commit();
    }
    formats::save_safetensors(folder.file(weights_file), arrays_, metadata);
    folder.commit();
    return result;
  }

 private:
  /// The type of plain numbers that configurations state: the embedding's, else that of vectors.
  std::string dtype() const {
    const GgufType& type = contents_.type_of("token_embd.weight");
    if (type.kind == GgufType::Kind::elements) return std::string(formats::name(type.element));
    return "float32";
  }

  bool is_gptq() const { return contents_.format == ModelFormat::gptq; }

  std::string stem_of(const std::string& name) const {
    const std::string own = folder_name(*family_, name);
    return own.substr(0, own.rfind('.'));
  }

  RowOrder order_of(const std::string& name) const {
    return model_.is_folder() ? RowOrder() : gguf_rows_of_folder(config_, name);
  }

  void put(const std::string& name, Element element, std::vector<std::int64_t> sizes, Make make) {
    const auto with_bytes = [this, make = std::move(make)](const std::function<void(const void*)>& take) {
      if (contents_.progress) contents_.progress(done_++, arrays_.size());
      const std::vector<std::uint8_t> made = make();
      take(made.data());
    };
    if (!arrays_.emplace(name, DenseArray{element, std::move(sizes), with_bytes}).second)
      model_.fail(joined("the tensor ", in_quotes(name), " appears twice"));
  }

  void add_matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const GgufType& type = contents_.type_of(name);
    weights_ += rows * columns;
    if (formats::is_group_type(type))
      add_codes(name, type, rows, columns);
    else
      add_numbers(name, type, rows, columns);
  }

  void add_numbers(const std::string& name, const GgufType& type, std::int64_t rows, std::int64_t columns) {
    put(folder_name(*family_, name), type.element, {rows, columns},
        [this, name, rows, columns, row_bytes = columns * type.bytes, order = order_of(name)] {
          const auto from = contents_.bytes_of(name, rows, columns);
          std::vector<std::uint8_t> bytes(from->data, from->data + from->size);
          for (std::size_t j = 0; j < order.size(); ++j)
            std::memcpy(bytes.data() + static_cast<std::int64_t>(j) * row_bytes, from->data + order[j] * row_bytes,
                        static_cast<std::size_t>(row_bytes));
          return bytes;
        });
  }

  void add_codes(const std::string& name, const GgufType& type, std::int64_t rows, std::int64_t columns) {
    const std::string stem = stem_of(name);
    const bool is_table = name == "token_embd.weight";
    const CodedBlocks shape{&type, rows, columns, nullptr, order_of(name)};
    const auto blocks = [this, name, shape] {
      CodedBlocks of = shape;
      of.bytes = contents_.bytes_of(name, of.n, of.k);
      return of;
    };
    const std::vector<std::int64_t> by_row = {rows, shape.groups()}, by_group = {shape.groups(), rows};
    put(stem + ".qweight", Element::i32, word_sizes(shape, is_table),
        [this, blocks, is_table] { return bytes_of(words_of(blocks(), is_table, parallel_)); });
    put(stem + ".scales", Element::f16, is_table ? by_row : by_group,
        [blocks, is_table] { return bytes_of(numbers_of(blocks(), GroupNumber::scale, is_table)); });
    if (is_gptq())
      put(stem + ".qzeros", Element::i32, {shape.groups(), formats::words_for(rows, type.bits)},
          [blocks] { return bytes_of(packed_zeros_of(blocks())); });
    else
      put(stem + ".zeros", Element::f16, is_table ? by_row : by_group,
          [blocks, is_table] { return bytes_of(numbers_of(blocks(), GroupNumber::zero, is_table)); });
    if (!is_table) add_index(stem, shape);
    layers_[stem] = {{"bits", type.bits}, {"group_size", type.group}};
    if (is_table) layers_[stem]["embedding_dim"] = columns;
    outputs_[stem] = rows;
    inputs_[stem] = columns;
  }

  /// The group of each input; words that are not full do not tell how many inputs there are.
  void add_index(const std::string& stem, const CodedBlocks& shape) {
    if (!is_gptq() && shape.k * shape.type->bits % 32 == 0) return;
    put(stem + ".g_idx", Element::i32, {shape.k}, [k = shape.k, group = shape.type->group] {
      std::vector<std::int32_t> index;
      for (std::int64_t i = 0; i < k; ++i) index.push_back(static_cast<std::int32_t>(i / group));
      return bytes_of(index);
    });
  }

  void add_vector(const formats::GgufTensor& tensor) {
    formats::GgufTensor rows = tensor;
    rows.sizes = {1, tensor.count()};
    const weights::FileMatrix matrix(joined(model_.kind, " ", model_.path(), ": tensor ", in_quotes(tensor.name)),
                                     rows);
    if (matrix.is_coded())
      model_.fail(joined("tensor ", in_quotes(tensor.name), ": expected floats, got ", tensor.type->name));
    const bool is_norm = tensor.name.find("norm") != std::string::npos;
    weights_ += tensor.count();
    put(folder_name(*family_, tensor.name), Element::f32, {tensor.count()},
        [matrix, count = tensor.count(), has_one = family_->has_end_norms && is_norm, order = order_of(tensor.name)] {
          std::vector<float> values(static_cast<std::size_t>(count));
          matrix.read_row(0, values.data());
          if (has_one)
            for (float& value : values) value -= 1;
          return bytes_of(ordered(values, order));
        });
  }

  void add_bias(const std::string& name, const formats::Array& bias) {
    weights_ += bias.count();
    put(stem_of(name + ".weight") + ".bias", Element::f32, {bias.count()},
        [bias] { return bytes_of(weights::floats_of(bias)); });
  }

  static std::vector<float> ordered(const std::vector<float>& values, const RowOrder& order) {
    std::vector<float> moved = values;
    for (std::size_t j = 0; j < order.size(); ++j) moved[j] = values[static_cast<std::size_t>(order[j])];
    return moved;
  }

  bool has_head_of_codes() const { return layers_.contains(table_stem) && model_.is_tied(); }

  std::string own_metadata() const {
    json own = {{"format_version", 1}, {"kind", "weights"}, {"layers", layers_}};
    if (has_head_of_codes()) own["heads"] = {{head_stem, table_stem}};
    return own.dump();
  }

  /// transformers' configuration names each layer's class of bie.nn, python/bie/hf_checkpoints.py.
  void describe_own(std::map<std::string, std::string>* files) const {
    if (layers_.empty()) return;
    json layers;
    for (const auto& [stem, sizes] : layers_.items()) {
      json& layer = layers[stem];
      const auto bits = sizes["bits"], group = sizes["group_size"];
      if (sizes.contains("embedding_dim"))
        layer = {{"class", "WeightOnlyEmbedding"},
                 {"num_embeddings", outputs_.at(stem)},
                 {"embedding_dim", inputs_.at(stem)},
                 {"bits", bits},
                 {"factor", config_.embedding_factor}};
      else
        layer = {{"class", "MPQLinear"},
                 {"in_channels", inputs_.at(stem)},
                 {"out_channels", outputs_.at(stem)},
                 {"w_bit", bits},
                 {"use_gba_quant", true},
                 {"disable_bias", !arrays_.contains(stem + ".bias")},
                 {"g_idx", arrays_.contains(stem + ".g_idx")}};
      layer.update({{"group_size", group}, {"dtype", "float32"}});
    }
    if (has_head_of_codes()) layers[head_stem] = {{"class", "TiedHead"}, {"table", table_stem}};
    add_quantization({{"quant_method", "bie"}, {"format_version", 1}, {"layers", layers}}, files);
  }

  static void add_quantization(const json& description, std::map<std::string, std::string>* files) {
    json config = formats::parse_json((*files)["config.json"]);
    config["quantization_config"] = description;
    (*files)["config.json"] = config.dump(2) + "\n";
  }

  /// The configuration states the bits and groups that most layers have, and names the others in `dynamic`.
  void describe_gptq(std::map<std::string, std::string>* files) const {
    std::map<std::string, int> counts;
    for (const auto& [stem, layer] : layers_.items()) ++counts[layer.dump()];
    std::string usual;
    for (const auto& [sizes, count] : counts)
      if (usual.empty() || count > counts[usual]) usual = sizes;
    if (usual.empty()) model_.fail("expected a linear of codes for GPTQ's layout, got plain numbers alone");
    json description = formats::parse_json(usual);
    description.update({{"quant_method", "gptq"},
                        {"checkpoint_format", "gptq"},
                        {"desc_act", false},
                        {"sym", false},
                        {"lm_head", false}});
    for (const auto& [stem, layer] : layers_.items())
      if (layer.dump() != usual) description["dynamic"]["+:" + pattern_of(stem)] = layer;
    add_plain_linears(&description);
    (*files)["quantize_config.json"] = description.dump(2) + "\n";
    add_quantization(description, files);
  }

  /// Linears of plain numbers among those of codes.
  void add_plain_linears(json* description) const {
    for (const auto& [name, array] : arrays_)
      if (name.ends_with("_proj.weight"))
        (*description)["dynamic"]["-:" + pattern_of(name.substr(0, name.rfind('.')))] = json::object();
  }

  /// A pattern that fits this name alone.
  static std::string pattern_of(const std::string& name) {
    std::string pattern;
    for (const char c : name) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
    return pattern + "$";
  }

  const ModelFile& model_;
  const FolderContents& contents_;
  const kernels::Parallel& parallel_;
  Config config_;
  const Family* family_;
  std::map<std::string, DenseArray> arrays_;
  json layers_ = json::object();  ///< bits and groups by the names of layers
  std::map<std::string, std::int64_t> outputs_, inputs_;
  std::int64_t weights_ = 0;
  std::size_t done_ = 0;
};

}  // namespace

WrittenFolder write_folder(const ModelFile& model, const std::string& out, const FolderContents& contents,
                           const kernels::Parallel& parallel) {
  return Writer(model, contents, parallel).write(out);
}

}  // namespace bie::llm::folder
