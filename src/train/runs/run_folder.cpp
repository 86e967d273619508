#include "bie/train/run_folder.h"

#include <c10/util/Exception.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "bie/formats/event_file.h"
#include "bie/formats/replacing_file.h"
#include "data/value_errors.h"
#include "formats/folder_lock.h"

namespace bie::train {
namespace {

constexpr int log_schema = 1;

void write_whole(const char* kind, const std::string& path, const std::string& text) {
  data::with_value_errors([&] {
    formats::ReplacingFile file(kind, path);
    file.write(text.data(), static_cast<std::int64_t>(text.size()));
    file.commit();
  });
}

std::string log_line(const Epoch& epoch) {
  nlohmann::ordered_json line = {{"schema", log_schema}};
  line.update(nlohmann::ordered_json::parse(epoch_json(epoch)));
  return line.dump() + "\n";
}

}  // namespace

struct RunFolder::Writers {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> log;
  formats::EventFile events;
};

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

RunFolder::~RunFolder() = default;

void RunFolder::start(const std::string& config_json, const std::vector<Epoch>& past) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  TORCH_CHECK_VALUE(!error, "run folder ", path_, ": cannot be made: ", error.message());
  lock_ = data::with_value_errors([&] { return std::make_unique<formats::FolderLock>("run folder", path_); });
  write_whole("run file", config(), config_json + "\n");
  std::string lines;
  for (const Epoch& epoch : past) lines += log_line(epoch);
  write_whole("run file", log(), lines);
  const std::int64_t first_step = past.empty() ? 1 : past.back().step + 1;
  data::with_value_errors([&] {
    writers_.reset(new Writers{{std::fopen(log().c_str(), "ae"), std::fclose}, formats::EventFile(path_, first_step)});
  });
  TORCH_CHECK_VALUE(writers_->log, "run file ", log(), ": cannot be written: ", std::strerror(errno));
}

void RunFolder::add(const Epoch& epoch) {
  const std::string line = log_line(epoch);
  std::FILE* const file = writers_->log.get();
  const bool written = std::fwrite(line.data(), 1, line.size(), file) == line.size() && std::fflush(file) == 0;
  TORCH_CHECK_VALUE(written, "run file ", log(), ": cannot be written: ", std::strerror(errno));
  formats::EventFile& events = writers_->events;
  events.add_scalar("loss", epoch.step, epoch.loss);
  events.add_scalar("test_accuracy", epoch.step, epoch.test_score);
  events.add_scalar("rate", epoch.step, epoch.rate);
  if (std::isfinite(epoch.train_score)) events.add_scalar("train_accuracy", epoch.step, epoch.train_score);
  if (std::isfinite(epoch.integer_rate)) events.add_scalar("integer_rate", epoch.step, epoch.integer_rate);
  for (const auto& [layer, size] : epoch.step_sizes) events.add_scalar("step_size/" + layer, epoch.step, size);
  for (const auto& [layer, share] : epoch.flipped) events.add_scalar("flipped/" + layer, epoch.step, share);
  data::with_value_errors([&] { events.flush(); });
}

void RunFolder::write_results(const std::string& json) const { write_whole("run file", results(), json + "\n"); }

void RunFolder::write_report(const std::string& html) const { write_whole("report", report(), html); }

}  // namespace bie::train
