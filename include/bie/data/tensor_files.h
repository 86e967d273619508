// Files of tensors: safetensors, read and written, and those of torch.save, read.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace bie::data {

struct SafetensorsFile {
  std::map<std::string, at::Tensor> tensors;    ///< contiguous, on the CPU
  std::map<std::string, std::string> metadata;  ///< the header's `__metadata__`
};

/// The tensors are views of formats::load_safetensors' arrays, whose rules they follow: a map of the file, which a
/// write to a tensor never reaches.
/// @throws c10::ValueError, one sentence naming the file and the entry.
SafetensorsFile load_safetensors(const std::string& path);

/// Writes the values of `tensors`, wherever they lie and however they are strided. The file is written beside `path`,
/// flushed to disk and renamed, so that a failed write leaves what was at `path`.
/// @throws c10::ValueError, one sentence naming the file and the entry.
void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata);

/// The tensors of a state dict that torch.save wrote, as formats::load_torch_state_dict finds them, on the CPU. Views
/// of one storage stay views of one.
/// @throws c10::ValueError, one sentence naming the file and the entry.
std::map<std::string, at::Tensor> load_torch_state_dict(const std::string& path);

}  // namespace bie::data
