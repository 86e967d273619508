#include "bie/formats/replacing_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "bie/formats/error.h"

namespace bie::formats {
namespace {

constexpr std::string_view unfinished_mark = ".tmp-";
// One write call moves less than 2 GiB on Linux.
constexpr std::int64_t max_transfer_bytes = std::int64_t{1} << 30;

/// The process in a name that ends in .tmp-PID; 0 for any other name.
pid_t writer_of(std::string_view name) {
  const std::size_t mark = name.rfind(unfinished_mark);
  if (mark == std::string_view::npos) return 0;
  const std::string_view digits = name.substr(mark + unfinished_mark.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  return error == std::errc() && end == digits.data() + digits.size() && pid > 0 ? pid : 0;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

std::string behind_links(std::string path) {
  constexpr int most_links = 40;  // as many as Linux follows
  for (int i = 0; i < most_links; ++i) {
    std::error_code error;
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    if (error) return path;
    path = (std::filesystem::path(folder_of(path)) / next).string();
  }
  return {};
}

namespace {

/// Whether a path leads to its file through a descriptor of a process, as /dev/stdout does.
bool is_descriptor(std::string path) {
  std::error_code error;
  for (int i = 0; i < 4; ++i) {
    if (std::filesystem::canonical(folder_of(path), error).string().starts_with("/proc/")) return true;
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    if (error) return false;
    path = (std::filesystem::path(folder_of(path)) / next).string();
  }
  return false;
}

}  // namespace

Destination destination_of(const std::string& kind, const std::string& path) {
  using Kind = Destination::Kind;
  const auto fail = [&](const char* what) { fail_file(kind, path, "cannot be written: ", what); };
  struct stat facts {};
  const bool exists = ::stat(path.c_str(), &facts) == 0;
  if (!exists && errno != ENOENT) fail(std::strerror(errno));
  if (exists && S_ISDIR(facts.st_mode)) fail_file(kind, path, "expected a file, got a folder");
  const bool stream = exists && (S_ISFIFO(facts.st_mode) || S_ISCHR(facts.st_mode));
  if (exists && !stream && !S_ISREG(facts.st_mode)) fail_file(kind, path, "expected a file, got a device or a socket");
  if (exists && ::access(path.c_str(), W_OK) != 0) fail(std::strerror(errno));
  if (stream) return {Kind::stream, path, 0, 0, 0};

  const std::string target = behind_links(path);
  if (target.empty()) fail("its links have no end");
  // Room for .tmp-PID behind it: known before the work, not after it.
  constexpr std::size_t longest_name = 240;
  const std::size_t name_bytes = target.size() - (target.find_last_of('/') + 1);
  if (name_bytes > longest_name)
    fail_file(kind, path, "its name has ", name_bytes, " bytes, at most ", longest_name, " can be written");
  if (::access(folder_of(target).c_str(), W_OK | X_OK) != 0)
    fail_file(kind, path, "the folder ", folder_of(target), " cannot be written: ", std::strerror(errno));
  if (!exists) return {Kind::absent, target, 0, 0, 0};
  struct stat found {};
  const bool same =
      ::lstat(target.c_str(), &found) == 0 && found.st_dev == facts.st_dev && found.st_ino == facts.st_ino;
  if (!same) fail("it leads to a file without a name");  // /proc/self/fd/3 of a file that was removed
  struct stat folder {};
  if (::geteuid() != 0 && ::stat(folder_of(target).c_str(), &folder) == 0 && (folder.st_mode & S_ISVTX) != 0 &&
      folder.st_uid != ::geteuid() && facts.st_uid != ::geteuid())
    fail_file(kind, path, "in the folder ", folder_of(target), " only the file's owner may replace it");
  if (is_descriptor(path)) fail("expected the own name of a file, got one that leads to a file that is open already");
  return {Kind::file, target, facts.st_mode & 0777, facts.st_uid, facts.st_gid};
}

bool is_unfinished(std::string_view name) { return writer_of(name) != 0; }

std::string unfinished_name(const std::string& path) {
  return path + std::string(unfinished_mark) + std::to_string(::getpid());
}

void remove_unfinished(const std::string& path) {
  const std::string stem = path.substr(path.find_last_of('/') + 1) + std::string(unfinished_mark);
  std::error_code error;
  std::filesystem::directory_iterator file(folder_of(path), error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    const pid_t pid = writer_of(name);
    if (pid == 0 || name != stem + std::to_string(pid)) continue;
    std::error_code ignored;
    if (::kill(pid, 0) != 0 && errno == ESRCH) std::filesystem::remove_all(file->path(), ignored);
  }
}

ReplacingFile::ReplacingFile(std::string kind, const std::string& path)
    : kind_(std::move(kind)), path_(path), destination_(destination_of(kind_, path)) {
  const Destination& d = destination_;
  if (d.kind == Destination::Kind::stream) {
    fd_ = ::open(d.path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  } else {
    remove_unfinished(d.path);
    temporary_ = unfinished_name(d.path);
    const bool exists = d.kind == Destination::Kind::file;
    // The replacement of a private file is private from its first byte on.
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, exists ? 0600 : 0666);
    // Where a user or a file system may not give files away, the owner is another.
    if (fd_ >= 0 && exists && ::fchown(fd_, d.user, d.group) != 0) errno = 0;
    if (fd_ >= 0 && exists && ::fchmod(fd_, d.mode) != 0) errno = 0;
  }
  if (fd_ < 0) fail_file(kind_, path_, "cannot be written: ", std::strerror(errno));
}

ReplacingFile::~ReplacingFile() {
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void ReplacingFile::write(const void* bytes, std::int64_t count) const {
  for (std::int64_t done = 0; done < count;) {
    const auto step = static_cast<std::size_t>(std::min(count - done, max_transfer_bytes));
    const ssize_t written = ::write(fd_, static_cast<const char*>(bytes) + done, step);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_file(kind_, path_, "cannot be written: ", std::strerror(errno));
    done += written;
  }
}

void ReplacingFile::commit() {
  if (destination_.kind == Destination::Kind::stream) return;
  if (::fsync(fd_) != 0) fail_file(kind_, path_, "cannot be flushed to disk: ", std::strerror(errno));
  if (::rename(temporary_.c_str(), destination_.path.c_str()) != 0)
    fail_file(kind_, path_, "cannot be replaced: ", std::strerror(errno));
  temporary_.clear();
  // The rename itself reaches the disk with its folder; a file system without this leaves one of the two files.
  const int folder = ::open(folder_of(destination_.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  ::fsync(folder);
  ::close(folder);
}

}  // namespace bie::formats
