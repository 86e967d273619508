#include "data/room_for_bytes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace bie::data {
namespace {

std::int64_t memory_of_the_machine() { return std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE); }

/// Where large files may lie: /tmp is in memory on some systems.
std::string folder_of_large_files() {
  const char* const named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/var/tmp";
}

/// A file of that many bytes that has no name any more.
int nameless_file(const std::string& folder, std::int64_t bytes) {
  std::string path = folder + "/bie-pictures-XXXXXX";
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  TORCH_CHECK_VALUE(file >= 0, "pictures of ", bytes, " bytes want a file in ", folder, ": ", std::strerror(errno));
  ::unlink(path.c_str());
  if (const int error = ::posix_fallocate(file, 0, bytes); error != 0) {
    ::close(file);
    TORCH_CHECK_VALUE(false, "pictures of ", bytes, " bytes want a file in ", folder, ": ", std::strerror(error),
                      "; TMPDIR names another folder, --size a smaller size");
  }
  return file;
}

}  // namespace

at::Tensor room_for_bytes(at::IntArrayRef sizes) { return room_for_bytes(sizes, memory_of_the_machine() / 4); }

at::Tensor room_for_bytes(at::IntArrayRef sizes, std::int64_t most_in_memory) {
  const std::int64_t bytes = c10::multiply_integers(sizes);
  if (bytes <= most_in_memory) return at::empty(sizes, at::kByte);
  const int file = nameless_file(folder_of_large_files(), bytes);
  void* const data =
      ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, /*offset=*/0);
  ::close(file);
  TORCH_CHECK_VALUE(data != MAP_FAILED, "pictures of ", bytes, " bytes cannot be mapped: ", std::strerror(errno));
  const auto unmap = [bytes](void* p) { ::munmap(p, static_cast<std::size_t>(bytes)); };
  return at::from_blob(data, sizes, unmap, at::kByte);
}

}  // namespace bie::data
