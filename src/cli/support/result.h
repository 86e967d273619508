// The JSON that a command prints with --json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bie::cli {

using Json = nlohmann::ordered_json;

/// On one line. Bytes that are no UTF-8 are replaced.
std::string json_text(const Json& json);

/// One line on stdout: {"schema": 1, "command": "eval", ...}. Bytes that are no UTF-8 are replaced, and so are numbers
/// that are not finite, by null.
void print_json(const std::string& command, const Json& fields);

/// Prints several results as a list on one line; each is an object as print_json writes it.
void print_json_list(const std::string& command, const Json& list);

/// The text, or null where it is no UTF-8, which JSON cannot hold: the name of a file that is found again by it.
Json exact_text(const std::string& text);

}  // namespace bie::cli
