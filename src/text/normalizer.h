// What a text becomes before it is cut into pieces.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace bie::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// @param is_first  made false where what is left has lost its first characters.
  virtual std::string normalized(std::string_view text, bool* is_first) const = 0;
};

/// @throws formats::Error where a text that had `before` bytes has grown beyond all reason.
void check_growth(std::size_t bytes, std::size_t before);

/// What a tokenizer.json calls "normalizer"; nothing for null. @throws formats::Error naming a step that is not read.
std::unique_ptr<Normalizer> json_normalizer(const nlohmann::json& description);

}  // namespace bie::text
