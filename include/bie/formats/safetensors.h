// safetensors files: 8-byte little-endian header length, JSON header, then the tensors' bytes without gaps.
// Source: the format description of huggingface/safetensors.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bie/formats/array.h"

namespace bie::formats {

struct SafetensorsFile {
  std::map<std::string, Array> arrays;          ///< dense
  std::map<std::string, std::string> metadata;  ///< the header's `__metadata__`
};

/// Maps a file and trusts nothing in it: sizes are checked against the file before anything is allocated.
/// The arrays are views into the map, which lives as long as any of them: memory is taken as they are read, a write to
/// one copies the pages it touches and never reaches the file, and the file may be renamed over or removed meanwhile. A
/// file that another process truncates meanwhile ends this one with SIGBUS (our writers rename and never truncate).
/// An array that does not lie at a multiple of its element's size is copied; a BOOL is read here, to check its bytes.
/// Dtypes: BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64.
/// @throws Error, one sentence naming the file and the entry.
SafetensorsFile load_safetensors(const std::string& path);

/// An array to be written, row-major.
struct DenseArray {
  Element element;
  std::vector<std::int64_t> sizes;
  /// Calls its argument with the bytes; asked for them once, when it is their turn.
  std::function<void(const std::function<void(const void*)>&)> with_bytes;
};

/// The file is written beside `path`, flushed to disk and renamed, so that a failed write leaves what was at `path`.
/// @throws Error, one sentence naming the file and the entry.
void save_safetensors(const std::string& path, const std::map<std::string, DenseArray>& arrays,
                      const std::map<std::string, std::string>& metadata);

/// The bytes of the file that save_safetensors would write. @throws as it does for what is wrong with the entries.
std::int64_t safetensors_bytes(const std::string& path, const std::map<std::string, DenseArray>& arrays,
                               const std::map<std::string, std::string>& metadata);

}  // namespace bie::formats
