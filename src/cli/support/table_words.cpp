#include "cli/support/table_words.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <cctype>
#include <sstream>
#include <vector>

namespace bie::cli {
namespace {

/// The words between commas; none of an empty text.
std::vector<std::string> words_in(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

std::string no_mark(const std::string& text) {
  return text.size() == 1 && std::ispunct(static_cast<unsigned char>(text[0])) && text[0] != '"'
             ? std::string()
             : text + " is no mark like # or %";
}

std::string no_group_sign(const std::string& text) {
  return text.size() == 1 && std::string(".,' _").find(text) != std::string::npos
             ? std::string()
             : text + " is none of . , ' _ and a blank";
}

/// Adds the options of a NumberForm, or of the user's overrides of one.
template <class Numbers>
void add_numbers(CLI::App& command, Numbers& numbers, const std::string& group, const std::string& usual) {
  command
      .add_option_function<std::string>(
          "--decimal", [&numbers](const std::string& text) { numbers.decimal = text.front(); },
          "the sign before the decimals of numbers: . or ," + usual)
      ->type_name(".|,")
      ->check(CLI::IsMember({".", ","}))
      ->group(group);
  command
      .add_option_function<std::string>(
          "--thousands", [&numbers](const std::string& text) { numbers.thousands = text.front(); },
          "a sign between groups of three digits: . , ' _ or a blank")
      ->type_name("CHAR")
      ->check(no_group_sign)
      ->group(group);
  command
      .add_option_function<std::string>(
          "--missing-words", [&numbers](const std::string& text) { numbers.missing = words_in(text); },
          "words that stand for a missing value, with commas between, in place of ?, NA, n/a, nan, null, none, nil and "
          "inf; an empty field always does")
      ->type_name("WORDS")
      ->group(group);
}

void add_lines(CLI::App& command, formats::CsvForm& csv, std::optional<bool>& header, const std::string& group) {
  command
      .add_option_function<std::string>(
          "--comment", [&csv](const std::string& text) { csv.comment = text.front(); },
          "a character: lines that begin with it are left out")
      ->type_name("CHAR")
      ->check(no_mark)
      ->group(group);
  command
      .add_option_function<std::string>(
          "--header", [&header](const std::string& text) { header = text == "yes"; },
          "whether the first line has the columns' names (default: found out)")
      ->type_name("yes|no")
      ->check(CLI::IsMember({"yes", "no"}))
      ->group(group);
}

}  // namespace

CLI::Option* add_columns(CLI::App& command, const char* option, std::vector<std::string>& columns,
                         const std::string& what, const std::string& group) {
  return command.add_option(option, columns, what)
      ->type_name("NAME|N")
      ->type_size(1)
      ->allow_extra_args(false)
      ->group(group);
}

void add_table_form(CLI::App& command, formats::CsvForm& csv, formats::TableOptions& table, const std::string& group) {
  add_lines(command, csv, table.header, group);
  add_numbers(command, table.numbers, group, " (default: .)");
}

void add_asked_table(CLI::App& command, formats::CsvForm& csv, formats::AskedTable& asked, const std::string& group) {
  add_columns(command, "--drop", asked.drop, "a column to leave out; may be repeated", group);
  command
      .add_option_function<std::string>(
          "--unseen", [&asked](const std::string& text) { asked.refuse_unseen = text == "refuse"; },
          "a text that the training rows lack: ignored, so that it is none of theirs, or refused with its file")
      ->type_name("ignore|refuse")
      ->check(CLI::IsMember({"ignore", "refuse"}))
      ->default_str("ignore")
      ->group(group);
  add_lines(command, csv, asked.header, group);
  add_numbers(command, asked, group, " (default: as in training)");
}

}  // namespace bie::cli
