// Any bytes as a GGUF file: one sentence, or tensors whose codes and numbers lie in the file.
#include "bie/formats/gguf.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  try {
    const GgufFile file = load_gguf(fuzz::file_of(data, size));
    std::size_t claimed = 0;
    for (const GgufTensor& t : file.tensors) {
      claimed += static_cast<std::size_t>(t.bytes->size);
      fuzz::require(claimed <= size);
      if (t.type->kind == GgufType::Kind::elements) fuzz::touch(gguf_array(file, t), size);
    }
    for (const GgufTensor& t : file.tensors) {
      try {
        const CodedRows w = gguf_codes(file, t);
        fuzz::require(static_cast<std::int64_t>(w.words.size()) == w.rows * w.row_words());
        fuzz::require(static_cast<std::int64_t>(w.scales.size()) == w.rows * w.groups());
      } catch (const bie::formats::Error&) {
      }
    }
  } catch (const bie::formats::Error&) {
  }
  return 0;
}
