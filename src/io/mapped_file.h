// Files read through memory: tensors that are views into them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace bie::io {

/// A whole regular file in memory. The map is private and writable: a write copies the page it touches and never
/// reaches the file. It outlives the file's name; a file cut short by another process ends this one with SIGBUS where a
/// page beyond its new end is read.
class MappedFile {
 public:
  /// @param kind  what sentences call the file.
  /// @throws c10::ValueError, one sentence naming the file.
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

/// Bytes [begin, begin + count) of the file as a storage that keeps the map alive; a copy of them where `begin` is no
/// multiple of `alignment`.
at::Storage mapped_storage(const std::shared_ptr<MappedFile>& file, std::int64_t begin, std::int64_t count,
                           std::int64_t alignment);

/// The view of a storage; the caller has checked that it lies inside.
at::Tensor view_of(const at::Storage& storage, at::ScalarType type, std::int64_t offset, at::IntArrayRef sizes,
                   at::IntArrayRef strides);

/// Whether every byte is 0 or 1: any other in a bool is undefined behaviour wherever it is read.
bool are_bools(const std::uint8_t* bytes, std::int64_t count);

}  // namespace bie::io
