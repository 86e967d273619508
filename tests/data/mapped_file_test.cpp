// A loaded file is a map: it costs memory as it is read, is never written to, and outlives its name.
#include "bie/formats/mapped_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "bie/data/tensor_files.h"
#include "tests/support/scratch.h"

namespace bie::data::test {
namespace {

using bie::test::read_file;
using bie::test::Scratch;
using bie::test::write_file;

/// Pages of this process that are in memory, in bytes.
std::int64_t resident_bytes() {
  std::int64_t total = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string file_of(std::string header, const std::string& data) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + data;
}

TEST(MappedFile, ABigFileCostsNoMemoryUntilItIsRead) {
  constexpr std::int64_t count = std::int64_t{1} << 28;
  const Scratch scratch;
  std::string header = R"({"w":{"dtype":"U8","shape":[268435456],"data_offsets":[0,268435456]}})";
  header.resize(96, ' ');
  write_file(scratch.path("a"), file_of(header, ""));
  std::filesystem::resize_file(scratch.path("a"), 8 + 96 + count);
  const std::int64_t before = resident_bytes();
  const at::Tensor w = load_safetensors(scratch.path("a")).tensors.at("w");
  EXPECT_LT(resident_bytes() - before, count / 16);
  EXPECT_EQ(w.sum().item<std::int64_t>(), 0);
  EXPECT_GT(resident_bytes() - before, count / 2);
}

TEST(MappedFile, AWriteToATensorNeverReachesTheFile) {
  const Scratch scratch;
  save_safetensors(scratch.path("a"), {{"w", at::ones({3000})}, {"v", at::ones({5})}}, {});
  const std::string bytes = read_file(scratch.path("a"));
  const SafetensorsFile file = load_safetensors(scratch.path("a"));
  file.tensors.at("w").fill_(7);
  EXPECT_TRUE(at::equal(file.tensors.at("w"), at::full({3000}, 7.0)));
  EXPECT_TRUE(at::equal(file.tensors.at("v"), at::ones({5})));
  EXPECT_EQ(read_file(scratch.path("a")), bytes);
  EXPECT_TRUE(at::equal(load_safetensors(scratch.path("a")).tensors.at("w"), at::ones({3000})));
}

TEST(MappedFile, TensorsOutliveTheFileTheMapAndEachOther) {
  const Scratch scratch;
  save_safetensors(scratch.path("a"), {{"w", at::ones({3000})}, {"v", at::arange(5)}}, {});
  at::Tensor v;
  {
    const SafetensorsFile file = load_safetensors(scratch.path("a"));
    std::filesystem::remove(scratch.path("a"));
    v = file.tensors.at("v");
    EXPECT_TRUE(at::equal(file.tensors.at("w"), at::ones({3000})));
  }
  EXPECT_TRUE(at::equal(v, at::arange(5)));
  const at::Tensor part = v.slice(0, 2);
  v.reset();
  EXPECT_TRUE(at::equal(part, at::arange(2, 5)));
}

TEST(MappedFile, AFileMayBeReplacedByWhatWasReadFromIt) {
  const Scratch scratch;
  save_safetensors(scratch.path("a"), {{"w", at::arange(3000)}}, {});
  const SafetensorsFile file = load_safetensors(scratch.path("a"));
  save_safetensors(scratch.path("a"), {{"w", file.tensors.at("w").flip(0)}}, {});
  EXPECT_TRUE(at::equal(file.tensors.at("w"), at::arange(3000)));
  EXPECT_TRUE(at::equal(load_safetensors(scratch.path("a")).tensors.at("w"), at::arange(3000).flip(0)));
}

TEST(MappedFile, OnlyTensorsOutOfAlignmentAreCopied) {
  const Scratch scratch;
  // "a" takes one byte, so the doubles after it begin at an odd one.
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"F64","shape":[2],"data_offsets":[1,17]}})";
  header.resize(120, ' ');
  std::string data("\x2a\0\0\0\0\0\0\xf8\x3f\0\0\0\0\0\0\x04\xc0", 17);
  write_file(scratch.path("a"), file_of(header, data));
  const SafetensorsFile file = load_safetensors(scratch.path("a"));
  const at::Tensor b = file.tensors.at("b");
  EXPECT_TRUE(at::equal(b, at::tensor({1.5, -2.5}, at::kDouble)));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.const_data_ptr()) % alignof(double), 0u);
  const auto* a = static_cast<const char*>(file.tensors.at("a").const_data_ptr());
  EXPECT_EQ(*a, 42);
  EXPECT_NE(static_cast<const char*>(b.const_data_ptr()), a + 1);
}

}  // namespace
}  // namespace bie::data::test
