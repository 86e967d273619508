// Everything that one run leaves, in one folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bie/train/history.h"

namespace bie::formats {
class FolderLock;
}

namespace bie::train {

/// DIR/config.json               what was run
///     log.jsonl                 one JSON object an epoch: history.h's fields and "schema"
///     events.out.tfevents.*     the same for TensorBoard
///     checkpoints/              train::fit's
///     model.safetensors         the trained model
///     results.json              what the finished run came to
///     report.html               the run as a page
/// @throws c10::ValueError, one sentence naming the file, where one cannot be written.
class RunFolder {
 public:
  explicit RunFolder(std::string path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string config() const { return path_ + "/config.json"; }
  std::string log() const { return path_ + "/log.jsonl"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string model() const { return path_ + "/model.safetensors"; }
  std::string results() const { return path_ + "/results.json"; }
  std::string report() const { return path_ + "/report.html"; }
  /// The paths of what a whole run has besides its events and its checkpoints, which may have been deleted.
  std::vector<std::string> files() const { return {config(), log(), model(), results(), report()}; }

  /// Makes the folder and holds it against other runs. Writes config.json, and the log of the epochs that a resumed run
  /// has behind it: the log is always that of the run's last checkpoint and what came after it.
  void start(const std::string& config_json, const std::vector<Epoch>& past);
  void add(const Epoch& epoch);
  void write_results(const std::string& json) const;
  void write_report(const std::string& html) const;

 private:
  struct Writers;
  std::string path_;
  std::unique_ptr<formats::FolderLock> lock_;
  std::unique_ptr<Writers> writers_;
};

}  // namespace bie::train
