// Files of torch.save: a zip archive with a pickle of the objects and one entry for each storage.
// Source: torch/serialization.py and torch/_utils.py of PyTorch 2.11.
#pragma once

#include <map>
#include <string>

#include "bie/formats/array.h"

namespace bie::formats {

/// The tensors of a state dict, from torch.save(model.state_dict(), f) or torch.save({"state_dict": ...}, f): where the
/// outermost dict holds a dict under "state_dict", "model" or "model_state_dict", the first of these is taken. Entries
/// that are no tensors are left out; requires_grad and the device that a tensor was saved from are dropped.
///
/// The pickle is read by a machine of ours that makes dicts, lists, numbers, strings and tensors; nothing is executed,
/// and a name of any other class or function in it is refused. Sizes are checked against the file before anything is
/// allocated. Checksums are not compared. The arrays are views into a map of the file, as those of load_safetensors
/// are, and views of one storage stay views of one.
/// Dtypes: bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64.
/// @throws Error, one sentence naming the file and the entry.
std::map<std::string, Array> load_torch_state_dict(const std::string& path);

}  // namespace bie::formats
