// The type of every matrix of a model by a plan of names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/llm/quantize.h"

namespace bie::llm {

class Planner {
 public:
  Planner(const ModelFile& model, const TypePlan& plan) : model_(model), plan_(plan), fitting_(plan.keep.size()) {}

  using Visit = std::function<void(const std::string& name, std::int64_t rows, std::int64_t columns)>;
  /// Calls it with every matrix, in the order in which files are written.
  void for_each_matrix(const Visit& visit) const;

  /// What the plan says of a name, whether or not rows fit; null where it says nothing.
  const formats::GgufType* asked_for(const std::string& name);

  /// Decides the type of every matrix.
  /// @throws formats::Error: rows that fit no block, a matrix without a type, a pattern or a head that is not there.
  void add_all(Quantized* result);
  /// @throws formats::Error for a name that add_all has not met.
  const formats::GgufType& type_of(const std::string& name) const;

  /// Whether every pattern fitted a name that was asked for.
  void check_all_used(bool has_head) const;

 private:
  void add(const std::string& name, std::int64_t columns, Quantized* result);

  const ModelFile& model_;
  const TypePlan& plan_;
  std::vector<bool> fitting_;
  std::map<std::string, const formats::GgufType*> types_;
};

inline constexpr const char* embedding_name = "token_embd.weight";
inline constexpr const char* head_name = "output.weight";

}  // namespace bie::llm
