#include "bie/layers/bie_checkpoint.h"

#include <c10/util/Exception.h>

#include "bie/data/tensor_files.h"

namespace bie::layers {

void load_bie_checkpoint(torch::nn::Module& module, const std::string& path) {
  try {
    load_state_dict(module, data::load_torch_state_dict(path));
  } catch (const c10::ValueError& error) {
    const std::string sentence = error.what_without_backtrace();
    TORCH_CHECK_VALUE(false, sentence.find(path) == std::string::npos ? path + ": " + sentence : sentence);
  }
  for (const auto& [name, layer] : quant_layers(module)) {
    const auto& shape = layer->weight_shape();
    if (shape.size() == 4 && shape[2] * shape[3] > 1)
      TORCH_WARN(path, ": BITorch Engine's GPU kernel for the convolution '", name,
                 "' read its bytes in another order and computed no convolution; if it was trained there, its accuracy "
                 "does not carry over");
  }
}

}  // namespace bie::layers
