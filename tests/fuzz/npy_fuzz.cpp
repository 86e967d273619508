// Any bytes as an NPY file: one sentence or a valid tensor.
#include <c10/util/Exception.h>

#include "io/npy.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::io;
  try {
    fuzz::touch(load_npy(fuzz::file_of(data, size)), size);
  } catch (const c10::ValueError&) {
  }
  return 0;
}
