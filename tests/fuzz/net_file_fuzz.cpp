// Any bytes as an exported net: one sentence, or a graph whose every node fits and whose blobs lie in the bytes.
#include <cstring>
#include <vector>

#include "bie/formats/net_file.h"
#include "runtime/graph.h"
#include "runtime/memory_plan.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  // Words, for their alignment; the bytes stand at their end, so that the first one too many is seen.
  const std::size_t words = (size + 7) / 8;
  std::vector<std::uint64_t> memory(words);
  std::uint8_t* const bytes = reinterpret_cast<std::uint8_t*>(memory.data()) + (8 * words - size);
  if (size > 0) std::memcpy(bytes, data, size);
  try {
    const NetFile net = read_net("here", bytes, static_cast<std::int64_t>(size), NetChecksum::ignored);
    for (const NetBlob& blob : net.blobs) {
      fuzz::require(blob.size >= 0 && blob.data >= bytes && blob.data + blob.size <= bytes + size);
      unsigned sum = 0;
      for (std::int64_t i = 0; i < blob.size; ++i) sum += blob.data[i];
      volatile unsigned sink = sum;
      static_cast<void>(sink);
    }
    bie::runtime::check_graph(net);
    const bie::runtime::Plan plan = bie::runtime::plan_of(net);
    const auto planned = bie::runtime::plan_memory(plan, net.outputs, 3);
    for (std::size_t value = 0; value < plan.values.size(); ++value)
      if (planned.offsets[value] >= 0)
        fuzz::require(planned.offsets[value] + 3 * bie::runtime::bytes_of(plan.values[value]) <= planned.bytes);
  } catch (const Error&) {
  }
  return 0;
}
