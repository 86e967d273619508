#include "cli/support/command_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "bie/formats/error.h"
#include "bie/formats/replacing_file.h"

namespace bie::cli {
namespace {

namespace fs = std::filesystem;

/// One text per file or folder, whether it is there or not.
fs::path canonical(const std::string& path) {
  const std::string target = formats::behind_links(path);  // empty where links go round in circles
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(fs::absolute(target.empty() ? path : target, ignored), ignored);
  return whole.has_filename() ? whole : whole.parent_path();
}

bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

void CommandFiles::reads(const std::string& path, const std::string& what) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode))
    read_.emplace(std::pair(facts.st_dev, facts.st_ino), what);
}

void CommandFiles::reads(const std::vector<std::string>& paths, const std::string& what) {
  for (const std::string& path : paths) reads(path, what);
}

void CommandFiles::reads_folder(const std::string& path, const std::string& what) {
  if (!path.empty()) folders_.emplace(canonical(path).string(), what);
}

void CommandFiles::claim(const char* option, const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0)
    if (const auto input = read_.find({facts.st_dev, facts.st_ino}); input != read_.end())
      throw formats::Error(formats::joined(option, ": ", path, " is ", input->second));
  const auto [place, is_new] = written_.emplace(canonical(path).string(), option);
  if (!is_new) throw formats::Error(formats::joined(option, ": ", path, " is a file that ", place->second, " writes"));
}

void CommandFiles::writes(const char* option, const std::string& path) {
  if (path.empty()) return;
  struct stat facts {};
  const bool is_there = ::stat(path.c_str(), &facts) == 0;
  if (!is_there || S_ISREG(facts.st_mode)) claim(option, path);
  formats::destination_of(std::string(option) + ":", path);
}

void CommandFiles::fills(const char* option, const std::string& folder, const std::vector<std::string>& files) {
  if (folder.empty()) return;
  const fs::path own = canonical(folder);
  for (const auto& [path, what] : folders_)
    if (is_within(own, path))
      throw formats::Error(
          formats::joined(option, ": expected a folder elsewhere, got ", folder, ", which lies in ", what));
  for (const std::string& file : files) claim(option, file);
}

}  // namespace bie::cli
