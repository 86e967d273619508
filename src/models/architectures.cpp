#include <c10/util/Exception.h>

#include "bie/models/architecture.h"
#include "bie/models/classifier.h"

namespace bie::models {

extern const Architecture mlp, lenet, vgg_small, resnet20, custom;

const std::vector<const Architecture*>& architectures() {
  static const std::vector<const Architecture*> all = {&mlp, &lenet, &vgg_small, &resnet20, &custom};
  return all;
}

const Architecture* find_architecture(const std::string& name) {
  for (const Architecture* architecture : architectures())
    if (name == architecture->name) return architecture;
  return nullptr;
}

std::string architecture_names() {
  std::vector<std::string> names;
  for (const Architecture* architecture : architectures())
    if (!architecture->described) names.emplace_back(architecture->name);
  std::string listed;
  for (std::size_t i = 0; i < names.size(); ++i)
    listed += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return listed;
}

const Architecture& architecture_of(const ModelConfig& config) {
  const Architecture* const found = find_architecture(config.arch);
  TORCH_CHECK_VALUE(found != nullptr, "the architecture: expected ", architecture_names(), ", got '", config.arch, "'");
  return *found;
}

}  // namespace bie::models
