#include "cli/support/command_text.h"

#include <c10/util/Exception.h>

#include <CLI/Option.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/support/help_text.h"

namespace bie::cli {
namespace {

/// Commands that are shown to users.
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) commands.push_back(command);
  return commands;
}

/// "--out", "-o" and so on; none for a positional.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option*) { return true; });
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// The names of an app's options, each once, then those of the app that it belongs to.
std::string option_words(const CLI::App& app, const CLI::App* owner = nullptr) {
  std::vector<std::string> words;
  for (const CLI::App* from : {&app, owner})
    for (const CLI::Option* option : from == nullptr ? std::vector<const CLI::Option*>() : options_of(*from))
      for (const std::string& name : names_of(*option))
        if (std::find(words.begin(), words.end(), name) == words.end()) words.push_back(name);
  return joined(words);
}

/// The words that an option takes, with a space between.
std::string choice_words(const CLI::Option& option) { return joined(choices_of(option)); }

/// The words that stand behind a command without an option's name; empty where files do.
std::string positional_words(const CLI::App& app) {
  for (const CLI::Option* option : options_of(app))
    if (names_of(*option).empty() && !choices_of(*option).empty()) return choice_words(*option);
  return "";
}

/// Cases of the word before: the options that take one of a few words.
std::string choice_cases(const CLI::App& app) {
  std::string cases;
  for (const CLI::Option* option : options_of(app)) {
    const std::string words = choice_words(*option);
    for (const std::string& name : words.empty() ? std::vector<std::string>() : names_of(*option))
      cases += "      " + app.get_name() + ":" + name + ") words='" + words + "' ;;\n";
  }
  if (const std::string words = positional_words(app); !words.empty())
    cases += "      " + app.get_name() + ":*) [[ $word == -* ]] || words='" + words + "' ;;\n";
  return cases;
}

std::string command_words(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command : commands_of(app)) words += (words.empty() ? "" : " ") + command->get_name();
  return words;
}

std::string bash_script(const CLI::App& app) {
  std::ostringstream text;
  text << "# bash completion of bie, written by `bie completion bash`.\n"
          "_bie() {\n"
          "  local word=${COMP_WORDS[COMP_CWORD]} command= words i\n"
          "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
          "    case ${COMP_WORDS[i]} in\n";
  for (const CLI::App* command : commands_of(app))
    text << "      " << command->get_name() << ") command=" << command->get_name() << "; break ;;\n";
  text << "    esac\n"
          "  done\n"
          "  case $command in\n";
  for (const CLI::App* command : commands_of(app))
    text << "    " << command->get_name() << ") words='" << option_words(*command, &app) << "' ;;\n";
  text << "    *) words='" << command_words(app) << ' ' << option_words(app)
       << "' ;;\n"
          "  esac\n"
          "  case $command:${COMP_WORDS[COMP_CWORD-1]} in\n";
  for (const CLI::App* command : commands_of(app)) text << choice_cases(*command);
  text << "      *) [[ $word == -* || -z $command ]] || words= ;;\n"
          "  esac\n"
          "  COMPREPLY=()\n"
          "  [[ -n $words ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\n"
          "complete -o default -F _bie bie\n";
  return text.str();
}

/// Text inside single quotes of zsh and fish.
std::string quoted(const std::string& text, bool zsh) {
  std::string result;
  for (const char c : text) {
    if (c == '\'')
      result += "'\\''";
    else if (zsh && (c == '[' || c == ']' || c == ':'))
      result += std::string("\\") + c;
    else
      result += c;
  }
  return result;
}

/// The options of an app and of the app that it belongs to, each name once.
std::string zsh_options(const CLI::App& app, const CLI::App* owner = nullptr) {
  std::string lines;
  std::vector<const CLI::Option*> options = options_of(app);
  for (const CLI::Option* option : owner == nullptr ? std::vector<const CLI::Option*>() : options_of(*owner))
    options.push_back(option);
  std::vector<std::string> seen;
  for (const CLI::Option* option : options)
    for (const std::string& name : names_of(*option)) {
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      seen.push_back(name);
      const bool takes_value = option->get_items_expected_max() > 0;
      lines += "        '" + name + "[" + quoted(option->get_description(), true) + "]" +
               (!takes_value                  ? ""
                : choices_of(*option).empty() ? ":value:_files"
                                              : ":value:(" + choice_words(*option) + ")") +
               "' \\\n";
    }
  return lines;
}

std::string zsh_script(const CLI::App& app) {
  std::ostringstream text;
  text << "#compdef bie\n# zsh completion of bie, written by `bie completion zsh`.\n_bie() {\n  local i command=\n"
          "  for ((i = 2; i < CURRENT; ++i)); do\n    case ${words[i]} in\n";
  for (const CLI::App* command : commands_of(app))
    text << "      " << command->get_name() << ") command=" << command->get_name() << "; break ;;\n";
  text << "    esac\n  done\n  case $command in\n";
  for (const CLI::App* command : commands_of(app)) {
    const std::string words = positional_words(*command);
    text << "    " << command->get_name() << ")\n      _arguments \\\n"
         << zsh_options(*command, &app)
         << (words.empty() ? std::string("        '*:file:_files' ;;\n") : "        '*:word:(" + words + ")' ;;\n");
  }
  text << "    *)\n      _arguments \\\n"
       << zsh_options(app) << "        '1:command:(" << command_words(app) << ")' ;;\n"
       << "  esac\n}\n_bie \"$@\"\n";
  return text.str();
}

std::string fish_script(const CLI::App& app) {
  std::ostringstream text;
  text << "# fish completion of bie, written by `bie completion fish`.\n";
  const std::string all = command_words(app);
  const auto options = [&](const CLI::App& owner, const std::string& condition) {
    for (const CLI::Option* option : options_of(owner)) {
      const auto names = names_of(*option);
      if (names.empty()) continue;
      text << "complete -c bie" << condition;
      for (const std::string& name : option->get_snames()) text << " -s " << name;
      for (const std::string& name : option->get_lnames()) text << " -l " << name;
      const std::string choices = choice_words(*option);
      if (!choices.empty()) text << " -f -a '" << choices << "'";
      text << (option->get_items_expected_max() > 0 ? " -r" : "") << " -d '" << quoted(option->get_description(), false)
           << "'\n";
    }
  };
  options(app, "");
  for (const CLI::App* command : commands_of(app)) {
    text << "complete -c bie -f -n 'not __fish_seen_subcommand_from " << all << "' -a " << command->get_name()
         << " -d '" << quoted(command->get_description(), false) << "'\n";
    const std::string seen = " -n '__fish_seen_subcommand_from " + command->get_name() + "'";
    options(*command, seen);
    if (const std::string words = positional_words(*command); !words.empty())
      text << "complete -c bie -f" << seen << " -a '" << words << "'\n";
  }
  return text.str();
}

/// Text that groff takes as text.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n'))
      result += std::string("\\&") + c;
    else
      result += c;
  }
  return result;
}

/// Value name and default of an option.
std::string value_of(const CLI::Option& option) {
  std::string text = value_name(option);
  if (!text.empty()) text.insert(0, " ");
  if (!option.get_default_str().empty()) text += " [" + option.get_default_str() + "]";
  return text;
}

void man_options(const CLI::App& app, std::ostringstream& text) {
  for (const CLI::Option* option : options_of(app)) {
    const auto names = names_of(*option);
    std::string title = names.empty() ? option->get_name(/*positional=*/true) : "";
    for (const std::string& name : names) title += (title.empty() ? "" : ", ") + name;
    text << ".TP\n.B " << roff(title + value_of(*option)) << "\n" << roff(option->get_description()) << "\n";
  }
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_script(app);
  if (shell == "zsh") return zsh_script(app);
  TORCH_CHECK_VALUE(shell == "fish", "the shell: expected bash, zsh or fish, got '", shell, "'");
  return fish_script(app);
}

std::string man_page(const CLI::App& app) {
  std::ostringstream text;
  text << ".TH BIE 1 \"\" \"bie " BIE_VERSION
          "\" \"User Commands\"\n.SH NAME\nbie \\- "
          "train and run low\\-bit neural networks\n.SH SYNOPSIS\n.B bie\n[options] command [options]\n"
          ".SH DESCRIPTION\n"
       << roff(app.get_description()) << "\n.SH OPTIONS OF EVERY COMMAND\n";
  man_options(app, text);
  text << ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) {
    text << ".SS bie " << command->get_name() << "\n" << roff(command->get_description()) << ".\n";
    man_options(*command, text);
    text << ".PP\n.nf\n" << roff(command->get_footer()) << "\n.fi\n";
  }
  text << ".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nFailed, a diverged training for example.\n.TP\n.B 2\nThe "
          "command "
          "line is not one of bie.\n.TP\n.B 3\nA file, a data set or a value does not fit.\n.TP\n.B 4\nThe device is "
          "not "
          "there.\n.TP\n.B 130\nInterrupted; what was trained is kept where a folder was given for it.\n";
  return text.str();
}

void add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print the completion script of a shell");
  takes_one_of(command->add_option("shell", *shell, "whose script it is"), {"bash", "zsh", "fish"})->required();
  command->footer("Examples:\n  bie completion bash > ~/.local/share/bash-completion/completions/bie");
  command->callback([shell, &app] { std::fputs(completion_script(app, *shell).c_str(), stdout); });
}

void add_man(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "Print the man page");
  command->footer("Examples:\n  bie man | man -l -");
  command->callback([&app] { std::fputs(man_page(app).c_str(), stdout); });
}

}  // namespace bie::cli
