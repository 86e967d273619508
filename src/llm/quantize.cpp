#include "bie/llm/quantize.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/llm/config.h"
#include "bie/llm/convert.h"
#include "bie/weights/file_matrix.h"
#include "formats/crc32c.h"
#include "llm/file_type.h"
#include "llm/layerwise.h"
#include "llm/parts.h"
#include "llm/rounded_rows.h"
#include "llm/type_plan.h"

namespace bie::llm {
namespace {

using formats::Error;
using formats::GgufOutput;
using formats::GgufType;
using formats::joined;

std::string tensor_words(std::size_t done, std::size_t all) { return joined("tensor ", done + 1, " of ", all); }

/// The importance of a matrix's columns; ones where nothing is known.
class Columns {
 public:
  Columns(const ModelFile& model, const Importance* importance) : model_(model), importance_(importance) {}

  const float* of(const std::string& name, std::int64_t columns) {
    if (importance_ == nullptr) return nullptr;
    const auto found = importance_->find(name);
    if (found == importance_->end()) {
      ones_.resize(std::max(ones_.size(), static_cast<std::size_t>(columns)), 1);
      return ones_.data();
    }
    if (std::ssize(found->second) != columns)
      model_.fail(joined("tensor ", formats::in_quotes(model_.called(name)), ": expected the importance of ", columns,
                         " columns, got that of ", found->second.size()));
    return found->second.data();
  }

 private:
  const ModelFile& model_;
  const Importance* importance_;
  std::vector<float> ones_;
};

/// What makes the blocks of matrices.
struct Makers {
  const Planner& planner;
  Columns& importance;
  const Parts* parts;  ///< null where matrices are rounded one by one

  std::shared_ptr<const formats::Bytes> made(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    return parts == nullptr ? nullptr : parts->get(name, planner.type_of(name), {rows, columns}).bytes;
  }
};

std::vector<std::uint8_t> blocks_of(const Makers& makers, const std::string& name, const weights::FileMatrix& matrix,
                                    const kernels::Parallel& parallel) {
  if (const auto made = makers.made(name, matrix.rows(), matrix.columns()))
    return {made->data, made->data + made->size};
  const ReadRow read = [&](std::int64_t row, float* values) { matrix.read_row(row, values); };
  auto blocks = rounded_rows(matrix.what(), makers.planner.type_of(name), matrix.rows(), matrix.columns(), read,
                             parallel, makers.importance.of(name, matrix.columns()));
  matrix.let_go();
  return blocks;
}

void quantize_file(const ModelFile& model, const std::string& out, const QuantizeOptions& options,
                   const kernels::Parallel& parallel, const Makers& makers, Quantized* result) {
  std::vector<GgufOutput> outputs;
  for (const formats::GgufTensor& tensor : model.gguf.tensors) {
    result->weights += tensor.count();
    if (tensor.sizes.size() != 2) {
      outputs.push_back({tensor.name, tensor.sizes, tensor.type, tensor.bytes->data, tensor.bytes->size});
      result->bytes += tensor.bytes->size;
      continue;
    }
    const GgufType& type = makers.planner.type_of(tensor.name);
    const std::int64_t bytes = tensor.count() / type.weights * type.bytes;
    const weights::FileMatrix matrix(
        joined(model.kind, " ", model.path(), ": tensor ", formats::in_quotes(tensor.name)), tensor);
    outputs.push_back(
        {tensor.name, tensor.sizes, &type, nullptr, bytes,
         [&makers, matrix, &parallel, name = tensor.name] { return blocks_of(makers, name, matrix, parallel); }});
    result->bytes += bytes;
  }
  if (options.progress)
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].make)
        outputs[i].make = [&options, i, all = outputs.size(), make = std::move(outputs[i].make)] {
          options.progress(static_cast<double>(i) / static_cast<double>(all), tensor_words(i, all));
          return make();
        };
  std::map<std::string, formats::GgufValue> metadata = model.gguf.metadata;
  std::erase_if(metadata, [](const auto& entry) { return entry.first.starts_with("split."); });  // it is one file
  metadata["general.quantization_version"] = {formats::GgufValueType::u32, std::uint64_t{2}};
  put_file_type(outputs, &metadata);
  result->file_bytes = formats::gguf_file_bytes(out, metadata, outputs);
  if (options.write) formats::save_gguf(out, metadata, outputs);
}

/// Tells runs apart whose parts would differ: the model's files, the plan and the text.
std::string run_of(const ModelFile& model, const Quantized& planned, const Calibration& text) {
  std::string facts = joined("window ", text.window, "; ");
  const auto add_file = [&](const std::filesystem::path& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    const auto when = std::filesystem::last_write_time(path, error).time_since_epoch().count();
    facts += joined(path.string(), " ", size, " ", when, "; ");
  };
  std::set<std::filesystem::path> files;
  std::error_code error;
  if (model.is_folder())
    for (std::filesystem::directory_iterator at(model.path(), error), last; !error && at != last; at.increment(error))
      files.insert(at->path());
  else
    files.insert(model.path());
  for (const std::filesystem::path& file : files) add_file(file);
  for (const auto& [name, type] : planned.plan) facts += name + " " + type + "; ";
  const auto* const tokens = reinterpret_cast<const char*>(text.tokens.data());
  return joined("gptq 1 ", formats::crc32c(facts), " ",
                formats::crc32c({tokens, sizeof(std::int32_t) * text.tokens.size()}));
}

}  // namespace

Quantized quantize(const ModelFile& model, const std::string& out, const QuantizeOptions& options,
                   const kernels::Parallel& parallel) {
  static_cast<void>(read_config(model));  // a model that is not read is refused before anything is written
  Quantized result;
  Planner planner(model, options.plan);
  planner.add_all(&result);
  Columns importance(model, options.importance);
  std::optional<Parts> parts;
  if (options.gptq != nullptr && options.write) {
    parts.emplace(out, run_of(model, result, *options.gptq));
    Layerwise work{options.gptq->tokens,
                   options.gptq->window,
                   [&](const std::string& name) -> const GgufType& { return planner.type_of(name); },
                   {}};
    if (options.progress) work.progress = [&](double done) { options.progress(done, "the layers"); };
    try {
      quantize_layers(model, work, *parts, parallel);
    } catch (const Error&) {
      parts->remove();
      throw;
    }
  }
  const Makers makers{planner, importance, parts ? &*parts : nullptr};
  if (!model.is_folder()) {
    quantize_file(model, out, options, parallel, makers, &result);
  } else {
    ConvertOptions convert_options;
    if (options.progress)
      convert_options.progress = [&](std::size_t done, std::size_t all) {
        options.progress(static_cast<double>(done) / static_cast<double>(all), tensor_words(done, all));
      };
    convert_options.plan = [&](const std::string& name, std::int64_t) -> const GgufType& {
      return planner.type_of(name);
    };
    convert_options.importance = [&](const std::string& name, std::int64_t count) {
      return importance.of(name, count);
    };
    convert_options.made = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
      return makers.made(name, rows, columns);
    };
    convert_options.write = options.write;
    const Converted made = convert(model, out, convert_options, parallel);
    result.file_bytes = made.file_bytes;
    result.bytes = made.bytes;
    result.weights = made.weights;
  }
  if (parts) parts->remove();
  return result;
}

}  // namespace bie::llm
