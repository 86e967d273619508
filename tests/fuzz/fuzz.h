// Helpers of the fuzz targets: the input as a file, and reads of every byte of a result.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "bie/formats/array.h"
#include "bie/formats/error.h"

namespace bie::formats::fuzz {

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

/// Reads every byte from the first to the last of an array, and requires that they lie in its bytes and that these are
/// no more than the file's. A map's last page would hide a read beyond the file from AddressSanitizer.
inline void touch(const Array& array, std::size_t file_bytes) {
  if (array.count() == 0) return;
  const std::int64_t item = size_of(array.element);
  std::int64_t last = array.offset;
  for (std::size_t i = 0; i < array.sizes.size(); ++i) last += (array.sizes[i] - 1) * array.strides[i];
  const std::int64_t begin = array.offset * item, end = (last + 1) * item;
  require(begin >= 0 && begin <= end && end <= array.bytes->size);
  require(reinterpret_cast<std::uintptr_t>(array.bytes->data) % static_cast<std::size_t>(item) == 0);
  require(static_cast<std::size_t>(array.bytes->size) <= file_bytes &&
          static_cast<std::size_t>(array.count() * item) <= file_bytes);
  unsigned sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += array.bytes->data[i];
  volatile unsigned sink = sum;
  static_cast<void>(sink);
}

}  // namespace bie::formats::fuzz
