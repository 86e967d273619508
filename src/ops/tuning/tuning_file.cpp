#include "ops/tuning/tuning_file.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

namespace bie::ops {
namespace {

constexpr const char* header = "bie gemm tuning 1";
constexpr int key_fields = 8;

/// A key's fields, with tabs between them, to the row's name.
using Choices = std::map<std::string, std::string>;

std::string text_of(const TuningKey& key) {
  return c10::str(key.processor, '\t', key.architecture, '\t', key.driver, '\t', BIE_VERSION, '\t', key.table, '\t',
                  key.m, '\t', key.n, '\t', key.k);
}

std::filesystem::path file_path() {
  const auto from = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto dir = from("BIE_CACHE_DIR"); !dir.empty()) return dir / "gemm_tuning.tsv";
  if (const auto dir = from("XDG_CACHE_HOME"); !dir.empty()) return dir / "bie" / "gemm_tuning.tsv";
  if (const auto dir = from("HOME"); !dir.empty()) return dir / ".cache" / "bie" / "gemm_tuning.tsv";
  return {};
}

/// Empty if there is no file; empty with a warning if it is damaged.
Choices read_file(const std::filesystem::path& path) {
  Choices choices;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return choices;  // a pipe would be waited for
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return choices;
  bool sound = line == header;
  while (sound && std::getline(file, line)) {
    const std::size_t last = line.rfind('\t');
    sound = std::count(line.begin(), line.end(), '\t') == key_fields && last + 1 < line.size();
    if (sound) choices[line.substr(0, last)] = line.substr(last + 1);
  }
  if (sound) return choices;
  TORCH_WARN_ONCE("bie: ", path.string(), " is damaged and ignored; kernels are chosen by shape");
  return {};
}

/// Replaces the file by one with one more choice, atomically; false and an errno if it cannot be written.
bool replace_file(const std::filesystem::path& path, const std::string& key, const std::string& row) {
  Choices all = read_file(path);
  all[key] = row;
  const std::string part = c10::str(path.string(), ".", ::getpid());
  std::ofstream file(part);
  file << header << '\n';
  for (const auto& [k, name] : all) file << k << '\t' << name << '\n';
  file.close();
  if (file && ::rename(part.c_str(), path.c_str()) == 0) return true;
  const int reason = errno;
  ::unlink(part.c_str());
  errno = reason;
  return false;
}

/// Adds one choice to the file. If the file cannot be written, the next process tunes again.
void add_to_file(const std::filesystem::path& path, const std::string& key, const std::string& row) {
  std::error_code ignored;  // open says why there is no folder
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::string lock_path = path.string() + ".lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0 || ::flock(lock, LOCK_EX) != 0 || !replace_file(path, key, row)) {
    TORCH_WARN_ONCE("bie: ", path.string(), " cannot be written (", std::strerror(errno),
                    "): tuned kernels are known to this process alone");
  }
  if (lock >= 0) ::close(lock);
}

/// The choices of this process, read from the file once; guarded by its mutex.
struct Memory {
  std::mutex mutex;
  bool read = false;
  Choices choices;

  Choices& all() {
    if (!read) choices = read_file(file_path());
    read = true;
    return choices;
  }
};
Memory& memory() {
  static Memory it;
  return it;
}

}  // namespace

bool any_remembered() {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  return !memory().all().empty();
}

std::string remembered_kernel(const TuningKey& key) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const Choices& choices = memory().all();
  const auto found = choices.find(text_of(key));
  return found == choices.end() ? "" : found->second;
}

void remember_kernel(const TuningKey& key, const std::string& row) {
  const std::string text = text_of(key);
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().all()[text] = row;
  const auto path = file_path();
  if (!path.empty()) return add_to_file(path, text, row);
  TORCH_WARN_ONCE(
      "bie: none of BIE_CACHE_DIR, XDG_CACHE_HOME and HOME is set: tuned kernels are known to this process ", "alone");
}

}  // namespace bie::ops
