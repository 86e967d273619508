// Files that the commands write.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "cli/support/result.h"

namespace bie::cli {

/// To be called before the work, not after it: a ValueError naming the option unless a file can be written at `path`
/// that does not take the place of `other`, which the command writes or reads and sentences call `what`.
void check_output(const char* option, const std::string& path, const std::string& other = {},
                  const char* what = "the model's file");

/// The same for the files that a data set is read from.
void check_output_against_data(const char* option, const std::string& path, const std::string& data);

/// Of a file; null for a pipe or a device.
Json bytes_of(const std::string& path);

/// The text as a file, whole or not at all; `kind` is what sentences call it.
void write_text(const std::string& kind, const std::string& path, const std::string& text);

/// The entry "logits", float32 [images, classes], in a safetensors file.
void save_logits(const at::Tensor& logits, const std::string& path);

}  // namespace bie::cli
