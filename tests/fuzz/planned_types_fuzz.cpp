// Any bytes as a plan of types: one sentence, or names and types that are written.
#include "bie/formats/written_types.h"
#include "bie/llm/quantize.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using bie::formats::fuzz::require;
  try {
    const auto types = bie::llm::planned_types(std::string(reinterpret_cast<const char*>(data), size));
    std::size_t bytes = 0;
    for (const auto& [name, type] : types) {
      require(type != nullptr && bie::formats::written_type(bie::formats::name_of_type(*type)) == type);
      bytes += name.size() + type->name.size();
    }
    require(bytes <= size);
  } catch (const bie::formats::Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
