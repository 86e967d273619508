// Files that the commands write, and those that they read.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bie/data/dataset.h"
#include "cli/support/command_files.h"
#include "cli/support/result.h"

namespace bie::cli {

/// Names the files of a data set as inputs.
void reads_data(CommandFiles& files, const std::string& spec, const data::DataOptions& options = {});

/// Size of a file; null for a pipe or a device.
Json bytes_of(const std::string& path);

/// The text as a file, whole or not at all; `kind` is what sentences call it.
void write_text(const std::string& kind, const std::string& path, const std::string& text);

/// The entry "logits", float32 [images, classes], in a safetensors file.
void save_logits(const at::Tensor& logits, const std::string& path);

}  // namespace bie::cli
