// Any bytes as an IDX file, plain or gzip: one sentence or a valid tensor.
#include "bie/formats/idx.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  // No byte of a gzip file stands for more than 1032.
  constexpr std::size_t expansion = 1032;
  try {
    fuzz::touch(load_idx(fuzz::file_of(data, size)), size * expansion);
  } catch (const bie::formats::Error&) {
  }
  return 0;
}
