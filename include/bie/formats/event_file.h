// Event files, which TensorBoard reads: numbers and histograms of a run by step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bie::formats {

/// Counts in equally wide bins from `low` to `high`.
struct BinnedValues {
  double low = 0, high = 0;
  std::vector<std::uint64_t> counts;
};

/// A new file in a folder of event files; TensorBoard shows the folder as one run. Added events wait in memory for
/// flush(). Names sort in the order in which the files were begun.
class EventFile {
 public:
  /// @param folder      an existing one.
  /// @param first_step  the first that this file will tell of. What earlier files of the folder say of it and of later
  ///                    steps, as a run that was killed may have, TensorBoard forgets; at 0 all of it.
  /// @throws Error, here and below, one sentence naming the file.
  explicit EventFile(const std::string& folder, std::int64_t first_step = 0);
  ~EventFile();  ///< what was not flushed is lost
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// @param tag  UTF-8; what stands before its first "/" groups charts.
  void add_scalar(const std::string& tag, std::int64_t step, double value);
  /// Without bins nothing is added.
  void add_histogram(const std::string& tag, std::int64_t step, const BinnedValues& values);

  /// Hands everything to the operating system. Where that fails, the file is as before the call and the next one tries
  /// again.
  void flush();

  const std::string& path() const { return path_; }

 private:
  std::string path_, waiting_;
  std::int64_t written_ = 0;  ///< bytes
  int fd_ = -1;
};

}  // namespace bie::formats
