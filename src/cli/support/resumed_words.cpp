#include "cli/support/resumed_words.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "bie/formats/mapped_file.h"
#include "bie/train/run_folder.h"
#include "data/value_errors.h"
#include "formats/json_text.h"

namespace bie::cli {
namespace {

/// Options with a value, and those without, that may stand beside --resume.
constexpr const char* with_value[] = {"--run", "--epochs", "--threads"};
constexpr const char* without[] = {"--resume", "--json", "-q", "--quiet"};

bool is_among(const auto& options, const std::string& word) {
  return std::find(std::begin(options), std::end(options), word) != std::end(options);
}

struct Option {
  std::string name;
  std::optional<std::string> value;
};

/// The command's options; nothing where there is another one than those above, or a word that is none.
std::optional<std::vector<Option>> options_of(const std::vector<std::string>& words) {
  std::vector<Option> options;
  bool train = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (words[i] == "train" && !train) {
      train = true;
    } else if (is_among(without, words[i])) {
      options.push_back({words[i], {}});
    } else if (is_among(with_value, name) && (name != words[i] || i + 1 < words.size())) {
      options.push_back({name, name == words[i] ? words[++i] : words[i].substr(name.size() + 1)});
    } else {
      return {};
    }
  }
  if (!train) return {};
  return options;
}

const Option* find(const std::vector<Option>& options, const char* name) {
  const auto found = std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.name == name; });
  return found == options.end() ? nullptr : &*found;
}

/// The words of a run's command, of which folders of older builds say nothing.
std::optional<std::vector<std::string>> words_in(const std::string& path) {
  const formats::MappedFile file("run file", path);
  const nlohmann::json config =
      formats::parse_json({reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())});
  const auto words = config.is_object() ? config.find("words") : config.end();
  const bool good = config.is_object() && words != config.end() && words->is_array() &&
                    std::all_of(words->begin(), words->end(), [](const auto& word) { return word.is_string(); });
  if (!good) return {};
  return words->template get<std::vector<std::string>>();
}

std::vector<std::string> words_of(const std::string& path) {
  return data::with_value_errors([&] {
    const auto words = words_in(path);
    if (!words)
      formats::fail_file("run file", path,
                         "does not say the words of its command; the whole command with --resume "
                         "goes on");
    return *words;
  });
}

bool names(const std::vector<std::string>& words, const std::string& option) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
}

std::string value_of(const std::vector<std::string>& words, const std::string& option) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(option + "=")) return words[i].substr(option.size() + 1);
  }
  return {};
}

/// Refuses a part of a run's command beside --resume: what it leaves out would be defaults, other data among them.
void check_whole(const std::vector<std::string>& words) {
  const bool trains = std::find(words.begin(), words.end(), "train") != words.end();
  if (!trains || !names(words, "--resume") || names(words, "--data") || names(words, "--help")) return;
  const std::string run = value_of(words, "--run"), config = run.empty() ? "" : train::RunFolder(run).config();
  std::error_code ignored;
  if (config.empty() || !std::filesystem::is_regular_file(config, ignored)) return;
  const auto whole = data::with_value_errors([&] { return words_in(config); });
  TORCH_CHECK_VALUE(!whole || !names(*whole, "--data"),
                    "--resume: expected the whole command of the run, or --epochs alone beside --run ", run,
                    "; got a part of it, without --data");
}

}  // namespace

void take_out(std::vector<std::string>& words, const std::string& name) {
  for (std::size_t i = 0; i < words.size();) {
    if (words[i] == name)
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i),
                  words.begin() + static_cast<std::ptrdiff_t>(std::min(i + 2, words.size())));
    else if (words[i].starts_with(name + "="))
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
}

std::vector<std::string> resumed_words(const std::vector<std::string>& words) {
  const std::optional<std::vector<Option>> options = options_of(words);
  if (!options) check_whole(words);
  if (!options || find(*options, "--resume") == nullptr || find(*options, "--run") == nullptr) return words;
  std::vector<std::string> whole = words_of(train::RunFolder(*find(*options, "--run")->value).config());
  take_out(whole, "--threads");
  for (const char* flag : without) std::erase(whole, flag);
  for (const Option& option : *options) {
    if (option.value) take_out(whole, option.name);
    whole.push_back(option.name);
    if (option.value) whole.push_back(*option.value);
  }
  return whole;
}

}  // namespace bie::cli
