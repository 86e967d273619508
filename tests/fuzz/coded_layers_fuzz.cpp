// Any texts as configurations and an index and any bytes as a safetensors file: one sentence, or layers whose tensors
// lie in the file. The input is four texts, each behind its length in two bytes, the last one the metadata of our own
// files, and the file.
#include "bie/formats/coded_layers.h"

#include "bie/formats/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  WeightsFolder folder;
  folder.path = "input";
  for (const char* name : {"config.json", "quantize_config.json", "quant_strategy.json", "own"}) {
    if (size < 2) return 0;
    const std::size_t length = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
    const std::string text(reinterpret_cast<const char*>(data) + 2, length);
    data += 2 + length;
    size -= 2 + length;
    if (!text.empty() && std::string(name) == "own")
      folder.own.push_back(text);
    else if (!text.empty())
      folder.configs[name] = text;
    try {
      read_weights_index("input", text);
    } catch (const bie::formats::Error&) {
    }
  }
  try {
    folder.arrays = load_safetensors(fuzz::file_of(data, size)).arrays;
    const CodedModel model = coded_layers(folder);
    std::size_t tensors = model.rest.size();
    for (const auto& [name, layer] : model.layers) {
      fuzz::require(layer.in_features > 0 && layer.out_features > 0 && layer.group > 0);
      for (const auto& [key, array] : layer.tensors) {
        // Zeros that a symmetric file leaves out are made, and an index of int64 becomes one of int32.
        const bool is_made = folder.arrays.count(name + "." + key) == 0;
        fuzz::touch(array, is_made ? 8 * size : size);
        if (!is_made) ++tensors;
      }
    }
    fuzz::require(tensors <= folder.arrays.size());
  } catch (const bie::formats::Error&) {
  }
  return 0;
}
