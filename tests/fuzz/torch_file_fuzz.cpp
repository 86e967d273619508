// Any bytes as a file of torch.save: one sentence or valid tensors. An input that begins as a pickle is put into an
// archive first, so that the mutations reach the pickle machine.
#include "bie/formats/torch_file.h"
#include "formats/torch_file_parts.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/zip_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  constexpr std::uint8_t pickle_begin = 0x80;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] == pickle_begin) {
    bytes = bie::test::zip_of(
        {{"a/data.pkl", bytes}, {"a/data/0", std::string(64, '\1')}, {"a/data/1", "abcdefghijk"}, {"a/data/2", ""}});
  }
  // On the heap AddressSanitizer sees the first byte beyond the end.
  try {
    read_zip_directory("input", reinterpret_cast<const std::uint8_t*>(bytes.data()),
                       static_cast<std::int64_t>(bytes.size()));
  } catch (const bie::formats::Error&) {
  }
  try {
    for (const auto& [name, array] : load_torch_state_dict(fuzz::file_of(bytes.data(), bytes.size())))
      fuzz::touch(array, bytes.size());
  } catch (const bie::formats::Error&) {
  }
  return 0;
}
