// Numbers and texts of a model's metadata, checked as they are asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bie/llm/model_file.h"

namespace bie::llm {

class Metadata {
 public:
  explicit Metadata(const ModelFile& file) : file_(file) {}

  /// @throws formats::Error where the key holds another kind of value; nullopt where it is missing.
  std::optional<std::string> text(const std::string& key) const;
  std::optional<double> real(const std::string& key) const;
  std::optional<std::int64_t> whole(const std::string& key) const;

  /// The number of a key that must be there, or `otherwise` where it is not.
  /// @throws formats::Error unless it lies in [least, most].
  std::int64_t whole(const std::string& key, std::int64_t least, std::int64_t most,
                     std::optional<std::int64_t> otherwise = std::nullopt) const;
  double real(const std::string& key, double least, double most, std::optional<double> otherwise = std::nullopt) const;

  [[noreturn]] void fail(const std::string& sentence) const;

 private:
  const ModelFile& file_;
};

}  // namespace bie::llm
