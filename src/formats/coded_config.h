// Weight-only layers as described by the configurations beside a model.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "bie/formats/weights_folder.h"

namespace bie::formats {

/// An entry of quant_strategy.json: widths, falling, with their shares of the rows and their groups.
struct Strategy {
  std::vector<int> bits;
  std::vector<double> shares;
  std::vector<std::int64_t> groups;
};

/// Widths and group sizes, the likeliest first; -1 is a group of all rows.
struct Told {
  std::vector<int> bits;
  std::vector<std::int64_t> groups;
  std::optional<bool> symmetric = {};  ///< "sym": whether every zero point is the middle of the codes
};

struct CodedConfig {
  bool act_order = false;
  bool tells_symmetry = false;                 ///< of any layer
  std::map<std::string, std::int64_t> tables;  ///< embeddings of our own files and how wide their rows are
  bool zeros_as_they_are = false;              ///< checkpoint_format "gptq_v2"
  /// By block ("model.layers.0") and linear ("q_proj").
  std::map<std::string, std::map<std::string, Strategy>> strategies;

  /// @throws Error for a quant_method or checkpoint_format that is not read, by its name, for JSON that is none and for
  /// two configurations that contradict each other.
  explicit CodedConfig(const WeightsFolder& folder);

  /// Settings of a layer: the first entry of `dynamic` whose pattern its name begins with, over the settings of all
  /// layers.
  Told told(const std::string& layer) const;
  /// Strategy of a layer, named like "model.layers.0.self_attn.q_proj".
  std::optional<Strategy> strategy_of(const std::string& layer) const;

 private:
  void add_own(const WeightsFolder& folder, const std::string& text);
  void add_overrides(const WeightsFolder& folder, const std::string& file, const nlohmann::json& dynamic);

  std::string path_;
  Told all_;
  struct Override {
    std::regex pattern;
    std::int64_t states;  ///< of the pattern's automaton, at most
    Told told;
  };
  std::vector<Override> overrides_;
  std::int64_t pattern_states_ = 0;  ///< of all patterns
  std::map<std::string, Told> own_;  ///< by the names of layers, of our own files
  mutable std::int64_t visits_ = 0;  ///< states of the patterns that names were matched with
};

}  // namespace bie::formats
