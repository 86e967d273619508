// The options of a command that trains on tables.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <limits>

#include "cli/support/session.h"
#include "cli/support/table_words.h"

namespace bie::cli {
namespace {

/// "order", "shuffle", "group:COLUMN" or "time:COLUMN".
std::optional<formats::SplitRule> split_of(const std::string& text) {
  using formats::SplitKind;
  for (const SplitKind kind : {SplitKind::order, SplitKind::shuffle})
    if (text == formats::name(kind)) return formats::SplitRule{kind};
  for (const SplitKind kind : {SplitKind::group, SplitKind::time}) {
    const std::string front = std::string(formats::name(kind)) + ":";
    if (text.starts_with(front) && text.size() > front.size())
      return formats::SplitRule{kind, 0, text.substr(front.size())};
  }
  return std::nullopt;
}

void add_split(CLI::App& command, formats::TableOptions& table, const std::string& group) {
  command.add_option("--test-share", table.test_share, "share of the rows to test with")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option_function<std::string>(
          "--split",
          [&table](const std::string& text) {
            const std::uint64_t seed = table.split.seed;
            table.split = *split_of(text);
            table.split.seed = seed;
          },
          "which rows are for testing: a random share of each class (shuffle), rows at equal distances (order), whole "
          "groups of rows with one value in a column, or the rows with the latest times in a column")
      ->type_name("shuffle|order|group:COLUMN|time:COLUMN")
      ->check([](const std::string& text) {
        return split_of(text) ? "" : text + " is none of shuffle, order, group:COLUMN and time:COLUMN";
      })
      ->default_str("shuffle")
      ->group(group);
  command
      .add_option("--split-seed", table.split.seed,
                  "start of the random numbers of --split: models that are compared have the same test rows, whatever "
                  "their --seed")
      ->type_name("INT")
      ->capture_default_str()
      ->group(group);
}

void add_missing(CLI::App& command, formats::TableOptions& table, const std::string& group) {
  command
      .add_option_function<std::string>(
          "--missing",
          [&table](const std::string& word) {
            for (const formats::Missing m : {formats::Missing::refuse, formats::Missing::mean, formats::Missing::drop})
              if (word == formats::name(m)) table.missing = m;
          },
          "what a missing value is: refused; replaced by the column's mean, with a column more that marks it; or its "
          "row dropped")
      ->type_name("refuse|mean|drop")
      ->check(CLI::IsMember({"refuse", "mean", "drop"}))
      ->default_str("refuse")
      ->group(group);
}

}  // namespace

void add_table_options(CLI::App& command, data::DataOptions& options) {
  const std::string group = "Tables (--data csv:FILE)";
  formats::TableOptions& table = options.table;
  command
      .add_option("--label", table.label,
                  "the column to predict, by its name or its place from 1 on (default: label, class, target or y, else "
                  "the last)")
      ->type_name("NAME|N")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--task", [&table](const std::string& task) { table.regression = task == "regression"; },
          "classification, or regression: the label is a number")
      ->type_name("classification|regression")
      ->check(CLI::IsMember({"classification", "regression"}))
      ->default_str("classification")
      ->group(group);
  takes_file(command.add_option("--test-data", options.test_file, "rows to test with, in place of a share of the file"))
      ->group(group);
  add_split(command, table, group);
  add_columns(command, "--drop", table.drop, "a column to leave out; may be repeated", group);
  add_columns(command, "--keep", table.keep,
              "a column that is an input although it looks like the ids of rows, or splits them; may be repeated",
              group);
  command.add_option("--id", table.id, "a column that names rows: left out, and shown by bie predict")
      ->type_name("NAME")
      ->group(group);
  add_missing(command, table, group);
  add_table_form(command, options.csv, table, group);
}

void add_asked_table_options(CLI::App& command, data::DataOptions& options) {
  add_asked_table(command, options.csv, options.asked, "Tables");
}

}  // namespace bie::cli
