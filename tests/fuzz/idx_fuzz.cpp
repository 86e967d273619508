// Any bytes as an IDX file, plain or gzip: one sentence or a valid tensor.
#include <c10/util/Exception.h>

#include "bie/io/idx.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::io;
  // No byte of a gzip file stands for more than 1032.
  constexpr std::size_t expansion = 1032;
  try {
    fuzz::touch(load_idx(fuzz::file_of(data, size)), size * expansion);
  } catch (const c10::ValueError&) {
  }
  return 0;
}
