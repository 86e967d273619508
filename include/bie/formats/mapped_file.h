// Files read through memory: arrays that are views into them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bie/formats/array.h"

namespace bie::formats {

/// A whole regular file in memory. The map is private and writable: a write copies the page it touches and never
/// reaches the file. It outlives the file's name; a file cut short by another process ends this one with SIGBUS where a
/// page beyond its new end is read.
class MappedFile {
 public:
  /// @param kind  what sentences call the file.
  /// @throws Error, one sentence naming the file.
  MappedFile(const std::string& kind, const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::uint8_t* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Bytes [begin, begin + count) of the file, which keep the map alive; a copy of them where `begin` is no multiple of
/// `alignment`.
std::shared_ptr<const Bytes> mapped_bytes(const std::shared_ptr<MappedFile>& file, std::int64_t begin,
                                          std::int64_t count, std::int64_t alignment);

/// Takes the pages that lie wholly in bytes of a map out of this process; who reads them again reads the file. Only
/// where nobody has written to them: what was written is lost. Bytes that are no view of a file stay.
void let_go(const Bytes& bytes);

}  // namespace bie::formats
