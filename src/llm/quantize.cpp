#include "bie/llm/quantize.h"

#include <algorithm>
#include <map>
#include <optional>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/formats/group_types.h"
#include "bie/formats/new_folder.h"
#include "bie/formats/written_types.h"
#include "bie/llm/config.h"
#include "bie/llm/convert.h"
#include "bie/weights/file_matrix.h"
#include "llm/file_type.h"
#include "llm/folder/write_folder.h"
#include "llm/layerwise.h"
#include "llm/model_formats.h"
#include "llm/model_tensors.h"
#include "llm/parts.h"
#include "llm/rounded_rows.h"
#include "llm/run_name.h"
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
  const std::map<std::string, const GgufType*>& types;  ///< of the matrices, as the format has them
  Columns& importance;
  const Parts* parts;  ///< null where matrices are rounded one by one

  const GgufType& type_of(const std::string& name) const { return *types.at(name); }
  std::shared_ptr<const formats::Bytes> made(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    return parts == nullptr ? nullptr : parts->get(name, type_of(name), {rows, columns}).bytes;
  }
};

std::vector<std::uint8_t> blocks_of(const Makers& makers, const std::string& name, const weights::FileMatrix& matrix,
                                    const kernels::Parallel& parallel) {
  if (const auto made = makers.made(name, matrix.rows(), matrix.columns()))
    return {made->data, made->data + made->size};
  const ReadRow read = [&](std::int64_t row, float* values) { matrix.read_row(row, values); };
  auto blocks = rounded_rows(matrix.what(), makers.type_of(name), matrix.rows(), matrix.columns(), read, parallel,
                             makers.importance.of(name, matrix.columns()));
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
    const GgufType& type = makers.type_of(tensor.name);
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

/// The types of GPTQ's folders: those of the plan with whole zeros, and plain numbers of embedding and head unless the
/// plan says which.
TypePlan plan_of(const ModelFile& model, const QuantizeOptions& options) {
  TypePlan plan = options.plan;
  if (options.format != ModelFormat::gptq) return plan;
  const GgufType* const plain = formats::gguf_type("F16");
  if (plan.embedding == nullptr) plan.embedding = plain;
  if (plan.head == nullptr && !model.is_tied()) plan.head = plain;
  return plan;
}

/// The types of the planned matrices as the format holds them.
std::map<std::string, const GgufType*> types_held(const ModelFile& model, ModelFormat format, const Planner& planner,
                                                  const Quantized& planned) {
  std::map<std::string, const GgufType*> types;
  for (const auto& [name, named] : planned.plan) {
    const GgufType& type = planner.type_of(name);
    const bool is_plain = format == ModelFormat::gptq && (name == embedding_name || name == head_name);
    std::string expected = type_not_held(format, type);
    if (is_plain && formats::is_group_type(type)) expected = "f16, f32 or bf16, as GPTQ's folders have them there";
    if (!expected.empty())
      model.fail(joined("tensor ", formats::in_quotes(model.called(name)), ": expected ", expected, ", got ",
                        formats::name_of_type(type)));
    types[name] = &type_as_held(format, type);
  }
  return types;
}

/// Rounds the matrices one by one.
void round_matrices(const ModelFile& model, const Makers& makers, const QuantizeOptions& options,
                    const kernels::Parallel& parallel) {
  ModelTensors tensors(model, Arithmetic::exact, /*one_scale=*/false, parallel);
  std::size_t all = 0, done = 0;
  makers.planner.for_each_matrix([&](const std::string&, std::int64_t, std::int64_t) { ++all; });
  makers.planner.for_each_matrix([&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    if (options.progress)
      options.progress(static_cast<double>(done) / static_cast<double>(all), tensor_words(done, all));
    ++done;
    const GgufType& type = makers.type_of(name);
    if (makers.parts->find(name, type, {rows, columns})) return;
    const OpenMatrix matrix = tensors.open(name.substr(0, name.rfind('.')), rows, columns);
    const std::string what = joined(model.kind, " ", model.path(), ": tensor ", formats::in_quotes(model.called(name)));
    makers.parts->put(
        name, type, {rows, columns},
        rounded_rows(what, type, rows, columns, matrix.read, parallel, makers.importance.of(name, columns)));
    matrix.let_go();
  });
}

/// Puts every matrix among the parts.
void make_parts(const ModelFile& model, const Makers& makers, const QuantizeOptions& options,
                const kernels::Parallel& parallel) {
  try {
    if (options.gptq == nullptr) {
      round_matrices(model, makers, options, parallel);
      return;
    }
    Layerwise work{options.gptq->tokens,
                   options.gptq->window,
                   [&](const std::string& name) -> const GgufType& { return makers.type_of(name); },
                   {}};
    if (options.progress) work.progress = [&](double done) { options.progress(done, "the layers"); };
    quantize_layers(model, work, *makers.parts, parallel);
  } catch (const Error&) {
    makers.parts->remove();
    throw;
  }
}

void convert_folder(const ModelFile& model, const std::string& out, const QuantizeOptions& options,
                    const kernels::Parallel& parallel, const Makers& makers, Quantized* result) {
  ConvertOptions convert_options;
  if (options.progress)
    convert_options.progress = [&](std::size_t done, std::size_t all) {
      options.progress(static_cast<double>(done) / static_cast<double>(all), tensor_words(done, all));
    };
  convert_options.plan = [&](const std::string& name, std::int64_t) -> const GgufType& { return makers.type_of(name); };
  convert_options.importance = [&](const std::string& name, std::int64_t count) {
    return makers.importance.of(name, count);
  };
  convert_options.made = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    return makers.made(name, rows, columns);
  };
  convert_options.write = options.write;
  const Converted made = convert(model, out, convert_options, parallel);
  result->file_bytes = made.file_bytes;
  result->bytes = made.bytes;
  result->weights = made.weights;
}

/// Writes the folder, or tells its bytes and refuses what no folder can say.
void fill_folder(const ModelFile& model, const std::string& out, const QuantizeOptions& options, bool write,
                 const kernels::Parallel& parallel, const Makers& makers, Quantized* result) {
  folder::FolderContents contents;
  contents.format = options.format;
  contents.type_of = [&](const std::string& name) -> const GgufType& { return makers.type_of(name); };
  contents.bytes_of = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    return makers.made(name, rows, columns);
  };
  contents.write = write;
  if (options.progress)
    contents.progress = [&](std::size_t done, std::size_t all) {
      options.progress(static_cast<double>(done) / static_cast<double>(all), tensor_words(done, all));
    };
  const folder::WrittenFolder made = folder::write_folder(model, out, contents, parallel);
  result->file_bytes = made.file_bytes;
  result->bytes = made.bytes;
  result->weights = made.weights;
}

}  // namespace

Quantized quantize(const ModelFile& model, const std::string& path, const QuantizeOptions& options,
                   const kernels::Parallel& parallel) {
  static_cast<void>(read_config(model));  // a model that is not read is refused before anything is written
  const bool is_folder = options.format != ModelFormat::gguf;
  const std::string out = is_folder && options.write ? formats::new_folder_path(path) : path;
  Quantized result;
  const TypePlan plan = plan_of(model, options);
  Planner planner(model, plan);
  planner.add_all(&result);
  Columns importance(model, options.importance);
  std::optional<Parts> parts;
  const std::map<std::string, const GgufType*> types = types_held(model, options.format, planner, result);
  if (options.write && options.keeps_parts()) parts.emplace(out, run_name(model, result, options));
  const Makers makers{planner, types, importance, parts ? &*parts : nullptr};
  if (is_folder) fill_folder(model, out, options, /*write=*/false, parallel, makers, &result);
  if (parts) make_parts(model, makers, options, parallel);
  if (is_folder)
    fill_folder(model, out, options, options.write, parallel, makers, &result);
  else if (model.is_folder())
    convert_folder(model, out, options, parallel, makers, &result);
  else
    quantize_file(model, out, options, parallel, makers, &result);
  if (parts) parts->remove();
  return result;
}

}  // namespace bie::llm
