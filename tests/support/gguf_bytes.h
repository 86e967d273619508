// GGUF files with whatever is wrong with them that a test wants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/zip_writer.h"

namespace bie::test {

inline std::string gguf_text(const std::string& text) { return little_endian(text.size(), 8) + text; }

/// A key, the number of a type and the bytes of a value.
inline std::string gguf_pair(const std::string& key, std::uint32_t type, const std::string& value) {
  return gguf_text(key) + little_endian(type, 4) + value;
}

struct GgufEntry {
  std::string name;
  std::uint32_t type;
  std::vector<std::uint64_t> sizes;  ///< the contiguous axis first
  std::uint64_t offset;
};

struct GgufBytes {
  std::vector<std::string> metadata = {};
  std::vector<GgufEntry> tensors = {};
  std::string data = {};
  std::uint32_t version = 3;
  std::size_t alignment = 32;

  std::string head() const {
    std::string bytes =
        "GGUF" + little_endian(version, 4) + little_endian(tensors.size(), 8) + little_endian(metadata.size(), 8);
    for (const std::string& pair : metadata) bytes += pair;
    for (const GgufEntry& t : tensors) {
      bytes += gguf_text(t.name) + little_endian(t.sizes.size(), 4);
      for (const std::uint64_t size : t.sizes) bytes += little_endian(size, 8);
      bytes += little_endian(t.type, 4) + little_endian(t.offset, 8);
    }
    return bytes;
  }
  std::string bytes() const {
    std::string all = head();
    all.resize((all.size() + alignment - 1) / alignment * alignment, '\0');
    return all + data;
  }
};

}  // namespace bie::test
