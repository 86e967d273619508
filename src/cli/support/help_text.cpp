#include "cli/support/help_text.h"

#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>

#include "cli/support/text.h"

namespace bie::cli {
namespace {

/// "  name    text", the text from the second column on or, where the name is too long, in the line below.
std::string two_columns(const std::string& name, const std::string& text, std::size_t second_column) {
  std::string line = "  " + name;
  if (line.size() + 2 > second_column)
    line += "\n" + std::string(second_column, ' ');
  else
    line.resize(second_column, ' ');
  return line + wrapped(text, second_column) + "\n";
}

class HelpText : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string name = make_option_name(option, positional), text = option->get_description();
    if (const std::size_t comma = name.find(','); comma != std::string::npos) name.insert(comma + 1, " ");
    if (const std::string value = value_name(*option); !value.empty() && !positional) name += " " + value;
    if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
    return two_columns(name, text, 26);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return two_columns(command->get_name(), command->get_description(), 14);
  }

  /// Lines that are indented are examples, which stay as they are.
  std::string make_footer(const CLI::App* app) const override {
    std::istringstream lines(app->get_footer());
    std::string text, line;
    while (std::getline(lines, line)) text += (line.substr(0, 1) == " " ? line : wrapped(line)) + "\n";
    return text;
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode), "\n\n\n", "\n\n");
  }
};

}  // namespace

CLI::Option* takes_one_of(CLI::Option* option, const std::vector<std::string>& choices) {
  std::string all;
  for (const std::string& choice : choices) all += (all.empty() ? "" : "|") + choice;
  return option->type_name(all);
}

std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string name = value_name(option);
  std::vector<std::string> choices;
  for (std::size_t begin = 0; name.find('|') != std::string::npos && begin <= name.size();) {
    const std::size_t end = std::min(name.find('|', begin), name.size());
    const std::string choice = name.substr(begin, end - begin);
    const bool is_a_kind = std::any_of(choice.begin(), choice.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    if (!is_a_kind) choices.push_back(choice);
    begin = end + 1;
  }
  return choices;
}

std::string value_name(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  std::string name = option.get_type_name();
  for (const char* check : {":{", ":INT in", ":UINT in", ":FLOAT in", ":POSITIVE", ":NONNEGATIVE"})  // behind the name
    name.resize(std::min(name.find(check), name.size()));
  if (name == "UINT") name = "INT";
  return option.get_items_expected_max() > 1 ? name + " ..." : name;
}

void add_help(CLI::App& app) {
  auto about = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Print the help of a command");
  command->add_option("command", *about, "whose help it is");
  command->callback([about, &app] {
    std::string text;
    try {
      // The app's own help would be that of the command that runs.
      text = about->empty() ? app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal)
                            : static_cast<const CLI::App&>(app).get_subcommand(*about)->help(app.get_name());
    } catch (const CLI::OptionNotFound&) {
      throw CLI::ValidationError("help", "there is no command " + *about);
    }
    std::fputs(text.c_str(), stdout);
  });
}

void use_help_text(CLI::App& app) {
  app.formatter(std::make_shared<HelpText>());
  app.set_help_flag("-h,--help", "print this help");
}

}  // namespace bie::cli
