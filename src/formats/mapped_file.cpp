#include "bie/formats/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "bie/formats/error.h"
#include "formats/regular_file.h"

namespace bie::formats {
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

std::shared_ptr<const Bytes> mapped_bytes(const std::shared_ptr<MappedFile>& file, std::int64_t begin,
                                          std::int64_t count, std::int64_t alignment) {
  std::uint8_t* data = file->data() + begin;
  if (begin % alignment == 0) return std::make_shared<Bytes>(Bytes{data, count, file, true});
  const auto copy = std::make_shared<std::vector<std::uint8_t>>(data, data + count);
  return std::make_shared<Bytes>(Bytes{copy->data(), count, copy, false});
}

void let_go(const Bytes& bytes) {
  if (!bytes.is_mapped) return;
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const auto begun =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(bytes.data) % static_cast<std::uintptr_t>(page));
  const std::int64_t skipped = (page - begun) % page, whole = (bytes.size - skipped) / page * page;
  if (whole > 0) ::madvise(bytes.data + skipped, static_cast<std::size_t>(whole), MADV_DONTNEED);  // a request
}

}  // namespace bie::formats
