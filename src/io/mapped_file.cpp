#include "io/mapped_file.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/file_error.h"
#include "io/regular_file.h"

namespace bie::io {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

}  // namespace

MappedFile::MappedFile(const std::string& kind, const std::string& path) {
  const Descriptor file{open_regular(kind, path)};
  struct stat facts {};
  if (::fstat(file.fd, &facts) != 0) fail_file(kind, path, "cannot be examined: ", std::strerror(errno));
  if (facts.st_size == 0) return;
  // MAP_NORESERVE: a private writable map is otherwise refused where the file is larger than the memory that is free.
  void* map = ::mmap(nullptr, static_cast<std::size_t>(facts.st_size), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_NORESERVE, file.fd, 0);
  if (map == MAP_FAILED) fail_file(kind, path, "cannot be mapped: ", std::strerror(errno));
  data_ = static_cast<std::uint8_t*>(map);
  size_ = facts.st_size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(size_));
}

at::Storage mapped_storage(const std::shared_ptr<MappedFile>& file, std::int64_t begin, std::int64_t count,
                           std::int64_t alignment) {
  const auto bytes = static_cast<std::size_t>(count);
  std::uint8_t* data = file->data() + begin;
  at::DataPtr pointer;
  if (begin % alignment == 0) {
    auto* owner = new std::shared_ptr<MappedFile>(file);
    pointer = {data, owner, [](void* p) { delete static_cast<std::shared_ptr<MappedFile>*>(p); }, at::kCPU};
  } else {
    pointer = c10::GetDefaultCPUAllocator()->allocate(bytes);
    std::memcpy(pointer.get(), data, bytes);
  }
  return {at::Storage::use_byte_size_t(), bytes, std::move(pointer)};
}

at::Tensor view_of(const at::Storage& storage, at::ScalarType type, std::int64_t offset, at::IntArrayRef sizes,
                   at::IntArrayRef strides) {
  return at::empty({0}, type).set_(storage, offset, sizes, strides);
}

bool are_bools(const std::uint8_t* bytes, std::int64_t count) {
  return std::all_of(bytes, bytes + count, [](std::uint8_t b) { return b <= 1; });
}

}  // namespace bie::io
