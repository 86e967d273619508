// Any bytes as a file of the importance of columns: one sentence, or finite numbers of 0 and more, which files that are
// written of them give back.
#include <cmath>

#include "bie/llm/importance.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using bie::formats::fuzz::require;
  try {
    const bie::llm::Importance importance = bie::llm::load_importance(bie::formats::fuzz::file_of(data, size));
    require(!importance.empty());
    std::size_t bytes = 0;
    for (const auto& [name, means] : importance) {
      bytes += 4 * means.size();
      for (const float mean : means) require(mean >= 0 && std::isfinite(mean));
    }
    require(bytes <= size);
  } catch (const bie::formats::Error&) {  // NOLINT(bugprone-empty-catch): the expected outcome
  }
  return 0;
}
