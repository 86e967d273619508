// Any bytes as a binary file of CIFAR-10: one sentence or records whose labels are classes.
#include "bie/formats/cifar10.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  try {
    const Array records = load_cifar10_records(fuzz::file_of(data, size));
    fuzz::touch(records, size);
    fuzz::require(static_cast<std::size_t>(records.count()) == size && size > 0);
    for (std::int64_t i = 0; i < records.sizes[0]; ++i)
      fuzz::require(records.data<std::uint8_t>()[i * records.sizes[1]] < cifar10_classes);
  } catch (const bie::formats::Error&) {
  }
  return 0;
}
