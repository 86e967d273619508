#include "bie/data/tensor_files.h"

#include <c10/util/Exception.h>

#include "bie/formats/safetensors.h"
#include "bie/formats/torch_file.h"
#include "data/tensors.h"
#include "data/value_errors.h"

namespace bie::data {
namespace {

std::map<std::string, at::Tensor> tensors_of(const std::map<std::string, formats::Array>& arrays) {
  Tensors tensors;
  std::map<std::string, at::Tensor> found;
  for (const auto& [name, array] : arrays) found.emplace(name, tensors.of(array));
  return found;
}

formats::DenseArray dense_array(const std::string& path, const std::string& name, const at::Tensor& tensor) {
  const std::string what = "safetensors file " + path + ": tensor " + formats::in_quotes(name);
  TORCH_CHECK_VALUE(tensor.defined(), what, " is undefined");
  const formats::Element element = element_of(what, tensor.scalar_type());
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && !tensor.is_meta(), what,
                    ": expected a strided tensor with values, got one on ", tensor.device(), " with layout ",
                    tensor.layout());
  return {element, tensor.sizes().vec(), [tensor](const std::function<void(const void*)>& take) {
            take(tensor.detach().to(at::kCPU).resolve_neg().contiguous().const_data_ptr());
          }};
}

}  // namespace

SafetensorsFile load_safetensors(const std::string& path) {
  return with_value_errors([&] {
    const formats::SafetensorsFile file = formats::load_safetensors(path);
    return SafetensorsFile{tensors_of(file.arrays), file.metadata};
  });
}

void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::map<std::string, formats::DenseArray> arrays;
  for (const auto& [name, tensor] : tensors) arrays.emplace(name, dense_array(path, name, tensor));
  with_value_errors([&] { formats::save_safetensors(path, arrays, metadata); });
}

std::map<std::string, at::Tensor> load_torch_state_dict(const std::string& path) {
  return with_value_errors([&] { return tensors_of(formats::load_torch_state_dict(path)); });
}

}  // namespace bie::data
