// JSON that came from a file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace bie::formats {

/// The value of a text, in time and memory of the order of its length. A discarded value where the text is no JSON,
/// holds a zero byte (the library takes it for the end), nests deeper than 32 levels (the library copies and writes by
/// recursion), or has a key twice in one object.
nlohmann::json parse_json(const std::string& text);

/// Whether a value is a whole number in [least, most]; to be asked before it is read as one, which would narrow it.
bool is_whole(const nlohmann::json& value, std::int64_t least, std::int64_t most);

/// Whether JSON can hold a text.
bool is_utf8(const std::string& text);

/// A value for use in a sentence: short, on one line.
std::string shown(const nlohmann::json& value);

}  // namespace bie::formats
