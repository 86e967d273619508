// Interface of every kind of model that a file can hold.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bie::models {

class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// The name of its kind in model_kinds().
  virtual const char* kind() const = 0;
  /// The JSON object of which that kind makes such a model anew.
  virtual std::string description() const = 0;
};

struct ModelKind {
  const char* name;
  /// A model of that description, its tensors to be filled from a file that holds `bytes` of them. Much memory is asked
  /// for only where so many bytes can fill it. @throws c10::ValueError, what is wrong in one sentence.
  std::shared_ptr<Model> (*make)(const std::string& description, std::int64_t bytes);
};

/// Kinds of models that files hold; the first is that of files that name none.
const std::vector<ModelKind>& model_kinds();

}  // namespace bie::models
