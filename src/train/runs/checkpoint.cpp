#include "bie/train/checkpoint.h"

#include <c10/util/Exception.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "bie/data/checksum.h"
#include "bie/data/tensor_files.h"
#include "formats/json_text.h"

namespace bie::train {
namespace {

namespace fs = std::filesystem;

constexpr int format_version = 1;

std::string file_name(std::int64_t step) {
  char text[64];
  std::snprintf(text, sizeof text, "step-%012" PRId64 ".safetensors", step);
  return text;
}

/// Checkpoints of a folder by their steps, newest first.
std::map<std::int64_t, fs::path, std::greater<>> checkpoints(const std::string& dir) {
  std::map<std::int64_t, fs::path, std::greater<>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    if (std::sscanf(name.c_str(), "step-%" SCNd64, &step) == 1 && step >= 0 && name == file_name(step))
      found.emplace(step, entry.path());
  }
  return found;
}

Checkpoint read(const std::string& path, std::int64_t step) {
  data::SafetensorsFile file = data::load_safetensors(path);
  const auto entry = [&](const char* name) {
    const auto found = file.metadata.find(name);
    TORCH_CHECK_VALUE(found != file.metadata.end(), path, ": no metadata entry '", name,
                      "', this is no training checkpoint");
    return found->second;
  };
  const std::string text = entry("bie");
  TORCH_CHECK_VALUE(entry("crc32") == std::to_string(data::checksum(file.tensors, text)), path,
                    ": damaged, its contents are not those that were written (crc32)");
  const auto json = formats::parse_json(text);
  TORCH_CHECK_VALUE(json.is_object(), path, ": the metadata entry 'bie' is not a JSON object");
  const auto field = [&](const char* name) { return json.value(name, nlohmann::json()); };  // null where it is missing
  const nlohmann::json run = field("run");
  TORCH_CHECK_VALUE(field("kind") == "training" && field("format_version") == format_version && run.is_object(), path,
                    ": this is no training checkpoint of format version ", format_version);
  TORCH_CHECK_VALUE(field("step") == step, path, ": its step is ", formats::shown(field("step")), ", its name says ",
                    step);
  // Checkpoints of the first builds have no history.
  return {step, run.dump(), std::move(file.tensors),
          parse_history(json.value("history", nlohmann::json::array()).dump())};
}

}  // namespace

void save_checkpoint(const std::string& dir, const Checkpoint& checkpoint, int keep) {
  std::error_code error;
  fs::create_directories(dir, error);
  std::error_code ignored;
  TORCH_CHECK_VALUE(fs::is_directory(dir, ignored), dir, ": the folder cannot be made: ", error.message());
  const nlohmann::json json = {{"format_version", format_version},
                               {"kind", "training"},
                               {"step", checkpoint.step},
                               {"run", nlohmann::json::parse(checkpoint.run)},
                               {"history", nlohmann::json::parse(history_json(checkpoint.history))}};
  const std::string text = json.dump();
  const std::string crc = std::to_string(data::checksum(checkpoint.tensors, text));
  data::save_safetensors((fs::path(dir) / file_name(checkpoint.step)).string(), checkpoint.tensors,
                         {{"bie", text}, {"crc32", crc}});
  int kept = 0;
  for (const auto& [step, path] : checkpoints(dir))
    if (step > checkpoint.step || ++kept > keep) fs::remove(path, error);
}

std::optional<Checkpoint> newest_checkpoint(const std::string& dir,
                                            const std::function<void(const std::string&)>& note) {
  std::string fault;
  for (const auto& [step, path] : checkpoints(dir)) {
    try {
      return read(path.string(), step);
    } catch (const c10::ValueError& error) {
      if (fault.empty()) fault = error.what_without_backtrace();
      if (note) note(std::string("passed over ") + error.what_without_backtrace());
    }
  }
  TORCH_CHECK_VALUE(fault.empty(), "no checkpoint in ", dir, " can be used; the newest: ", fault);
  return std::nullopt;
}

bool has_checkpoints(const std::string& dir) { return !checkpoints(dir).empty(); }

}  // namespace bie::train
