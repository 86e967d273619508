// Net files cut anywhere and changed anywhere are refused in a sentence, or run.
#include <gtest/gtest.h>

#include <cstring>

#include "bie/formats/error.h"
#include "runtime/graph.h"
#include "runtime/runner.h"
#include "tests/runtime/some_nets.h"

namespace bie::runtime::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// A copy at a multiple of 64, of exactly that size.
struct Aligned {
  explicit Aligned(const std::uint8_t* bytes, std::size_t count)
      : memory(memory_of(static_cast<std::int64_t>(count))), size(static_cast<std::int64_t>(count)) {
    if (count > 0) std::memcpy(memory.get(), bytes, count);
  }
  const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(memory.get()); }
  Memory memory;
  std::int64_t size;
};

/// Reads and, where nothing is wrong, runs it on one sample. True where it ran.
bool takes(const Aligned& bytes, formats::NetChecksum checksum) {
  try {
    const auto net = std::make_shared<const Net>(formats::read_net("here", bytes.data(), bytes.size, checksum));
    runtime::test::ReplayableRng rng;
    std::int64_t elements = 0;
    for (const std::uint32_t value : net->file().inputs) elements += elements_of(net->file().values[value]);
    for (const std::uint32_t value : net->file().outputs) elements += elements_of(net->file().values[value]);
    if (elements > 1 << 20) return true;
    runtime::Runner context(net, 1, 1, nullptr);
    if (context.bytes() > 1 << 24) return true;
    std::vector<std::vector<float>> ends;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const std::uint32_t value : net->file().inputs) {
      ends.push_back(floats(elements_of(net->file().values[value]), rng));
      inputs.push_back(ends.back().data());
    }
    for (const std::uint32_t value : net->file().outputs) {
      ends.emplace_back(static_cast<std::size_t>(elements_of(net->file().values[value])));
      outputs.push_back(ends.back().data());
    }
    context.run(1, inputs.data(), outputs.data());
    return true;
  } catch (const formats::Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return false;
  }
}

TEST(HostileNet, CutAtEveryByte) {
  ReplayableRng rng;
  const Bytes bytes = formats::net_bytes(conv_net(1, rng));
  ASSERT_TRUE(takes(Aligned(bytes.data(), bytes.size()), formats::NetChecksum::wanted));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Aligned cut(bytes.data(), size);
    ASSERT_FALSE(takes(cut, formats::NetChecksum::ignored)) << size;
  }
}

TEST(HostileNet, AnyBitChangedIsSeenByTheChecksum) {
  ReplayableRng rng;
  const Bytes bytes = formats::net_bytes(conv_net(4, rng));
  for (int i = 0; i < 2000; ++i) {
    Bytes changed = bytes;
    const auto at = static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(bytes.size()) - 1));
    changed[at] = static_cast<std::uint8_t>(changed[at] ^ 1 << rng.between(0, 7));
    ASSERT_FALSE(takes(Aligned(changed.data(), changed.size()), formats::NetChecksum::wanted)) << at;
  }
}

TEST(HostileNet, ChangedInTenThousandPlacesWithoutTheChecksum) {
  ReplayableRng rng;
  for (const int bits : {0, 1, 4, 8}) {
    const Bytes bytes = formats::net_bytes(bits == 0 ? plain_net(rng) : conv_net(bits, rng));
    std::uint64_t graph = 0;
    std::memcpy(&graph, bytes.data() + 24, sizeof(graph));
    int ran = 0, refused = 0;
    for (int i = 0; i < 3400; ++i) {
      Bytes changed = bytes;
      // Headers and graphs are where the damage is done.
      const std::int64_t end =
          i % 10 == 0 ? static_cast<std::int64_t>(bytes.size()) : 64 + static_cast<std::int64_t>(graph);
      for (std::int64_t changes = rng.between(1, 3); changes > 0; --changes) {
        const auto at = static_cast<std::size_t>(rng.between(0, end - 1));
        changed[at] = static_cast<std::uint8_t>(rng.between(0, 1) == 0 ? rng.between(0, 255)
                                                                       : changed[at] ^ 1 << rng.between(0, 7));
      }
      (takes(Aligned(changed.data(), changed.size()), formats::NetChecksum::ignored) ? ran : refused) += 1;
    }
    EXPECT_GT(ran, 0) << "changes of weights";
    EXPECT_GT(refused, 1000);
  }
}

TEST(HostileNet, NodesThatDoNotFitAreNamed) {
  ReplayableRng rng;
  const auto refusal = [](const formats::NetFile& net) -> std::string {
    try {
      const Net made{formats::NetFile(net)};
      return "";
    } catch (const formats::Error& error) {
      return error.what();
    }
  };
  const formats::NetFile good = conv_net(8, rng);
  EXPECT_EQ(refusal(good), "");
  formats::NetFile bad = good;
  bad.nodes[0].op = 77;
  EXPECT_EQ(refusal(bad), "node 0 (of no known kind) is operation 77, which this build does not know");
  bad = good;
  bad.nodes[0].ints[5] = 40000;
  EXPECT_NE(refusal(bad), "");
  bad = good;
  bad.blobs[0].size -= 4;
  EXPECT_NE(refusal(bad).find("node 0 (float_conv2d): expected 972 bytes of weight, got 968"), std::string::npos)
      << refusal(bad);
  bad = good;
  bad.values[bad.nodes[0].output].sizes = {9, 12, 12};
  EXPECT_NE(refusal(bad), "");
  bad = good;
  bad.nodes[1].floats.pop_back();
  EXPECT_NE(refusal(bad).find("2 floats and 3 blobs, got 1, 3, 1 and 3"), std::string::npos) << refusal(bad);
}

}  // namespace
}  // namespace bie::runtime::test
