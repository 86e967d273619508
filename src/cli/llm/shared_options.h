// Options that several commands on language models have, and checks of their values.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <string>

#include "bie/formats/error.h"
#include "cli/llm/language.h"

namespace bie::cli {

/// A check of a number: what it must be, in words.
CLI::Validator number_from(double least, double most, const std::string& words);

/// A check of a whole number, for those that CLI11 takes in part or for the nearest one that there is.
template <class Number>
CLI::Validator whole_number(const std::string& words) {
  return {[words](std::string& text) -> std::string {
            Number value = 0;
            const char* const end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, value);
            const bool good = error == std::errc() && rest == end;
            return good ? "" : formats::joined("expected ", words, ", got ", formats::in_quotes(text));
          },
          "", "number"};
}

CLI::Validator file_name();
CLI::Validator not_empty();
/// Small letters.
CLI::Validator lowered();

CLI::Option* add_model(CLI::App& command, LanguageOptions& o);
/// --tokens, --context and --stop.
void add_lengths(CLI::App& command, LanguageOptions& o);
/// How a token is chosen.
void add_choice(CLI::App& command, LanguageOptions& o);
/// How exactly it computes.
void add_arithmetic(CLI::App& command, LanguageOptions& o);
CLI::Option* add_system(CLI::App& command, ChatOptions& o);
CLI::Option* add_template(CLI::App& command, ChatOptions& o);
CLI::Option* add_no_think(CLI::App& command, ChatOptions& o, const char* description);

}  // namespace bie::cli
