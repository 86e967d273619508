#include "bie/formats/idx.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "formats/regular_file.h"

namespace bie::formats {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{1} << 20;
constexpr std::uint8_t idx_uint8 = 0x08;

/// An error with these words unless `good`.
template <class... Parts>
void check(bool good, const Parts&... parts) {
  if (!good) throw Error(joined(parts...));
}

struct GzClose {
  void operator()(gzFile file) const { gzclose(file); }
};

/// A plain or gzip file read from front to back.
class Stream {
 public:
  explicit Stream(const std::string& path) : path_(path) {
    const int fd = open_regular("IDX file", path);
    struct stat facts {};
    if (::fstat(fd, &facts) == 0) bytes_ = facts.st_size;
    file_.reset(gzdopen(fd, "rb"));
    if (!file_) ::close(fd);
    check(file_ != nullptr, "IDX file ", path, " cannot be opened: there is not enough memory");
  }

  std::int64_t file_bytes() const { return bytes_; }
  /// Known once something was read.
  bool compressed() const { return gzdirect(file_.get()) == 0; }

  /// Reads up to `count` bytes; fewer only at the end of the file.
  std::int64_t read(std::uint8_t* bytes, std::int64_t count) {
    std::int64_t done = 0;
    while (done < count) {
      const auto step = static_cast<unsigned>(std::min(count - done, chunk_bytes));
      const int got = gzread(file_.get(), bytes + done, step);
      // A gzip file cut short is an end for gzread and shows here alone.
      int code = Z_OK;
      const char* message = gzerror(file_.get(), &code);
      check(got >= 0 && code != Z_BUF_ERROR, "IDX file ", path_,
            " cannot be read: ", code == Z_ERRNO ? std::strerror(errno) : message);
      if (got == 0) break;
      done += got;
    }
    return done;
  }

 private:
  const std::string& path_;
  std::int64_t bytes_ = 0;
  std::unique_ptr<gzFile_s, GzClose> file_;
};

}  // namespace

Array load_idx(const std::string& path) {
  Stream stream(path);
  std::array<std::uint8_t, 4> magic{};
  check(stream.read(magic.data(), 4) == 4 && magic[0] == 0 && magic[1] == 0, "IDX file ", path,
        " does not begin with an IDX header");
  check(magic[2] == idx_uint8, "IDX file ", path, " holds element type ", int{magic[2]},
        ", only 8 (unsigned byte) is read");
  const int rank = magic[3];
  check(rank == 1 || rank == 3, "IDX file ", path, " has rank ", rank, ", only 1 and 3 are read");

  std::vector<std::int64_t> sizes;
  std::int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    std::array<std::uint8_t, 4> b{};
    check(stream.read(b.data(), 4) == 4, "IDX file ", path, " ends inside its header");
    sizes.push_back(std::int64_t{b[0]} << 24 | b[1] << 16 | b[2] << 8 | b[3]);
    // Sizes of zero are counted as one, so that the strides of an empty tensor cannot overflow either.
    check(!__builtin_mul_overflow(count, std::max<std::int64_t>(sizes.back(), 1), &count), "IDX file ", path,
          " has sizes ", listed(sizes), ", whose product overflows");
  }
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) count = 0;

  // A gzip file can hold a thousand times its bytes of zeros; images and labels do not come near this.
  const std::int64_t most = std::max(std::int64_t{256} << 20, 64 * stream.file_bytes());
  check(!stream.compressed() || count <= most, "IDX file ", path, ": its header says ", listed(sizes), ", ", count,
        " bytes; of a gzip file of ", stream.file_bytes(), " at most ", most, " are read");
  // The header's product is a claim: the buffer grows with the bytes that arrive.
  std::vector<std::uint8_t> bytes;
  while (static_cast<std::int64_t>(bytes.size()) < count) {
    const std::size_t before = bytes.size();
    const std::int64_t wanted = std::min(count - static_cast<std::int64_t>(before), chunk_bytes);
    bytes.resize(before + static_cast<std::size_t>(wanted));
    const std::int64_t got = stream.read(bytes.data() + before, wanted);
    check(got == wanted, "IDX file ", path, " ends after ", static_cast<std::int64_t>(before) + got,
          " bytes of data, its header says ", listed(sizes), ", ", count, " bytes");
  }
  // Reading past the end also makes zlib compare the checksum.
  std::uint8_t extra = 0;
  check(stream.read(&extra, 1) == 0, "IDX file ", path, " goes on after the ", count, " bytes of ", listed(sizes));

  return array_of(Element::u8, std::move(sizes), std::move(bytes));
}

}  // namespace bie::formats
