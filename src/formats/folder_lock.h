// One writer a folder.
#pragma once

#include <string>

namespace bie::formats {

/// Holds a folder against other processes (flock) until it goes; a killed process holds nothing. File systems without
/// locks are not guarded.
class FolderLock {
 public:
  /// @param kind  what sentences call the folder.
  /// @throws Error, one sentence naming the folder, where another holds it.
  FolderLock(const std::string& kind, const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace bie::formats
