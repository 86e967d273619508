// The zip directory of a torch.save file.
// Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16 and 4.5.3.
#include <algorithm>

#include "formats/torch_file_parts.h"

namespace bie::formats {
namespace {

constexpr std::int64_t end_bytes = 22, locator_bytes = 20, end64_bytes = 56, central_bytes = 46, local_bytes = 30;
constexpr std::uint64_t end_mark = 0x06054b50, locator_mark = 0x07064b50, end64_mark = 0x06064b50,
                        central_mark = 0x02014b50, local_mark = 0x04034b50;
constexpr std::uint64_t all_ones16 = 0xffff, all_ones32 = 0xffffffff;
constexpr std::uint64_t encrypted_flag = 1;

/// Little-endian numbers of a file, each read checked.
class Numbers {
 public:
  Numbers(const std::string& path, const std::uint8_t* data, std::int64_t size)
      : path_(path), data_(data), size_(size) {}

  std::int64_t size() const { return size_; }
  std::uint64_t number(std::int64_t at, int bytes) const {
    check(at, bytes);
    std::uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | data_[at + i];
    return value;
  }
  /// A size or an offset; those beyond the file are refused where they are used.
  std::int64_t size_at(std::int64_t at, int bytes) const {
    const std::uint64_t value = number(at, bytes);
    if (value > static_cast<std::uint64_t>(size_)) refuse(path_, "the zip directory names byte ", value, " of ", size_);
    return static_cast<std::int64_t>(value);
  }
  std::string text(std::int64_t at, std::int64_t bytes) const {
    check(at, bytes);
    return {reinterpret_cast<const char*>(data_) + at, static_cast<std::size_t>(bytes)};
  }

 private:
  void check(std::int64_t at, std::int64_t bytes) const {
    if (at < 0 || at > size_ - bytes) refuse(path_, "the zip directory leads to byte ", at, " of ", size_);
  }

  const std::string& path_;
  const std::uint8_t* data_;
  std::int64_t size_;
};

struct CentralDirectory {
  std::int64_t begin, end;
  std::uint64_t count;
};

CentralDirectory find_central_directory(const std::string& path, const Numbers& file) {
  const std::int64_t end = file.size() - end_bytes;
  if (end < 0 || file.number(end, 4) != end_mark || file.number(end + 20, 2) != 0) {
    refuse(path, "does not end as a zip file does, it is cut short or none of torch.save");
  }
  CentralDirectory found{};
  std::int64_t bytes = 0;
  const bool is64 = file.number(end + 10, 2) == all_ones16 || file.number(end + 12, 4) == all_ones32 ||
                    file.number(end + 16, 4) == all_ones32;
  if (is64) {
    const std::int64_t locator = end - locator_bytes;
    if (file.number(locator, 4) != locator_mark) refuse(path, "has no zip64 locator");
    const std::int64_t end64 = file.size_at(locator + 8, 8);
    if (file.number(end64, 4) != end64_mark || end64 > locator - end64_bytes) refuse(path, "has no zip64 directory");
    found = {file.size_at(end64 + 48, 8), 0, file.number(end64 + 32, 8)};
    bytes = file.size_at(end64 + 40, 8);
  } else {
    found = {file.size_at(end + 16, 4), 0, file.number(end + 10, 2)};
    bytes = file.size_at(end + 12, 4);
  }
  found.end = found.begin + bytes;
  if (found.end > end) refuse(path, "has a zip directory that goes on to byte ", found.end, " of ", file.size());
  return found;
}

struct Sizes {
  std::int64_t unpacked, packed, local;
};

/// The sizes of a central header; those that are all ones are in its zip64 field.
Sizes sizes_of(const std::string& path, const Numbers& file, std::int64_t header, std::int64_t extra,
               std::int64_t extra_end) {
  std::int64_t field = extra;
  std::int64_t field_end = extra;
  while (extra_end - extra >= 4) {
    const auto bytes = static_cast<std::int64_t>(file.number(extra + 2, 2));
    if (bytes > extra_end - extra - 4) break;
    if (file.number(extra, 2) == 1) {
      field = extra + 4;
      field_end = field + bytes;
      break;
    }
    extra += 4 + bytes;
  }
  const auto next = [&](std::int64_t at) {
    if (file.number(at, 4) != all_ones32) return file.size_at(at, 4);
    if (field_end - field < 8) refuse(path, "has a zip entry without its zip64 sizes");
    field += 8;
    return file.size_at(field - 8, 8);
  };
  // The order in which the zip64 field holds them.
  const std::int64_t unpacked = next(header + 24);
  const std::int64_t packed = next(header + 20);
  return {unpacked, packed, next(header + 42)};
}

}  // namespace

ZipDirectory read_zip_directory(const std::string& path, const std::uint8_t* data, std::int64_t size) {
  const Numbers file(path, data, size);
  const CentralDirectory central = find_central_directory(path, file);
  ZipDirectory directory;
  struct Extent {
    std::int64_t begin, end;
  };
  std::vector<Extent> extents;
  std::int64_t at = central.begin;
  for (; at < central.end;) {
    if (file.number(at, 4) != central_mark) refuse(path, "has no zip entry at byte ", at);
    const auto name_bytes = static_cast<std::int64_t>(file.number(at + 28, 2));
    const auto extra_bytes = static_cast<std::int64_t>(file.number(at + 30, 2));
    const auto comment_bytes = static_cast<std::int64_t>(file.number(at + 32, 2));
    const std::int64_t extra = at + central_bytes + name_bytes;
    const std::string name = file.text(at + central_bytes, name_bytes);
    const Sizes sizes = sizes_of(path, file, at, extra, extra + extra_bytes);
    if (file.number(at + 10, 2) != 0 || sizes.packed != sizes.unpacked) {
      refuse(path, "the entry ", in_quotes(name), " is compressed, torch.save stores entries as they are");
    }
    if ((file.number(at + 8, 2) & encrypted_flag) != 0) refuse(path, "the entry ", in_quotes(name), " is encrypted");
    if (file.number(sizes.local, 4) != local_mark) {
      refuse(path, "the entry ", in_quotes(name), " has no header at byte ", sizes.local);
    }
    const std::int64_t begin = sizes.local + local_bytes + static_cast<std::int64_t>(file.number(sizes.local + 26, 2)) +
                               static_cast<std::int64_t>(file.number(sizes.local + 28, 2));
    if (begin > central.begin - sizes.unpacked) {
      refuse(path, "the entry ", in_quotes(name), " of ", sizes.unpacked, " bytes does not lie before the directory");
    }
    if (directory.entries.empty()) directory.first = name;
    if (!directory.entries.emplace(name, ZipEntry{begin, sizes.unpacked}).second) {
      refuse(path, "the entry ", in_quotes(name), " appears twice");
    }
    extents.push_back({sizes.local, begin + sizes.unpacked});
    at = extra + extra_bytes + comment_bytes;
  }
  if (at != central.end || extents.size() != central.count) {
    refuse(path, "has a zip directory of ", extents.size(), " entries that claims ", central.count);
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) refuse(path, "has zip entries that overlap at byte ", extents[i].begin);
  }
  return directory;
}

}  // namespace bie::formats
