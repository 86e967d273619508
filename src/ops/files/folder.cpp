// Folders of safetensors and their weight-only layers, for Python: weights_folder_read.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "bie/formats/coded_layers.h"
#include "bie/formats/safetensors.h"
#include "bie/formats/weights_folder.h"
#include "ops/files/file_tensors.h"
#include "ops/files/json.h"

namespace bie::ops {
namespace {

#if BIE_WITH_JSON
using formats::CodedLayer;

constexpr const char* kind_names[] = {"gptq", "gptq2", "gba", "mbwq", "mixed", "embedding"};

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

formats::Element element_of(const std::string& name, at::ScalarType type) {
  using formats::Element;
  switch (type) {
    case at::kBool: return Element::boolean;
    case at::kByte: return Element::u8;
    case at::kChar: return Element::i8;
    case at::kShort: return Element::i16;
    case at::kInt: return Element::i32;
    case at::kLong: return Element::i64;
    case at::kHalf: return Element::f16;
    case at::kBFloat16: return Element::bf16;
    case at::kFloat: return Element::f32;
    case at::kDouble: return Element::f64;
    case at::kUInt16: return Element::u16;
    case at::kUInt32: return Element::u32;
    case at::kUInt64: return Element::u64;
    case at::kFloat8_e4m3fn: return Element::f8_e4m3;
    case at::kFloat8_e5m2: return Element::f8_e5m2;
    case at::kFloat8_e8m0fnu: return Element::f8_e8m0;
    case at::kComplexFloat: return Element::c64;
    default: TORCH_CHECK_VALUE(false, "tensor '", name, "' is ", type, ", which safetensors files do not have");
  }
}

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
      .add("zero_bias", layer.zero_bias ? "true" : "false")
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

/// Tensors of a state dict in a safetensors file whose metadata entry "bie" is `own`, where that is not empty.
void safetensors_write(std::string path, std::vector<std::string> names, const std::vector<at::Tensor>& tensors,
                       std::string own) {
  TORCH_CHECK_VALUE(names.size() == tensors.size(), "safetensors_write: ", names.size(), " names of ", tensors.size(),
                    " tensors");
  std::map<std::string, formats::DenseArray> arrays;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const at::Tensor tensor = tensors[i].detach();
    arrays[names[i]] = {element_of(names[i], tensor.scalar_type()), tensor.sizes().vec(),
                        [tensor](const std::function<void(const void*)>& take) {
                          take(tensor.to(at::kCPU).contiguous().const_data_ptr());
                        }};
  }
  std::map<std::string, std::string> metadata;
  if (!own.empty()) metadata["bie"] = own;
  with_file_errors([&] { formats::save_safetensors(path, arrays, metadata); });
}
#else
void safetensors_write(std::string path, std::vector<std::string>, const std::vector<at::Tensor>&, std::string) {
  TORCH_CHECK(false, "safetensors_write: ", path,
              " is not written: this build of bie found no nlohmann-json, which the writer needs");
}

std::tuple<std::string, std::vector<at::Tensor>> weights_folder_read(std::string path) {
  TORCH_CHECK(false, "weights_folder_read: ", path,
              " is not read: this build of bie found no nlohmann-json, which readers of folders need");
}
#endif

}  // namespace
}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CompositeExplicitAutograd, m) {
  m.impl("weights_folder_read", bie::ops::weights_folder_read);
  m.impl("safetensors_write", bie::ops::safetensors_write);
}
