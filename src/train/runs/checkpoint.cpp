#include "bie/train/checkpoint.h"

#include <c10/util/Exception.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <limits>
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

/// A number that is not negative; 0 where there is none.
double number_of(const nlohmann::json& object, const char* name, const std::string& path) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  TORCH_CHECK_VALUE(found->is_number(), path, ": ", name, ": expected a number, got ", formats::shown(*found));
  return found->get<double>();
}

EpochPart part_of(const nlohmann::json& part, const std::string& path) {
  if (part.is_null()) return {};
  const nlohmann::json steps = part.is_object() ? part.value("steps", nlohmann::json()) : nlohmann::json();
  TORCH_CHECK_VALUE(formats::is_whole(steps, 0, std::numeric_limits<std::int64_t>::max()), path,
                    ": the steps of a part of an epoch: expected a whole number, got ", formats::shown(steps));
  return {steps.get<std::int64_t>(), number_of(part, "loss_sum", path), number_of(part, "score_sum", path),
          number_of(part, "seconds", path)};
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
  // Checkpoints of earlier builds have no part of an epoch, those of the first no history.
  return {step,
          run.dump(),
          std::move(file.tensors),
          parse_history(json.value("history", nlohmann::json::array()).dump()),
          part_of(field("part"), path),
          number_of(json, "seconds", path)};
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
                               {"history", nlohmann::json::parse(history_json(checkpoint.history))},
                               {"seconds", checkpoint.seconds},
                               {"part",
                                {{"steps", checkpoint.part.steps},
                                 {"loss_sum", checkpoint.part.loss_sum},
                                 {"score_sum", checkpoint.part.score_sum},
                                 {"seconds", checkpoint.part.seconds}}}};
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
