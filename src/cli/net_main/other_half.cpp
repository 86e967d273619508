#include "cli/net_main/other_half.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "cli/nets/net_files.h"
#include "cli/support/inspect_weights.h"

namespace bie::cli {
namespace {

namespace fs = std::filesystem;

/// The words that name files, in their order.
std::vector<std::string> files_among(const std::vector<std::string>& words) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const std::string& word : words)
    if (fs::is_regular_file(word, ignored)) files.push_back(word);
  return files;
}

}  // namespace

bool is_for_nets(const std::vector<std::string>& words) {
  constexpr std::string_view ours[] = {"run",      "import",     "generate", "chat",   "serve",
                                       "tokenize", "perplexity", "evaluate", "convert"};
  constexpr std::string_view commands[] = {"run",      "import",     "generate", "chat",    "serve",
                                           "tokenize", "perplexity", "evaluate", "convert", "quantize",
                                           "predict",  "inspect",    "bench"};
  const auto command = std::find_first_of(words.begin(), words.end(), std::begin(commands), std::end(commands));
  if (command == words.end()) return false;
  // A word before it that is no option belongs to one, or is another command.
  for (auto word = words.begin(); word != command; ++word)
    if (word->substr(0, 1) != "-" && (word == words.begin() || *(word - 1) != "--threads")) return false;
  if (std::find(std::begin(ours), std::end(ours), *command) != std::end(ours)) return true;
  const std::vector<std::string> rest(command + 1, words.end()), files = files_among(rest);
  if (*command == "quantize") return std::any_of(rest.begin(), rest.end(), is_language_model);
  if (files.empty()) return false;
  for (const char* option : {"--diff", "--data", "--profile", "--device"})
    if (std::find(rest.begin(), rest.end(), option) != rest.end()) return false;
  if (*command == "inspect" && begins_with_gguf(files.front())) return true;
  return *command == "bench" ? std::all_of(files.begin(), files.end(), is_net) : is_net(files.front());
}

void become_other_half(char** argv) {
  std::error_code error;
  std::vector<fs::path> places;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) places = {folder / "bie-torch", folder / "../libexec/bie/bie-torch"};
  if (const char* const named = std::getenv("BIE_TORCH_PROGRAM")) places.emplace_back(named);
  for (const fs::path& path : places) {
    if (!fs::exists(path, error)) continue;
    ::execv(path.c_str(), argv);
    throw std::runtime_error(path.string() + " cannot be started: " + std::strerror(errno));
  }
}

std::string without_other_half() {
  const char* const said = std::getenv("BIE_TORCH_MISSING");
  return std::string(said ? said : "bie-torch is not beside this program") + "; docs/install.md has what to install";
}

}  // namespace bie::cli
