// Any bytes as a binary file of CIFAR-10: one sentence or records whose labels are classes.
#include <c10/util/Exception.h>

#include "io/cifar10.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::io;
  try {
    const at::Tensor records = load_cifar10_records(fuzz::file_of(data, size));
    fuzz::touch(records, size);
    fuzz::require(records.nbytes() == size && records.numel() > 0);
    for (std::int64_t i = 0; i < records.size(0); ++i)
      fuzz::require(records.const_data_ptr<std::uint8_t>()[i * records.size(1)] < cifar10_classes);
  } catch (const c10::ValueError&) {
  }
  return 0;
}
