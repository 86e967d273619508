// Any bytes as a safetensors file: one sentence or valid tensors.
#include "bie/formats/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  try {
    for (const auto& [name, array] : load_safetensors(fuzz::file_of(data, size)).arrays) fuzz::touch(array, size);
  } catch (const bie::formats::Error&) {
  }
  return 0;
}
