// Any bytes as a line of choices: one sentence, or texts and an answer among them.
#include "bie/llm/choices.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using bie::formats::fuzz::require;
  try {
    const auto asked = bie::llm::asked_choices(std::string(reinterpret_cast<const char*>(data), size));
    require(asked.choices.size() >= 2 && asked.answer < asked.choices.size());
    std::size_t bytes = asked.context.size();
    for (const std::string& choice : asked.choices) {
      require(!choice.empty());
      bytes += choice.size();
    }
    require(bytes <= size);
  } catch (const bie::formats::Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
