// The tokens of many texts in one process, for tests that compare them with other libraries.
//
// Usage: tokenize_lines TOKENIZER [plain]. A line of standard input is a text as a JSON string; its line of output is
// an object with "tokens", "text", which they become again, and the "seconds" that encoding took, or with an "error".
// The first line has "before", "after", "size" and "scheme". TOKENIZER is a folder, a tokenizer.json, a .model or a
// GGUF file.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "bie/formats/error.h"
#include "bie/text/tokenizer.h"

namespace {

using namespace bie;

int tokenize(const std::string& path, bool special) {
  const bool is_gguf = path.size() > 5 && path.compare(path.size() - 5, 5, ".gguf") == 0;
  const text::Vocabulary vocabulary =
      is_gguf ? text::gguf_vocabulary(formats::load_gguf(path)) : text::folder_vocabulary(path);
  const text::Tokenizer tokenizer =
      is_gguf ? text::gguf_tokenizer(formats::load_gguf(path)) : text::folder_tokenizer(path);
  std::cout << nlohmann::json{{"before", tokenizer.before()},
                              {"after", tokenizer.after()},
                              {"size", tokenizer.size()},
                              {"scheme", text::gguf_scheme(vocabulary)}}
            << "\n";
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto text = nlohmann::json::parse(line).get<std::string>();
    try {
      const auto begin = std::chrono::steady_clock::now();
      const std::vector<std::int32_t> tokens = tokenizer.encode(text, special);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      std::string decoded = tokenizer.decode(tokens);
      if (tokenizer.adds_space() && !decoded.empty() && decoded[0] == ' ') decoded.erase(0, 1);
      std::cout << nlohmann::json{{"tokens", tokens}, {"text", text::valid_utf8(decoded)}, {"seconds", seconds.count()}}
                << "\n";
    } catch (const formats::Error& error) {
      std::cout << nlohmann::json{{"error", error.what()}} << "\n";
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return count < 2 ? 2 : tokenize(words[1], count == 2);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
