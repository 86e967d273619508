// IDX files, plain and gzip, good and bad.
#include "bie/formats/idx.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/tensors.h"
#include "tests/support/scratch.h"

namespace bie::data::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

at::Tensor load_idx(const std::string& path) { return tensor_of(formats::load_idx(path)); }

std::string header(int type, const std::vector<std::uint32_t>& sizes) {
  std::string bytes = {0, 0, static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift);
  return bytes;
}

void write_gz(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

TEST(Idx, PlainAndGzipHoldTheSameTensor) {
  const Scratch scratch;
  const std::string bytes = header(8, {2, 1, 3}) + std::string("\0\1\2\375\376\377", 6);
  write_file(scratch.path("a"), bytes);
  write_gz(scratch.path("a.gz"), bytes);
  const at::Tensor wanted = at::tensor({0, 1, 2, 253, 254, 255}, at::kByte).reshape({2, 1, 3});
  EXPECT_TRUE(at::equal(load_idx(scratch.path("a")), wanted));
  EXPECT_TRUE(at::equal(load_idx(scratch.path("a.gz")), wanted));
}

TEST(Idx, ManyChunksAndNoneAtAll) {
  const Scratch scratch;
  constexpr std::uint32_t count = (5u << 19) + 7;
  write_gz(scratch.path("long.gz"), header(8, {count}) + std::string(count, '\7'));
  const at::Tensor labels = load_idx(scratch.path("long.gz"));
  EXPECT_EQ(labels.numel(), count);
  EXPECT_TRUE(labels.eq(7).all().item<bool>());
  write_file(scratch.path("none"), header(8, {0, 28, 28}));
  EXPECT_EQ(load_idx(scratch.path("none")).sizes(), (std::vector<std::int64_t>{0, 28, 28}));
}

TEST(Idx, BadFilesAreRefusedInOneSentence) {
  const Scratch scratch;
  const std::string path = scratch.path("a");
  const auto refused = [&](const std::string& bytes, const char* part) {
    write_file(path, bytes);
    expect_sentence(refusal([&] { load_idx(path); }), path, part);
    write_gz(path, bytes);
    expect_sentence(refusal([&] { load_idx(path); }), path, part);
  };
  refused("", "does not begin with an IDX header");
  refused("abcd", "does not begin with an IDX header");
  refused(header(8, {1}).substr(0, 6), "ends inside its header");
  refused(header(13, {1}) + "abcd", "element type 13");
  refused(header(8, {1, 1}) + "a", "rank 2");
  refused(header(8, {3}) + "ab", "ends after 2 bytes of data, its header says [3], 3 bytes");
  refused(header(8, {1}) + "ab", "goes on after the 1 bytes");
  refused(header(8, {0, 2, 2}) + "a", "goes on after the 0 bytes");
  refused(header(8, {0xffffffff, 0xffffffff, 0xffffffff}), "whose product overflows");
  refused(header(8, {0xffffffff, 0xffffffff, 0}), "whose product overflows");
  refused(header(8, {1 << 20, 16, 1}) + "ab", "ends after 2 bytes");
  // Exabytes claimed, two bytes held.
  const std::string claim = header(8, {0xffffffff, 0x7fffffff, 1}) + "ab";
  write_file(path, claim);
  expect_sentence(refusal([&] { load_idx(path); }), path, "ends after 2 bytes");
  write_gz(path, claim);
  expect_sentence(refusal([&] { load_idx(path); }), path, "at most 268435456 are read");
}

TEST(Idx, DamagedGzipIsRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("a.gz");
  write_gz(path, header(8, {1000}) + std::string(1000, 'x'));
  const std::string good = read_file(path);
  write_file(path, good.substr(0, good.size() - 4));
  EXPECT_NE(refusal([&] { load_idx(path); }), "");
  std::string bad_checksum = good;
  bad_checksum[good.size() - 8] ^= 1;
  write_file(path, bad_checksum);
  expect_sentence(refusal([&] { load_idx(path); }), path, "cannot be read");
}

TEST(Idx, WhatIsNoFileIsRefused) {
  const Scratch scratch;
  expect_sentence(refusal([&] { load_idx(scratch.path("none")); }), scratch.path("none"), "No such file");
  expect_sentence(refusal([&] { load_idx(scratch.folder()); }), scratch.folder(), "is not a regular file");
  ASSERT_EQ(::mkfifo(scratch.path("pipe").c_str(), 0600), 0);
  expect_sentence(refusal([&] { load_idx(scratch.path("pipe")); }), scratch.path("pipe"), "is not a regular file");
}

}  // namespace
}  // namespace bie::data::test
