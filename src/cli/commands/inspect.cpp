// bie inspect: what a file holds, layer by layer, and how two files differ.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "bie/data/tensor_files.h"
#include "bie/layers/tensor_diff.h"
#include "bie/models/layer_table.h"
#include "bie/models/model_file.h"
#include "bie/train/evaluation.h"
#include "cli/commands/commands.h"
#include "cli/nets/net_files.h"
#include "cli/support/inspect_weights.h"
#include "cli/support/result.h"
#include "cli/support/session.h"
#include "cli/support/text.h"
#include "formats/json_text.h"

namespace bie::cli {
namespace {

struct Arguments {
  std::string file, other, data;
};

/// Sorted by its keys, of which a file may hold any number: the ordered object of Json looks for each from the front.
using Metadata = nlohmann::json;

/// The JSON of the metadata entry "bie"; null for a file of somebody else.
Metadata metadata_of(const data::SafetensorsFile& file) {
  const auto found = file.metadata.find("bie");
  return found == file.metadata.end() ? Metadata() : formats::parse_json(found->second);
}

bool is_training_checkpoint(const Metadata& metadata) {
  return metadata.is_object() && metadata.value("kind", Metadata()) == "training";
}

/// The fields "step" and "run" of a training checkpoint.
Json checkpoint_json(const std::string& path, const Metadata& metadata) {
  const Metadata step = metadata.value("step", Metadata()), run = metadata.value("run", Metadata());
  const auto wanted = [&](bool good, const char* name, const Metadata& value, const char* what) {
    TORCH_CHECK_VALUE(good, path, ": the metadata entry 'bie': ", name, " of a training checkpoint: expected ", what,
                      ", got ", formats::shown(value));
  };
  wanted(formats::is_whole(step, 0, std::numeric_limits<std::int64_t>::max()), "step", step,
         "a whole number from 0 on");
  wanted(run.is_object(), "run", run, "an object");
  return {{"step", step}, {"run", run}};
}

Json tensors_json(const data::SafetensorsFile& file) {
  Json tensors = Json::array();
  for (const auto& [name, tensor] : file.tensors)
    tensors.push_back({{"name", name},
                       {"dtype", c10::toString(tensor.scalar_type())},
                       {"shape", tensor.sizes().vec()},
                       {"bytes", tensor.nbytes()}});
  return tensors;
}

/// Facts about one linear or convolution.
Json layer_json(const models::ProductLayer& product, const std::map<std::string, double>& saturated) {
  std::int64_t rest = 0, weights = 0;
  std::vector<std::int64_t> shape;
  for (const auto& item : product.layer->named_parameters(/*recurse=*/false)) {
    rest += static_cast<std::int64_t>(item.value().nbytes());
    if (item.key() == "weight") shape = item.value().sizes().vec();
    if (item.key() == "weight") weights = item.value().numel();
  }
  for (const auto& item : product.layer->named_buffers(/*recurse=*/false))
    rest += static_cast<std::int64_t>(item.value().nbytes());
  const auto* layer = dynamic_cast<const layers::IntegerLayer*>(product.layer.get());
  if (layer != nullptr) {
    shape = layer->weight_shape();
    weights = layer->weight_count();
  }
  const auto share = saturated.find(product.name);
  return {{"name", product.name},
          {"kind", layer != nullptr    ? layer->kind()
                   : shape.size() == 4 ? "Conv2d"
                                       : "Linear"},
          {"bits", layer != nullptr ? layer->weight_bits() : 32},
          {"form", layer != nullptr ? layer->weight_form() : "float"},
          {"shape", shape},
          {"weights", weights},
          {"bytes_at_rest", rest},
          {"bytes_resident", rest + (layer != nullptr ? layer->derived_bytes() : 0)},
          {"compression", 4.0 * static_cast<double>(weights) / static_cast<double>(rest)},
          {"scale_a", layer != nullptr ? Json(layer->scale_a.item<float>()) : Json()},
          {"scale_w", layer != nullptr ? Json(layer->scale_w.item<float>()) : Json()},
          {"saturated", share == saturated.end() ? Json() : Json(share->second)}};
}

Json model_json(const Arguments& a, const Metadata& metadata) {
  const auto model = models::load_classifier(a.file);
  std::map<std::string, double> saturated;
  if (!a.data.empty()) {
    data::DataOptions options;
    use_form(options, a.data, model->config());
    const data::Dataset data = data::load_dataset(a.data, options);
    check_fit(model->config(), a.file, data);
    saturated = train::saturated_shares(*model, data.test_images);
  } else {
    // Makes what evaluation holds: packed forms and panels. The smallest input does: the model's image may be large.
    const at::NoGradGuard no_grad;
    for (const auto& layer : model->quant_layers()) {
      std::vector<std::int64_t> input = layer->weight_shape();
      input[0] = 1;
      layer->forward(at::zeros(input));
    }
  }
  Json layers = Json::array();
  for (const models::ProductLayer& product : model->products()) layers.push_back(layer_json(product, saturated));
  return {{"file", a.file},
          {"kind", "model"},
          {"model", metadata},
          {"weights", model->weight_count()},
          {"quantised_weights", model->quantised_count()},
          {"layers", layers}};
}

std::string shape_text(const Json& shape) {
  std::string text;
  for (const Json& size : shape) text += (text.empty() ? "" : "x") + std::to_string(size.get<std::int64_t>());
  return text;
}

std::string text_of(const Json& value) { return printable(value.get<std::string>()); }

void print_model(const Json& model) {
  const Json& c = model["model"];
  std::printf("%s: %s, %d bits, images %s, %lld classes\n%lld weights, %.1f %% of them quantised\n",
              text_of(model["file"]).c_str(), text_of(c.at("arch")).c_str(), c.at("bits").get<int>(),
              shape_text(c.at("image")).c_str(), c.at("classes").get<long long>(), model["weights"].get<long long>(),
              100.0 * model["quantised_weights"].get<double>() / model["weights"].get<double>());
  std::printf("%-15s %-12s %4s %-13s %10s %10s %6s\n", "layer", "kind", "bits", "shape", "at rest", "resident",
              "ratio");
  for (const Json& l : model["layers"])
    std::printf("%-15s %-12s %4d %-13s %10lld %10lld %5.1fx\n", text_of(l["name"]).c_str(), text_of(l["kind"]).c_str(),
                l["bits"].get<int>(), shape_text(l["shape"]).c_str(), l["bytes_at_rest"].get<long long>(),
                l["bytes_resident"].get<long long>(), l["compression"].get<double>());
  if (model["quantised_weights"] == 0) return;
  std::printf("\n%-15s %12s %12s %10s\n", "layer", "scale_a", "scale_w", "saturated");
  for (const Json& l : model["layers"]) {
    if (l["scale_a"].is_null()) continue;
    std::printf("%-15s %12.4e %12.4e %10s\n", text_of(l["name"]).c_str(), l["scale_a"].get<double>(),
                l["scale_w"].get<double>(),
                l["saturated"].is_null() ? "-" : format("%.3f %%", 100 * l["saturated"].get<double>()).c_str());
  }
}

void print_tensors(const Json& file) {
  std::printf("%s: %s\n", text_of(file["file"]).c_str(), text_of(file["kind"]).c_str());
  for (const Json& t : file["tensors"])
    std::printf("%-44s %-8s %-16s %11lld\n", text_of(t["name"]).c_str(), text_of(t["dtype"]).c_str(),
                shape_text(t["shape"]).c_str(), t["bytes"].get<long long>());
}

void inspect_one(const Arguments& a, const Global& global) {
  if (const std::optional<Json> weights = weights_json(a.file)) {
    TORCH_CHECK_VALUE(a.data.empty(), "--data: ", a.file, " is no model of bie");
    if (global.json)
      print_json("inspect", *weights);
    else
      print_weights(*weights);
    return;
  }
  const data::SafetensorsFile file = data::load_safetensors(a.file);
  const Metadata metadata = metadata_of(file);
  const bool checkpoint = is_training_checkpoint(metadata);
  const bool weights = metadata.is_object() && metadata.value("kind", Metadata()) == "weights";  // of Python
  if (metadata.is_object() && !checkpoint && !weights) {
    const Json model = model_json(a, metadata);
    if (global.json)
      print_json("inspect", model);
    else
      print_model(model);
    return;
  }
  TORCH_CHECK_VALUE(a.data.empty(), "--data: ", a.file, " is no model");
  Json result = {{"file", a.file}, {"kind", checkpoint ? "training checkpoint" : "tensors"}};
  if (checkpoint) result.update(checkpoint_json(a.file, metadata));
  result["tensors"] = tensors_json(file);
  if (global.json) {
    print_json("inspect", result);
    return;
  }
  if (checkpoint) result["kind"] = format("training checkpoint after step %lld", metadata["step"].get<long long>());
  print_tensors(result);
}

const char* kind_name(layers::TensorDiff::Kind kind) {
  switch (kind) {
    case layers::TensorDiff::Kind::same: return "same";
    case layers::TensorDiff::Kind::values: return "values";
    case layers::TensorDiff::Kind::form: return "form";
    case layers::TensorDiff::Kind::only_first: return "only in the first";
    case layers::TensorDiff::Kind::only_second: return "only in the second";
  }
  return "";
}

/// The settings of two models that differ, {"bits": [8, 4]}.
Metadata config_diff(const Metadata& first, const Metadata& second) {
  Metadata diff = Metadata::object();
  // Two lists of two words in braces would be an object.
  const auto pair = [](const Metadata& a, const Metadata& b) { return Metadata::array({a, b}); };
  if (!first.is_object() || !second.is_object()) return diff;
  for (const auto& [key, value] : first.items())
    if (!second.contains(key) || second.at(key) != value) diff[key] = pair(value, second.value(key, Metadata()));
  for (const auto& [key, value] : second.items())
    if (!first.contains(key)) diff[key] = pair(Metadata(), value);
  return diff;
}

void inspect_two(const Arguments& a, const Global& global) {
  const data::SafetensorsFile first = data::load_safetensors(a.file), second = data::load_safetensors(a.other);
  const Metadata config = config_diff(metadata_of(first), metadata_of(second));
  const std::vector<layers::TensorDiff> diffs = layers::compare(first.tensors, second.tensors);
  Json tensors = Json::array();
  for (const layers::TensorDiff& d : diffs)
    tensors.push_back({{"name", d.name},
                       {"difference", kind_name(d.kind)},
                       {"share", d.share},
                       {"largest", d.largest},
                       {"first", d.first},
                       {"second", d.second}});
  if (global.json) {
    print_json("inspect", {{"file", a.file}, {"other", a.other}, {"settings", config}, {"tensors", tensors}});
    return;
  }
  for (const auto& [key, values] : config.items())
    std::printf("%s\n", printable(key + ": " + values[0].dump() + ", " + values[1].dump()).c_str());
  std::size_t same = 0;
  for (const layers::TensorDiff& d : diffs) {
    if (d.kind == layers::TensorDiff::Kind::same)
      ++same;
    else if (d.kind == layers::TensorDiff::Kind::values)
      std::printf("%s: %.2f %% of the elements differ, by up to %.4g\n", printable(d.name).c_str(), 100 * d.share,
                  d.largest);
    else if (d.kind == layers::TensorDiff::Kind::form)
      std::printf("%s: %s, %s\n", printable(d.name).c_str(), d.first.c_str(), d.second.c_str());
    else
      std::printf("%s: %s\n", printable(d.name).c_str(), kind_name(d.kind));
  }
  std::printf("%zu of %zu tensors are the same\n", same, diffs.size());
}

}  // namespace

void add_inspect(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("inspect", "What a file holds, layer by layer; how two files differ");
  command
      ->add_option("file", arguments->file,
                   "a model, a net, a training checkpoint, any safetensors file, a GGUF file, or a folder of weights")
      ->required();
  CLI::Option* diff = takes_file(command->add_option("--diff", arguments->other, "another file to compare with"));
  add_data(*command, arguments->data)
      ->description("measure the share of activations that are clipped, on the test images of this data set")
      ->excludes(diff);
  command->footer(
      "Bytes at rest are those of the file, resident ones include what the kernels keep; the ratio is to float32.\n"
      "Examples:\n"
      "  bie inspect mnist4.safetensors --data mnist:data/mnist\n"
      "  bie inspect mnist8.safetensors --diff mnist4.safetensors\n"
      "  bie inspect model.gguf\n"
      "  bie inspect mnist4.safetensors --json | jq '.layers[] | {name, compression}'");
  command->callback([arguments, &global] {
    if (arguments->other.empty() && is_net(arguments->file))
      inspect_net(arguments->file, global);
    else if (arguments->other.empty())
      inspect_one(*arguments, global);
    else
      inspect_two(*arguments, global);
  });
}

}  // namespace bie::cli
