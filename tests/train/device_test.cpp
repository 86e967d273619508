// Names of devices. Tests that need a GPU go through the command, because here torch has already looked for its CUDA
// library.
#include "bie/train/device.h"

#include <gtest/gtest.h>

#include "tests/support/scratch.h"

namespace bie::train::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;

TEST(Device, TheCpuNeedsNoLibrary) { EXPECT_EQ(device_of("cpu"), c10::Device(c10::kCPU)); }

TEST(Device, OtherNamesAreRefused) {
  for (const std::string name : {"", "CPU", "cpu:0", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1x",
                                 "cuda0", "cuda:100", "cuda:99999999999999999999", "nonsense"})
    expect_sentence(refusal([&] { device_of(name); }), "'" + name + "'",
                    "the device: expected cpu, cuda or cuda:N, got");
}

TEST(Device, AGpuThatIsNotThereIsRefused) {
  expect_sentence(refusal([] { device_of("cuda:99"); }), "the device is 'cuda:99'", ", but ");
}

}  // namespace
}  // namespace bie::train::test
