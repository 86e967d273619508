// Folders of safetensors and their weight-only layers, for Python: weights_folder_read.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <vector>

#include "bie/formats/coded_layers.h"
#include "bie/formats/weights_folder.h"
#include "ops/files/file_tensors.h"
#include "ops/files/json.h"

namespace bie::ops {
namespace {

#if BIE_WITH_JSON
using formats::CodedLayer;

constexpr const char* kind_names[] = {"gptq", "gptq2", "gba", "mbwq", "mixed"};

/// Arrays by their names: {"element": ..., "shape": ..., "bytes": where in the list}.
class Arrays {
 public:
  std::string add(const std::map<std::string, formats::Array>& arrays) {
    JsonList json('{');
    for (const auto& [name, array] : arrays) {
      JsonList sizes('[');
      for (const std::int64_t size : array.sizes) sizes.add(std::to_string(size));
      json.add(name, JsonList('{')
                         .add("element", json_text(formats::name(array.element)))
                         .add("shape", sizes.close())
                         .add("bytes", std::to_string(bytes.size()))
                         .close());
      bytes.push_back(bytes_tensor(array.bytes));
    }
    return json.close();
  }

  std::vector<at::Tensor> bytes;
};

std::string layer_json(const CodedLayer& layer, Arrays* arrays) {
  return JsonList('{')
      .add("kind", json_text(kind_names[static_cast<int>(layer.kind)]))
      .add("bits", std::to_string(layer.bits))
      .add("in_features", std::to_string(layer.in_features))
      .add("out_features", std::to_string(layer.out_features))
      .add("group_size", std::to_string(layer.group))
      .add("scale_group", std::to_string(layer.scale_group))
      .add("whole_zeros", layer.whole_zeros ? "true" : "false")
      .add("by_column", layer.by_column ? "true" : "false")
      .add("tensors", arrays->add(layer.tensors))
      .close();
}

/// {"layers": {name: facts}, "tensors": {name: array}, "configs": {name: text}}, and the bytes of every array.
std::tuple<std::string, std::vector<at::Tensor>> weights_folder_read(std::string path) {
  return with_file_errors([&] {
    const formats::WeightsFolder folder = formats::load_weights_folder(path);
    const formats::CodedModel model = formats::coded_layers(folder);
    Arrays arrays;
    JsonList layers('{'), configs('{');
    for (const auto& [name, layer] : model.layers) layers.add(name, layer_json(layer, &arrays));
    for (const auto& [name, text] : folder.configs) configs.add(name, json_text(text));
    JsonList json('{');
    json.add("layers", layers.close()).add("tensors", arrays.add(model.rest)).add("configs", configs.close());
    return std::make_tuple(json.close(), std::move(arrays.bytes));
  });
}
#else
std::tuple<std::string, std::vector<at::Tensor>> weights_folder_read(std::string path) {
  TORCH_CHECK(false, "weights_folder_read: ", path,
              " is not read: this build of bie found no nlohmann-json, which readers of folders need");
}
#endif

}  // namespace
}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CompositeExplicitAutograd, m) { m.impl("weights_folder_read", bie::ops::weights_folder_read); }
