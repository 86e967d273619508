// Any bytes as the GGUF file of a language model: one sentence, or sizes within their bounds, and passes whose logits
// are the same however the tokens are cut.
#include "tests/fuzz/language_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  bie::llm::fuzz::run(bie::formats::fuzz::file_of(data, size), size);
  return 0;
}
