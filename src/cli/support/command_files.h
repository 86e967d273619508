// The files that a command reads and writes: no output takes the place of an input or of another output.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace bie::cli {

/// Inputs are named first, then outputs, all before the work. A file is the same under whatever name: relative, through
/// symbolic links, by a second hard link. Empty paths are options that are not given. Pipes and character devices may
/// be outputs of several options.
class CommandFiles {
 public:
  /// `what` is what sentences call the input: "the model's file".
  void reads(const std::string& path, const std::string& what);
  void reads(const std::vector<std::string>& paths, const std::string& what);
  /// A folder whose folders have a meaning, so that none may be made in it.
  void reads_folder(const std::string& path, const std::string& what);

  /// @throws formats::Error, one sentence that begins with the option, here and below, unless a file can be written
  /// there and it takes nothing's place.
  void writes(const char* option, const std::string& path);
  /// A folder that the command makes where it is missing, and the files in it.
  void fills(const char* option, const std::string& folder, const std::vector<std::string>& files);

 private:
  void claim(const char* option, const std::string& path);

  std::map<std::pair<dev_t, ino_t>, std::string> read_;  ///< what sentences call the inputs that are there
  std::map<std::string, std::string> folders_;           ///< likewise, by their canonical paths
  std::map<std::string, std::string> written_;           ///< the option, by the canonical path
};

}  // namespace bie::cli
