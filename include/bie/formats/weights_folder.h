// Folders of weights as Hugging Face's tools write them: safetensors files, an index of them, configurations in JSON.
// Source: docs/spec/files.md#folders.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bie/formats/array.h"

namespace bie::formats {

struct WeightsFolder {
  std::string path;
  std::map<std::string, Array> arrays;         ///< of all shards, views as those of load_safetensors
  std::map<std::string, std::string> files;    ///< the path of the shard that holds each array
  std::map<std::string, std::string> configs;  ///< texts of config.json, quantize_config.json, quant_strategy.json
  std::vector<std::string> own;                ///< of each shard that has it: the text of its metadata entry "bie"
};

/// A folder with one index `*.safetensors.index.json`, whose shards are read and which says where each tensor lies; one
/// without an index, whose safetensors files are all read; or the path of one safetensors file, beside which the
/// configurations lie.
/// @throws Error, one sentence naming the file and the tensor: a path where nothing is (nothing is fetched), two
/// indices, a missing shard, a shard outside of the folder, a tensor that its shard lacks or that two files hold.
WeightsFolder load_weights_folder(const std::string& path);

/// Tensors and the names of their shards, of the text of an index.
/// @throws Error.
std::map<std::string, std::string> read_weights_index(const std::string& path, const std::string& text);

}  // namespace bie::formats
