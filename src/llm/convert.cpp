#include "bie/llm/convert.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/formats/mapped_file.h"
#include "bie/kernels/parallel.h"
#include "bie/llm/config.h"
#include "bie/weights/folder_matrices.h"
#include "bie/weights/folder_rows.h"
#include "llm/architectures.h"
#include "llm/file_type.h"
#include "llm/folder/rotated_rows.h"
#include "llm/folder/vocabulary_metadata.h"
#include "llm/rounded_rows.h"

namespace bie::llm {
namespace {

using folder::RowOrder;
using formats::CodedRows;
using formats::GgufOutput;
using formats::GgufType;
using formats::GgufValueType;
using formats::joined;
using Blocks = std::vector<std::uint8_t>;

/// Types for codes of a width, the smallest first.
std::vector<const GgufType*> types_of(int bits) {
  std::vector<const GgufType*> types;
  const auto add = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) types.push_back(formats::gguf_type(name));
  };
  if (bits == 1) add({"Q1_0"});
  if (bits == 2) add({"TQ2_0", "Q2_0"});
  if (bits == 4) add({"Q4_0", "Q4_1"});
  if (bits == 5) add({"Q5_0", "Q5_1"});
  if (bits == 8) add({"Q8_0"});
  return types;
}

void reorder(const RowOrder& order, CodedRows* rows) {
  if (order.empty()) return;
  const CodedRows old = *rows;
  const auto move = [&](auto CodedRows::*list, std::int64_t width) {
    const auto& from = old.*list;
    auto& to = rows->*list;
    if (from.empty()) return;
    for (std::size_t j = 0; j < order.size(); ++j)
      std::copy_n(from.begin() + order[j] * width, width, to.begin() + static_cast<std::ptrdiff_t>(j) * width);
  };
  move(&CodedRows::words, old.row_words());
  move(&CodedRows::scales, old.groups());
  move(&CodedRows::zeros, old.groups());
}

class Writer {
 public:
  Writer(const ModelFile& folder, const ConvertOptions& options, const kernels::Parallel& parallel)
      : folder_(folder), options_(options), parallel_(parallel), config_(read_config(folder)) {}

  Converted write(const std::string& out) {
    for (const formats::GgufTensor& tensor : folder_.gguf.tensors) add(tensor);
    for (const auto& [name, layer] : folder_.codes) add(name, layer);
    for (const auto& [name, layer] : folder_.ternary) add(name, layer);
    std::map<std::string, formats::GgufValue> metadata = folder_.gguf.metadata;
    metadata["general.type"] = {GgufValueType::string, std::string("model")};
    metadata["general.name"] = {GgufValueType::string, name_of_folder()};
    metadata["general.quantization_version"] = {GgufValueType::u32, std::uint64_t{2}};
    metadata[joined(config_.architecture->name, ".vocab_size")] = {GgufValueType::u32,
                                                                   static_cast<std::uint64_t>(config_.vocabulary)};
    folder::put_vocabulary(folder_.path(), config_.vocabulary, &metadata);
    count_pieces();
    put_file_type(outputs_, &metadata);
    result_.file_bytes = formats::gguf_file_bytes(out, metadata, outputs_);
    if (options_.write) formats::save_gguf(out, metadata, outputs_);
    result_.tensors = std::ssize(outputs_);
    return result_;
  }

 private:
  std::string name_of_folder() const {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::canonical(folder_.path(), error);
    return error ? folder_.path() : path.filename().string();
  }

  RowOrder order_of(const std::string& name) const { return folder::folder_rows_of_gguf(config_, name); }

  std::string what(const std::string& name) const {
    return joined(folder_.kind, " ", folder_.path(), ": tensor ", formats::in_quotes(folder_.called(name)));
  }

  void put(const std::string& name, std::vector<std::int64_t> sizes, const GgufType& type,
           std::function<Blocks()> make) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    outputs_.push_back({name, std::move(sizes), &type, nullptr, count / type.weights * type.bytes, std::move(make)});
  }

  /// The type of a matrix of floats.
  const GgufType& type_of(const std::string& name, const GgufType& own, std::int64_t columns) const {
    if (options_.plan) return options_.plan(name, columns);
    const GgufType& type = options_.type == nullptr ? own : *options_.type;
    return columns % type.weights == 0 ? type : *formats::gguf_type("F16");
  }

  const float* importance_of(const std::string& name, std::int64_t columns) const {
    return options_.importance ? options_.importance(name, columns) : nullptr;
  }

  std::shared_ptr<const formats::Bytes> blocks_made(const std::string& name, std::int64_t rows,
                                                    std::int64_t columns) const {
    return options_.made ? options_.made(name, rows, columns) : nullptr;
  }

  static Blocks ordered_blocks(const formats::Bytes& made, const RowOrder& order, std::int64_t rows) {
    const std::int64_t row_bytes = made.size / rows;
    Blocks blocks(made.data, made.data + made.size);
    for (std::size_t j = 0; j < order.size(); ++j)
      std::copy_n(made.data + order[j] * row_bytes, row_bytes,
                  blocks.data() + static_cast<std::int64_t>(j) * row_bytes);
    return blocks;
  }

  /// Rows in an order.
  static ReadRow ordered(const RowOrder& order, ReadRow read) {
    if (order.empty()) return read;
    return [&order, read = std::move(read)](std::int64_t row, float* values) {
      read(order[static_cast<std::size_t>(row)], values);
    };
  }

  void put_rows(const std::string& name, const GgufType& type, const RowOrder& order,
                const weights::FileMatrix& matrix) {
    expect_rows(matrix.what(), order, matrix.rows());
    put(name, {matrix.rows(), matrix.columns()}, type, [this, name, order, matrix, &type] {
      if (const auto made = blocks_made(name, matrix.rows(), matrix.columns()))
        return ordered_blocks(*made, order, matrix.rows());
      const ReadRow read = ordered(order, [&](std::int64_t row, float* values) { matrix.read_row(row, values); });
      Blocks blocks = rounded_rows(matrix.what(), type, matrix.rows(), matrix.columns(), read, parallel_,
                                   importance_of(name, matrix.columns()));
      matrix.let_go();
      return blocks;
    });
  }

  void add(const formats::GgufTensor& tensor) {
    const std::string said = what(tensor.name);
    if (tensor.sizes.size() == 2) {
      put_rows(tensor.name, type_of(tensor.name, *tensor.type, tensor.columns()), order_of(tensor.name),
               weights::FileMatrix(said, tensor));
      return;
    }
    // A vector's elements stand as rows of one do.
    const RowOrder order = order_of(tensor.name);
    expect_rows(said, order, tensor.count());
    put(tensor.name, tensor.sizes, *formats::gguf_type("F32"), [=] {
      formats::GgufTensor rows = tensor;
      rows.sizes = {tensor.count(), 1};
      const weights::FileMatrix file(said, rows);
      Blocks bytes(static_cast<std::size_t>(4 * tensor.count()));
      for (std::int64_t j = 0; j < tensor.count(); ++j) {
        float value;
        file.read_row(order.empty() ? j : order[static_cast<std::size_t>(j)], &value);
        std::memcpy(bytes.data() + 4 * j, &value, 4);
      }
      return bytes;
    });
  }

  void expect_rows(const std::string& said, const RowOrder& order, std::int64_t rows) const {
    if (!order.empty() && std::ssize(order) != rows)
      throw formats::Error(joined(said, ": expected ", order.size(), " rows, as the heads have, got ", rows));
  }

  void add(const std::string& name, const formats::CodedLayer& layer) {
    const std::string said = what(name), weight = name + ".weight";
    const RowOrder order = order_of(weight);
    if (layer.kind == formats::CodedLayer::Kind::table) {
      add_table(weight, said, layer);
      return;
    }
    const auto columns = std::make_shared<const weights::CodedColumns>(said, layer);
    expect_rows(said, order, columns->weight().n);
    std::optional<CodedRows> rows = weights::coded_rows(*columns);
    std::string why =
        said + ": GGUF has no type for codes whose rows stand in an order, in widths or in groups of their own";
    if (rows) reorder(order, &*rows);
    if (!rows || !put_codes(weight, said, std::move(*rows), &why)) {
      const std::int64_t k = columns->weight().k, n = columns->weight().n;
      const GgufType& type = type_to_open(weight, why, k);
      put(weight, {n, k}, type, [this, weight, said, columns, order, n, k, &type] {
        if (const auto made = blocks_made(weight, n, k)) return ordered_blocks(*made, order, n);
        const std::vector<float> values = weights::opened_rows(*columns, parallel_);
        const ReadRow read =
            ordered(order, [&](std::int64_t row, float* to) { std::copy_n(values.data() + row * k, k, to); });
        return rounded_rows(said, type, n, k, read, parallel_, importance_of(weight, k));
      });
    }
    if (columns->bias() != nullptr) {
      const std::string bias = name + ".bias";
      const RowOrder order_of_bias = order_of(bias);
      put(bias, {layer.out_features}, *formats::gguf_type("F32"), [columns, order_of_bias] {
        Blocks bytes(static_cast<std::size_t>(4 * columns->weight().n));
        for (std::int64_t j = 0; j < columns->weight().n; ++j)
          std::memcpy(bytes.data() + 4 * j,
                      columns->bias().get() + (order_of_bias.empty() ? j : order_of_bias[static_cast<std::size_t>(j)]),
                      4);
        return bytes;
      });
    }
  }

  void add(const std::string& name, const formats::TernaryLayer& layer) {
    const std::string said = what(name), weight = name + ".weight";
    CodedRows rows = weights::coded_rows(layer);
    const RowOrder order = order_of(weight);
    expect_rows(said, order, rows.rows);
    reorder(order, &rows);
    std::string why;
    if (put_codes(weight, said, std::move(rows), &why)) return;
    const weights::FileMatrix matrix = weights::ternary_matrix(said, layer);
    put_rows(weight, type_to_open(weight, why, matrix.columns()), order, matrix);
  }

  void add_table(const std::string& weight, const std::string& said, const formats::CodedLayer& layer) {
    const weights::FileMatrix matrix = weights::coded_table(said, layer);
    const std::string why = said + ": GGUF has no type for an embedding of such codes";
    put_rows(weight, type_to_open(weight, why, matrix.columns()), {}, matrix);
  }

  const GgufType& type_to_open(const std::string& name, const std::string& why, std::int64_t columns) {
    if (options_.type == nullptr && !options_.plan)
      throw formats::Error(why + "; a type of floats or Q8_0 opens such codes");
    ++result_.opened;
    return type_of(name, *formats::gguf_type("F32"), columns);
  }

  /// Whether a type holds the codes as they are; else says why the last one does not.
  bool put_codes(const std::string& weight, const std::string& said, CodedRows rows, std::string* why) {
    if (options_.plan) return false;
    const auto shared = std::make_shared<const CodedRows>(std::move(rows));
    *why = joined(said, ": GGUF has no type for ", shared->bits, " bits");
    for (const GgufType* type : types_of(shared->bits)) {
      try {
        (void)formats::gguf_blocks(said, *type, first_row(*shared));
        Blocks blocks = formats::gguf_blocks(said, *type, *shared);
        const auto kept = std::make_shared<Blocks>(std::move(blocks));
        put(weight, {shared->rows, shared->columns}, *type, [kept] { return std::move(*kept); });
        return true;
      } catch (const formats::Error& error) {
        *why = error.what();
      }
    }
    return false;
  }

  /// Most codes that a type does not hold are told by one row.
  static CodedRows first_row(const CodedRows& all) {
    CodedRows row;
    row.rows = 1;
    row.columns = all.columns;
    row.bits = all.bits;
    row.group = all.group;
    row.zero = all.zero;
    row.words.assign(all.words.begin(), all.words.begin() + all.row_words());
    row.scales.assign(all.scales.begin(), all.scales.begin() + all.groups());
    if (!all.zeros.empty()) row.zeros.assign(all.zeros.begin(), all.zeros.begin() + all.groups());
    return row;
  }

  /// Sums, and calls of the progress before each tensor.
  void count_pieces() {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      GgufOutput& output = outputs_[i];
      result_.bytes += output.byte_count;
      result_.weights +=
          std::accumulate(output.sizes.begin(), output.sizes.end(), std::int64_t{1}, std::multiplies<>());
      ++result_.tensors_of_type[std::string(output.type->name)];
      if (options_.progress)
        output.make = [this, i, make = std::move(output.make)] {
          options_.progress(i, outputs_.size());
          return make();
        };
    }
  }

  const ModelFile& folder_;
  const ConvertOptions& options_;
  const kernels::Parallel& parallel_;
  Config config_;
  std::vector<GgufOutput> outputs_;
  Converted result_;
};

}  // namespace

Converted convert(const ModelFile& folder, const std::string& out, const ConvertOptions& options,
                  const kernels::Parallel& parallel) {
  if (!folder.is_folder()) folder.fail("expected a folder of a model, got a GGUF file");
  return Writer(folder, options, parallel).write(out);
}

}  // namespace bie::llm
