// safetensors files: 8-byte little-endian header length, JSON header, then the tensors' bytes without gaps.
// Source: the format description of huggingface/safetensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace bie::io {

struct SafetensorsFile {
  std::map<std::string, at::Tensor> tensors;    ///< contiguous, on the CPU, owning their memory
  std::map<std::string, std::string> metadata;  ///< the header's `__metadata__`
};

/// Reads a whole file and trusts nothing in it: sizes are checked against the file before anything is allocated.
/// Dtypes: BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64.
/// @throws c10::ValueError, one sentence naming the file and the entry.
SafetensorsFile load_safetensors(const std::string& path);

/// Writes the values of `tensors`, wherever they lie and however they are strided. The file is written beside `path`,
/// flushed to disk and renamed, so that a failed write leaves what was at `path`.
/// @throws c10::ValueError, one sentence naming the file and the entry.
void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata);

}  // namespace bie::io
