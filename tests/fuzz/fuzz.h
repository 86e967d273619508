// What the fuzz targets share: an input as a file, and a look at every byte of what was read from it.
#pragma once

#include <ATen/core/Tensor.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace bie::io::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// The path of one file in memory, filled anew by each call.
inline const std::string& file_of(const void* bytes, std::size_t size) {
  static const int fd = memfd_create("input", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  require(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == static_cast<ssize_t>(size));
  return path;
}

/// Reads every byte from the first to the last of a tensor, and requires that they lie in its storage and that this is
/// no larger than the file. A map's last page would hide a read beyond the file from AddressSanitizer.
inline void touch(const at::Tensor& tensor, std::size_t file_bytes) {
  if (tensor.numel() == 0) return;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto bytes = static_cast<std::size_t>(last + 1) * tensor.element_size();
  const auto* begin = static_cast<const std::uint8_t*>(tensor.const_data_ptr());
  const auto* storage = static_cast<const std::uint8_t*>(tensor.storage().data());
  require(begin >= storage && begin + bytes <= storage + tensor.storage().nbytes());
  require(tensor.storage().nbytes() <= file_bytes && tensor.nbytes() <= file_bytes);
  unsigned sum = 0;
  for (std::size_t i = 0; i < bytes; ++i) sum += begin[i];
  volatile unsigned sink = sum;
  static_cast<void>(sink);
}

}  // namespace bie::io::fuzz
