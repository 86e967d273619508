#include "bie/formats/weights_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "bie/formats/safetensors.h"
#include "formats/json_text.h"

namespace bie::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kind = "folder of weights";
constexpr std::int64_t max_json_bytes = 100'000'000;
constexpr std::string_view index_end = ".safetensors.index.json", shard_end = ".safetensors";

std::string text_of(const std::string& path) {
  const MappedFile file("JSON file", path);
  if (file.size() > max_json_bytes)
    fail_file("JSON file", path, "has ", file.size(), " bytes, the limit is ", max_json_bytes);
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

void add_shard(WeightsFolder* folder, const std::string& path, const std::map<std::string, std::string>* index) {
  const std::string name = fs::path(path).filename().string();
  const SafetensorsFile file = load_safetensors(path);
  const auto own = file.metadata.find("bie");
  if (own != file.metadata.end()) folder->own.push_back(own->second);
  for (const auto& [tensor, array] : file.arrays) {
    if (index != nullptr) {
      const auto found = index->find(tensor);
      if (found == index->end() || found->second != name) continue;  // the index decides
    }
    if (!folder->arrays.emplace(tensor, array).second)
      fail_file(kind, folder->path, "tensor ", in_quotes(tensor), " lies in ", folder->files.at(tensor), " and in ",
                path);
    folder->files[tensor] = path;
  }
}

void read_configs(WeightsFolder* folder, const fs::path& where) {
  for (const char* name : {"config.json", "quantize_config.json", "quant_strategy.json"}) {
    const fs::path path = where / name;
    std::error_code error;
    if (fs::exists(path, error)) folder->configs[name] = text_of(path.string());
  }
}

/// Regular files of a folder whose names end so, sorted.
std::vector<std::string> files_ending(const std::string& folder, std::string_view end) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), last; !error && at != last; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(end)) found.push_back(name);
  }
  if (error) fail_file(kind, folder, "cannot be listed: ", error.message());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::map<std::string, std::string> read_weights_index(const std::string& path, const std::string& text) {
  const auto fail = [&](const auto&... parts) { fail_file("index of weights", path, parts...); };
  const nlohmann::json json = parse_json(text);
  if (json.is_discarded()) fail("is no JSON that can be read");
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    fail("has no object \"weight_map\"");
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    const auto* name = shard.is_string() ? &shard.get_ref<const std::string&>() : nullptr;
    if (name == nullptr || !name->ends_with(shard_end) || name->find('/') != std::string::npos)
      fail("tensor ", in_quotes(tensor), ": expected the name of a safetensors file, got ", shown(shard));
    shards[tensor] = *name;
  }
  return shards;
}

WeightsFolder load_weights_folder(const std::string& path) {
  WeightsFolder folder;
  folder.path = path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    fail_file(kind, path, "expected a folder or a file, got a path where there is none; nothing is fetched");
  if (!fs::is_directory(status)) {
    add_shard(&folder, path, nullptr);
    read_configs(&folder, fs::path(path).parent_path());
    return folder;
  }
  const std::vector<std::string> indices = files_ending(path, index_end);
  if (indices.size() > 1) fail_file(kind, path, "has two indices, ", indices[0], " and ", indices[1]);
  if (indices.empty()) {
    const std::vector<std::string> shards = files_ending(path, shard_end);
    if (shards.empty()) fail_file(kind, path, "has no safetensors file");
    for (const std::string& shard : shards) add_shard(&folder, (fs::path(path) / shard).string(), nullptr);
  } else {
    const std::string index_path = (fs::path(path) / indices[0]).string();
    const std::map<std::string, std::string> index = read_weights_index(index_path, text_of(index_path));
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : index) {
      const std::string shard_path = (fs::path(path) / shard).string();
      if (!fs::exists(shard_path, error))
        fail_file(kind, path, "the shard ", in_quotes(shard), " of tensor ", in_quotes(tensor), " is missing");
      shards.insert(shard_path);
    }
    for (const std::string& shard : shards) add_shard(&folder, shard, &index);
    for (const auto& [tensor, shard] : index)
      if (folder.arrays.count(tensor) == 0)
        fail_file(kind, path, "the shard ", in_quotes(shard), " has no tensor ", in_quotes(tensor));
  }
  read_configs(&folder, path);
  return folder;
}

}  // namespace bie::formats
