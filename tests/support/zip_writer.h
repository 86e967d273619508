// Zip files with whatever is wrong with them that a test wants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bie::test {

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

struct ZipMember {
  std::string name, bytes;
  std::uint64_t method = 0, flags = 0;
  std::optional<std::uint64_t> claimed = {};  ///< the size its directory entry names, where it is not the true one
};

inline std::string zip_of(const std::vector<ZipMember>& members) {
  std::string file;
  std::string directory;
  for (const ZipMember& m : members) {
    const std::string size = little_endian(m.claimed.value_or(m.bytes.size()), 4);
    // Flags, method, time, date, checksum, sizes, length of the name and of the extra field.
    const std::string common = little_endian(m.flags, 2) + little_endian(m.method, 2) + std::string(8, '\0') + size +
                               size + little_endian(m.name.size(), 2) + std::string(2, '\0');
    directory +=
        "PK\1\2" + std::string(4, '\0') + common + std::string(10, '\0') + little_endian(file.size(), 4) + m.name;
    file += std::string("PK\3\4\0\0", 6) + common + m.name + m.bytes;
  }
  const std::string count = little_endian(members.size(), 2);
  const std::string end = std::string("PK\5\6\0\0\0\0", 8) + count + count + little_endian(directory.size(), 4) +
                          little_endian(file.size(), 4) + std::string(2, '\0');
  return file + directory + end;
}

}  // namespace bie::test
