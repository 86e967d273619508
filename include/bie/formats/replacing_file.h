// A file that replaces another in one step.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace bie::formats {

/// The path behind all symbolic links, whether it exists or not; empty if the links form a cycle.
std::string behind_links(std::string path);

/// Where a write to a path arrives.
struct Destination {
  enum class Kind {
    absent,  ///< a file is to be made there
    file,    ///< a file is to be replaced, by one of its mode and owner
    stream,  ///< a pipe or a character device, which is written to: /dev/stdout, /dev/null
  };
  Kind kind;
  std::string path;  ///< behind the symbolic links
  mode_t mode;       ///< of a file, and its owner
  uid_t user;
  gid_t group;
};

/// @throws Error, one sentence naming the path, for a folder, a socket, a block device, a file that this user
/// may not write, a folder in which no file can be made, and links that lead nowhere.
Destination destination_of(const std::string& kind, const std::string& path);

/// A file that takes its final name at the end, and leaves no trace if that point is not reached. Until then it is
/// PATH.tmp-PID beside it; the file of a process that was killed is removed by the next writer to the same path. A
/// symbolic link stays one, and what it names is replaced. A stream gets the bytes as they come.
class ReplacingFile {
 public:
  /// @param kind  what sentences call the file.
  /// @throws Error, here and below, one sentence naming the file.
  ReplacingFile(std::string kind, const std::string& path);
  ~ReplacingFile();
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;

  void write(const void* bytes, std::int64_t count) const;
  /// The bytes, the name and the folder's entry reach the disk in this order.
  void commit();

 private:
  std::string kind_, path_;
  Destination destination_;
  std::string temporary_;  ///< empty once it has its final name, and of a stream
  int fd_;
};

/// Whether a file of this name is one of ours that has not taken its final name, or never will.
bool is_unfinished(std::string_view name);
/// PATH.tmp-PID, what this process calls a file or a folder until all is in it.
std::string unfinished_name(const std::string& path);
/// Removes what killed processes left of a file or a folder. Only a nicety: whatever fails here is left alone.
void remove_unfinished(const std::string& path);

}  // namespace bie::formats
