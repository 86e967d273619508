#include "cli/support/suggestion.h"

#include <CLI/Option.hpp>
#include <algorithm>

#include "formats/nearest.h"

namespace bie::cli {
namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// The word of the list that is near, unless the word itself is in it.
std::string other_word(const std::string& word, const std::vector<std::string>& known) {
  return std::find(known.begin(), known.end(), word) != known.end() ? std::string() : formats::nearest(word, known);
}

std::string question(const std::string& word) { return word.empty() ? word : "did you mean " + word + "?"; }

}  // namespace

std::string suggestion(const CLI::App& app, const std::vector<std::string>& words) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      commands.push_back(command->get_name());
    for (const std::string& word : words)  // of which one may be an option's value
      if (const std::string other = word.starts_with("-") ? "" : other_word(word, commands); !other.empty())
        return question(other);
    return "";
  }
  std::vector<std::string> options = option_names(*chosen.front());
  for (const std::string& name : option_names(app)) options.push_back(name);
  for (const std::string& word : words) {
    if (!word.starts_with("--") || word.size() == 2) continue;
    if (const std::string other = other_word(word.substr(0, word.find('=')), options); !other.empty())
      return question(other);
  }
  return "";
}

}  // namespace bie::cli
