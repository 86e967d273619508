// Any bytes as an NPY file: one sentence or a valid tensor.
#include "bie/formats/npy.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  try {
    fuzz::touch(load_npy(fuzz::file_of(data, size)), size);
  } catch (const bie::formats::Error&) {
  }
  return 0;
}
