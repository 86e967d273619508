// A folder that appears in one step.
#pragma once

#include <string>

namespace bie::formats {

/// A folder that takes its name when all is in it, and leaves no trace if that point is not reached. Until then it is
/// PATH.tmp-PID beside it; the folder of a process that was killed is removed by the next writer to the same path.
class NewFolder {
 public:
  /// @param path  of a folder that is empty or not there, absolute and behind links: of new_folder_path.
  /// @throws Error, here and below, one sentence naming the folder.
  explicit NewFolder(const std::string& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// The path of a file in it.
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  void commit();

 private:
  std::string path_, temporary_;  ///< the second is empty once it has its name
};

/// Where a folder is to appear, absolute and behind links.
/// @throws Error, one sentence naming the folder: one that holds something, the current one, a place in which none can
/// be made.
std::string new_folder_path(const std::string& path);

}  // namespace bie::formats
