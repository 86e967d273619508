#include "bie/formats/new_folder.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "bie/formats/error.h"
#include "bie/formats/replacing_file.h"

namespace bie::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kind = "folder";

}  // namespace

NewFolder::NewFolder(const std::string& path) : path_(path), temporary_(unfinished_name(path)) {
  remove_unfinished(path);
  std::error_code error;
  if (!fs::create_directory(temporary_, error)) {
    temporary_.clear();
    fail_file(kind, path, "cannot be made: ", error ? error.message() : "its place is taken");
  }
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewFolder::commit() {
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) fail_file(kind, path_, "cannot be made: ", error.message());
  temporary_.clear();
}

std::string new_folder_path(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(fs::absolute(behind_links(path), error), error);
  const std::string text = target.has_filename() ? target.string() : target.parent_path().string();
  if (fs::exists(text, error) && !(fs::is_directory(text, error) && fs::is_empty(text, error)))
    fail_file(kind, path, "expected one that is empty or not there, got one with files in it");
  if (fs::equivalent(text, fs::current_path(error), error))
    fail_file(kind, path, "expected another one than the current folder");
  const fs::path parent = fs::path(text).parent_path();
  if (!fs::is_directory(parent, error))
    fail_file(kind, path, "expected a place in a folder that is there, got one in ", parent.string());
  if (::access(parent.c_str(), W_OK) != 0)
    fail_file(kind, path, "expected a place in a folder that can be written, got one in ", parent.string());
  return text;
}

}  // namespace bie::formats
