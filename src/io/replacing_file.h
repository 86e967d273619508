// A file that replaces another in one step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bie::io {

/// A file that takes its final name at the end, and leaves no trace if that point is not reached. Until then it is
/// PATH.tmp-PID beside it; the file of a process that was killed is removed by the next writer to the same path.
class ReplacingFile {
 public:
  /// @param kind  what sentences call the file.
  /// @throws c10::ValueError, here and below, one sentence naming the file.
  ReplacingFile(std::string kind, const std::string& path);
  ~ReplacingFile();
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;

  void write(const void* bytes, std::int64_t count) const;
  /// The bytes, the name and the folder's entry reach the disk in this order.
  void commit();

 private:
  std::string kind_, path_, temporary_;
  int fd_;
  bool renamed_ = false;
};

/// Whether a file of this name is one of ours that has not taken its final name, or never will.
bool is_unfinished(std::string_view name);

}  // namespace bie::io
