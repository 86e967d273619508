#include "cli/support/resumed_words.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

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

std::vector<std::string> words_of(const std::string& path) {
  return data::with_value_errors([&] {
    const formats::MappedFile file("run file", path);
    const nlohmann::json config =
        formats::parse_json({reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())});
    const auto words = config.is_object() ? config.find("words") : config.end();
    const bool good = config.is_object() && words != config.end() && words->is_array() &&
                      std::all_of(words->begin(), words->end(), [](const auto& word) { return word.is_string(); });
    if (!good)
      formats::fail_file("run file", path,
                         "does not say the words of its command; the whole command with --resume "
                         "goes on");
    return words->template get<std::vector<std::string>>();
  });
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
