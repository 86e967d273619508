// Any bytes as a safetensors file: one sentence or valid tensors.
#include <c10/util/Exception.h>

#include "bie/io/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::io;
  try {
    for (const auto& [name, tensor] : load_safetensors(fuzz::file_of(data, size)).tensors) fuzz::touch(tensor, size);
  } catch (const c10::ValueError&) {
  }
  return 0;
}
