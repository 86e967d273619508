// GGUF files: what a good one holds, and that a broken or malicious one is refused in one sentence and allocates no
// more than it is long. Values of every type are compared with the gguf package in tests/python/gguf_test.py.
#include "bie/formats/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "bie/formats/error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::gguf_pair;
using bie::test::gguf_text;
using bie::test::GgufBytes;
using bie::test::little_endian;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

enum : std::uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8, iq2_xxs = 16, q1_0 = 41, q2_0 = 42 };

GgufFile loaded(const Scratch& scratch, const GgufBytes& file) {
  const std::string path = scratch.path("model.gguf");
  write_file(path, file.bytes());
  return load_gguf(path);
}

/// Part i of `count`, with one tensor.
std::string part_bytes(int i, int count, const std::string& tensor, int tensors) {
  GgufBytes part;
  part.metadata = {gguf_pair("split.no", 2, little_endian(static_cast<std::uint64_t>(i), 2)),
                   gguf_pair("split.count", 2, little_endian(static_cast<std::uint64_t>(count), 2)),
                   gguf_pair("split.tensors.count", 5, little_endian(static_cast<std::uint64_t>(tensors), 4))};
  if (i == 0) part.metadata.push_back(gguf_pair("general.name", 8, gguf_text("whole")));
  part.tensors = {{tensor, f32, {8}, 0}};
  part.data = std::string(32, static_cast<char>(i));
  return part.bytes();
}

TEST(Gguf, AFileInPartsIsReadWholeOrNotAtAll) {
  const Scratch scratch;
  const auto name = [&](int i) { return scratch.path(joined("m-0000", i + 1, "-of-00003.gguf")); };
  for (int i = 0; i < 3; ++i) write_file(name(i), part_bytes(i, 3, joined("t", i), 3));
  for (int i = 0; i < 3; ++i) {
    const GgufFile file = load_gguf(name(i));
    EXPECT_EQ(file.tensors.size(), 3U);
    EXPECT_EQ(std::get<std::string>(file.metadata.at("general.name").value), "whole");
    EXPECT_EQ(file.metadata.count("split.count"), 0U) << "what is written again is one file";
    for (int j = 0; j < 3; ++j) EXPECT_EQ(file.find(joined("t", j))->bytes->data[31], j);
  }
  write_file(name(2), part_bytes(2, 3, "t0", 3));
  expect_sentence(refusal([&] { load_gguf(name(0)); }), name(2), "\"t0\" lies in two parts");
  write_file(name(2), part_bytes(1, 3, "t2", 3));
  expect_sentence(refusal([&] { load_gguf(name(0)); }), name(2), "is expected to be part 3 of 3");
  write_file(name(2), part_bytes(2, 3, "t2", 4));
  write_file(name(0), part_bytes(0, 3, "t0", 4));
  expect_sentence(refusal([&] { load_gguf(name(1)); }), name(1), "its parts have 3 tensors, expected 4");
  std::filesystem::remove(name(1));
  expect_sentence(refusal([&] { load_gguf(name(2)); }), name(2), "these are not beside it: m-00002-of-00003.gguf");
  write_file(scratch.path("m.gguf"), part_bytes(0, 3, "t0", 3));
  expect_sentence(refusal([&] { load_gguf(scratch.path("m.gguf")); }), scratch.path("m.gguf"),
                  "is part 1 of 3, whose name is expected to end in -00001-of-00003.gguf");
  write_file(scratch.path("n.gguf"), part_bytes(3, 3, "t", 3));
  expect_sentence(refusal([&] { load_gguf(scratch.path("n.gguf")); }), scratch.path("n.gguf"), "it is part 4 of 3");
}

TEST(Gguf, ThePointerOfAGitLfsFileIsKnown) {
  const Scratch scratch;
  const std::string path = scratch.path("model.gguf");
  write_file(path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  expect_sentence(refusal([&] { load_gguf(path); }), path, "the pointer of a Git LFS file");
}

TEST(Gguf, MetadataOfEveryTypeIsRead) {
  const Scratch scratch;
  GgufBytes bytes;
  bytes.metadata = {
      gguf_pair("u8", 0, "\xff"),
      gguf_pair("i8", 1, "\xff"),
      gguf_pair("u16", 2, "\xfe\xff"),
      gguf_pair("i16", 3, "\xfe\xff"),
      gguf_pair("u32", 4, little_endian(4000000000, 4)),
      gguf_pair("i32", 5, little_endian(0xfffffffd, 4)),
      gguf_pair("f32", 6, little_endian(0x3fc00000, 4)),
      gguf_pair("yes", 7, "\1"),
      gguf_pair("text", 8, gguf_text("a\nb")),
      gguf_pair("list", 9, little_endian(5, 4) + little_endian(2, 8) + little_endian(0xffffffff00000007, 8)),
      gguf_pair("names", 9, little_endian(8, 4) + little_endian(2, 8) + gguf_text("x") + gguf_text("")),
      gguf_pair("lists", 9,
                little_endian(9, 4) + little_endian(1, 8) + little_endian(0, 4) + little_endian(3, 8) + "\1\2\3"),
      gguf_pair("u64", 10, little_endian(~std::uint64_t{0}, 8)),
      gguf_pair("i64", 11, little_endian(~std::uint64_t{0}, 8)),
      gguf_pair("f64", 12, little_endian(0x3ff8000000000000, 8))};
  const GgufFile file = loaded(scratch, bytes);
  const auto at = [&](const char* key) { return file.metadata.at(key).value; };
  EXPECT_EQ(std::get<std::uint64_t>(at("u8")), 255U);
  EXPECT_EQ(std::get<std::int64_t>(at("i8")), -1);
  EXPECT_EQ(std::get<std::uint64_t>(at("u16")), 65534U);
  EXPECT_EQ(std::get<std::int64_t>(at("i16")), -2);
  EXPECT_EQ(std::get<std::uint64_t>(at("u32")), 4000000000U);
  EXPECT_EQ(std::get<std::int64_t>(at("i32")), -3);
  EXPECT_EQ(std::get<double>(at("f32")), 1.5);
  EXPECT_EQ(std::get<std::uint64_t>(at("yes")), 1U);
  EXPECT_EQ(file.metadata.at("yes").type, GgufValueType::boolean);
  EXPECT_EQ(std::get<std::string>(at("text")), "a\nb");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(at("list")), (std::vector<std::int64_t>{7, -1}));
  EXPECT_EQ(std::get<std::vector<std::string>>(at("names")), (std::vector<std::string>{"x", ""}));
  const auto lists = std::get<std::vector<GgufValue>>(at("lists"));
  EXPECT_EQ(std::get<std::vector<std::uint64_t>>(lists.at(0).value), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(std::get<std::uint64_t>(at("u64")), ~std::uint64_t{0});
  EXPECT_EQ(std::get<std::int64_t>(at("i64")), -1);
  EXPECT_EQ(std::get<double>(at("f64")), 1.5);
}

TEST(Gguf, TensorsAreViewsWithTheContiguousAxisLast) {
  const Scratch scratch;
  GgufBytes bytes;
  bytes.tensors = {{"b", f32, {2, 3}, 32}, {"a", f16, {4}, 0}};
  bytes.data = std::string("\x00\x3c\x00\xbc\x00\x00\x00\x40", 8) + std::string(24, '\0');
  for (const std::uint32_t bits : {0x3f800000u, 0u, 0u, 0u, 0u, 0xc0000000u}) bytes.data += little_endian(bits, 4);
  const GgufFile file = loaded(scratch, bytes);
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[0].name, "b");
  const Array b = gguf_array(file, *file.find("b")), a = gguf_array(file, *file.find("a"));
  EXPECT_EQ(b.sizes, (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(b.data<float>()[0], 1.0F);
  EXPECT_EQ(b.data<float>()[5], -2.0F);
  EXPECT_EQ(a.element, Element::f16);
  EXPECT_EQ(file.find("c"), nullptr);
}

std::string q8_block(const char* scale, int first) {
  std::string block = scale;
  block.resize(2);
  for (int i = 0; i < 32; ++i) block += static_cast<char>(first + i);
  return block;
}

TEST(Gguf, CodesScalesAndZerosAreThoseOfTheBlocks) {
  const Scratch scratch;
  GgufBytes bytes;
  bytes.tensors = {{"w", q8_0, {64}, 0}};
  bytes.data = q8_block("\x01\x3c", -128) + q8_block("\x01\xbc", 5);  // +-(1 + 2^-10)
  const GgufFile file = loaded(scratch, bytes);
  const CodedRows w = gguf_codes(file, file.tensors[0]);
  EXPECT_EQ(w.rows, 1);
  EXPECT_EQ(w.zero, 128);
  EXPECT_TRUE(w.zeros.empty());
  EXPECT_EQ(w.scales, (std::vector<float>{1 + 0x1p-10F, -1 - 0x1p-10F}));
  EXPECT_EQ(code_at(w.words.data(), 8, 0), 0U);
  EXPECT_EQ(code_at(w.words.data(), 8, 31), 31U);
  EXPECT_EQ(code_at(w.words.data(), 8, 32), 133U);
}

/// Source: the layout that issue 29 of this project states, and ggml's block_q1_0: bit j % 8 of byte j / 8 set is +d.
TEST(Gguf, BitsOfQ1_0AreSigns) {
  const Scratch scratch;
  GgufBytes bytes;
  bytes.tensors = {{"w", q1_0, {128}, 0}};
  bytes.data = std::string("\x00\x40", 2) + std::string(16, '\0');
  bytes.data[2 + 9] = 4;  // weight 74
  const GgufFile file = loaded(scratch, bytes);
  const CodedRows w = gguf_codes(file, file.tensors[0]);
  for (int j = 0; j < 128; ++j) {
    const float value = w.scales[0] * static_cast<float>(code_at(w.words.data(), 1, j)) - w.zeros[0];
    EXPECT_EQ(value, j == 74 ? 2.0F : -2.0F) << j;
  }
}

TEST(Gguf, BlocksOfQ2_0AreToldByTheDistanceToTheNextTensor) {
  const Scratch scratch;
  for (const std::size_t group : {std::size_t{64}, std::size_t{128}}) {
    const std::size_t bytes_of_one = 4096 / group * (2 + group / 4), padded = (bytes_of_one + 31) / 32 * 32;
    GgufBytes bytes;
    bytes.tensors = {{"a", q2_0, {4096}, 0}, {"b", q2_0, {2048, 2}, padded}};
    bytes.data = std::string(2 * padded, '\0');
    bytes.data[2 + 1] = '\x34';  // weights 4 ... 7: 0, 1, 3, 0
    bytes.data[1] = '\x3c';
    const GgufFile file = loaded(scratch, bytes);
    const CodedRows w = gguf_codes(file, file.tensors[0]);
    EXPECT_EQ(w.group, static_cast<std::int64_t>(group));
    EXPECT_EQ(w.zero, 1);
    for (const auto& [at, code] : {std::pair{4, 0U}, {5, 1U}, {6, 3U}, {7, 0U}})
      EXPECT_EQ(code_at(w.words.data(), 2, at), code) << at;
  }
}

TEST(Gguf, AScaleThatIsNoNumberIsRefusedByTheNameOfItsTensor) {
  const Scratch scratch;
  GgufBytes bytes;
  bytes.tensors = {{"layer.w", q8_0, {32, 2}, 0}};
  bytes.data = q8_block("\x01\x3c", 0) + q8_block("\x01\x7e", 0);
  const GgufFile file = loaded(scratch, bytes);
  expect_sentence(refusal([&] { gguf_codes(file, file.tensors[0]); }), file.path,
                  "tensor \"layer.w\" holds NaN or infinity in a scale of row 1");
}

TEST(Gguf, WhatIsNotOpenedIsListedAndSaysSo) {
  const Scratch scratch;
  GgufBytes bytes;
  bytes.tensors = {{"w", iq2_xxs, {256}, 0}};
  bytes.data = std::string(66, '\0');
  const GgufFile file = loaded(scratch, bytes);
  EXPECT_EQ(file.tensors[0].bytes->size, 66);
  expect_sentence(refusal([&] { gguf_codes(file, file.tensors[0]); }), file.path, "\"w\" is IQ2_XXS, which");
  expect_sentence(refusal([&] { gguf_array(file, file.tensors[0]); }), file.path, "\"w\" is IQ2_XXS, which");
}

struct Hostile {
  const char* name;
  std::string bytes;
  const char* part;  ///< of the sentence; "" for a file that is fine
};

constexpr std::uint64_t huge = std::uint64_t{1} << 60;

GgufBytes one(std::uint32_t type, std::vector<std::uint64_t> sizes, std::size_t data_bytes, std::uint64_t offset = 0) {
  GgufBytes file;
  file.tensors = {{"w", type, std::move(sizes), offset}};
  file.data = std::string(data_bytes, '\1');
  return file;
}

GgufBytes two(std::uint64_t second, std::size_t data_bytes) {
  GgufBytes file;
  file.tensors = {{"a", f32, {8}, 0}, {"b", f32, {8}, second}};
  file.data = std::string(data_bytes, '\1');
  return file;
}

std::string with(const std::string& pair, std::size_t alignment = 32) {
  GgufBytes file;
  file.metadata = {pair};
  file.tensors = {{"w", f32, {1}, 0}};
  file.data = std::string(4, '\1');
  file.alignment = alignment;
  return file.bytes();
}

std::string counts(std::uint64_t tensors, std::uint64_t pairs) {
  return "GGUF" + little_endian(3, 4) + little_endian(tensors, 8) + little_endian(pairs, 8);
}

GgufBytes of_version(std::uint32_t version) {
  GgufBytes file;
  file.version = version;
  return file;
}

std::string same_name_twice() {
  GgufBytes file = two(32, 64);
  file.tensors[1].name = "a";
  return file.bytes();
}

std::string same_key_twice() {
  GgufBytes file;
  file.metadata = {gguf_pair("k", 0, "\1"), gguf_pair("k", 0, "\1")};
  return file.bytes();
}

std::string nested(int depth) {
  std::string value;
  for (int i = 0; i < depth; ++i) value += little_endian(9, 4) + little_endian(1, 8);
  return gguf_pair("k", 9, value + little_endian(0, 4) + little_endian(0, 8));
}

std::vector<Hostile> hostile_files() {
  const std::string array = little_endian(0, 4);
  return {
      {"fine", one(f32, {2, 3}, 24).bytes(), ""},
      {"fine_version_2", of_version(2).bytes(), ""},
      {"fine_no_axes", one(f32, {}, 4).bytes(), ""},
      {"fine_padding_cut", one(q4_0, {32}, 18).bytes(), ""},
      {"fine_alignment", with(gguf_pair("general.alignment", 4, little_endian(8, 4)), 8), ""},
      {"fine_nested", with(nested(7)), ""},
      {"empty", "", "does not begin with GGUF"},
      {"magic", "GGML" + std::string(60, '\0'), "does not begin with GGUF"},
      {"cut_version", "GGUF\3", "ends inside the version"},
      {"version_1", of_version(1).bytes(), "expected version 2 or 3, got 1"},
      {"version_4", of_version(4).bytes(), "expected version 2 or 3, got 4"},
      {"big_endian", of_version(0x03000000).bytes(), "is big-endian"},
      {"tensors_2_60", counts(huge, 0), "claims 1152921504606846976 tensors"},
      {"pairs_2_60", counts(0, huge), "claims 1152921504606846976 metadata entries"},
      {"tensors_missing", counts(1, 0) + std::string(23, '\0'), "ends inside the offset of tensor \"\""},
      {"key_2_60", counts(0, 1) + little_endian(huge, 8) + std::string(20, 'k'), "a metadata key claims"},
      {"cut_value", counts(0, 1) + gguf_pair("key12", 4, "\1\2"), "ends inside the metadata \"key12\""},
      {"value_type", with(gguf_pair("k", 13, "")), "\"k\" has the unknown type 13"},
      {"bool_two", with(gguf_pair("k", 7, "\2")), "\"k\" is a bool of 2"},
      {"text_2_60", with(gguf_pair("k", 8, little_endian(huge, 8))), "the metadata \"k\" claims"},
      {"array_2_60", with(gguf_pair("k", 9, array + little_endian(huge, 8))), "numbers of the metadata \"k\""},
      {"strings_2_60", with(gguf_pair("k", 9, little_endian(8, 4) + little_endian(huge, 8))),
       "strings of the metadata \"k\""},
      {"arrays_2_60", with(gguf_pair("k", 9, little_endian(9, 4) + little_endian(huge, 8))),
       "arrays of the metadata \"k\""},
      {"array_of_bad_type", with(gguf_pair("k", 9, little_endian(99, 4) + little_endian(1, 8))), "unknown type 99"},
      {"nested_deep", with(nested(40)), "more than 8 deep"},
      {"key_twice", same_key_twice(), "the metadata \"k\" appears twice"},
      {"name_twice", same_name_twice(), "tensor \"a\" appears twice"},
      {"axes_five", one(f32, {1, 1, 1, 1, 1}, 4).bytes(), "\"w\": expected at most 4 axes, got 5"},
      {"axis_zero", one(f32, {0}, 0).bytes(), "\"w\" has an axis of 0"},
      {"axis_2_63", one(f32, {std::uint64_t{1} << 63}, 4).bytes(), "\"w\" has an axis of 9223372036854775808"},
      {"product_overflows", one(f32, {huge, 16}, 4).bytes(), "\"w\" has an axis of 16"},
      {"bytes_overflow", one(f32, {huge, 4}, 4).bytes(), "\"w\", F32 [4, 1152921504606846976], is no whole number"},
      {"too_large", one(f32, {huge / 4}, 4).bytes(),
       "\"w\", F32 [288230376151711744], takes 1152921504606846976 bytes"},
      {"terabyte", one(q8_0, {std::uint64_t{1} << 40}, 34).bytes(), "\"w\", Q8_0"},
      {"part_of_a_block", one(q8_0, {33}, 68).bytes(), "\"w\", Q8_0 [33], is no whole number of blocks of 32"},
      {"type_unknown", one(99, {1}, 4).bytes(), "\"w\" has the unknown type 99"},
      {"type_removed", one(4, {1}, 4).bytes(), "\"w\" has the unknown type 4"},
      {"type_i2_s", one(36, {1}, 4).bytes(), "I2_S of bitnet.cpp"},
      {"offset_2_60", one(f32, {1}, 4, huge).bytes(), "\"w\", F32 [1], begins at data byte 1152921504606846976"},
      {"offset_2_63", one(f32, {1}, 4, huge * 8).bytes(), "\"w\" begins at data byte 9223372036854775808"},
      {"overlap", two(16, 64).bytes(), "\"b\", F32 [8], begins at data byte 16, the one before it ends at 32"},
      {"same_bytes", two(0, 64).bytes(), "\"b\", F32 [8], begins at data byte 0"},
      {"gap", two(64, 96).bytes(), "\"b\", F32 [8], begins at data byte 64"},
      {"cut_data", two(32, 63).bytes(), "\"b\", F32 [8], takes 32 bytes from data byte 32 on, the file has 63"},
      {"no_data", one(f32, {1}, 0).head(), "which begin at byte"},
      {"alignment_zero", with(gguf_pair("general.alignment", 4, little_endian(0, 4))), "no power of two"},
      {"alignment_three", with(gguf_pair("general.alignment", 4, little_endian(3, 4))), "no power of two"},
      {"alignment_text", with(gguf_pair("general.alignment", 8, gguf_text("32"))), "no power of two"},
      {"alignment_huge", with(gguf_pair("general.alignment", 4, little_endian(0x80000000, 4))), "at byte 2147483648"},
      {"q2_0_neither", one(q2_0, {1024}, 290).bytes(), "\"w\", Q2_0 [1024], fits neither blocks of 64"},
      {"name_2_60", counts(1, 0) + little_endian(huge, 8) + std::string(40, 'k'), "a tensor's name claims"},
      {"line_break_in_name", counts(1, 0) + gguf_text("a\nb") + little_endian(9, 4) + std::string(20, '\0'),
       "\"a?b\": expected at most 4 axes, got 9"},
  };
}

class GgufHostile : public testing::TestWithParam<Hostile> {};

TEST_P(GgufHostile, IsRefusedInOneSentence) {
  const Scratch scratch;
  const std::string path = scratch.path("model.gguf");
  write_file(path, GetParam().bytes);
  const std::string sentence = refusal([&] { load_gguf(path); });
  if (GetParam().part[0] == '\0')
    EXPECT_EQ(sentence, "");
  else
    expect_sentence(sentence, path, GetParam().part);
}

INSTANTIATE_TEST_SUITE_P(Files, GgufHostile, testing::ValuesIn(hostile_files()),
                         [](const auto& file) { return file.param.name; });

TEST(GgufHostile, EveryCutOfAFileIsRefusedOrWhole) {
  const Scratch scratch;
  GgufBytes file = two(32, 64);
  file.metadata = {gguf_pair("k", 9, little_endian(8, 4) + little_endian(1, 8) + gguf_text("abc"))};
  const std::string path = scratch.path("model.gguf"), bytes = file.bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    write_file(path, bytes.substr(0, size));
    expect_sentence(refusal([&] { load_gguf(path); }), path, "");
    EXPECT_NE(refusal([&] { load_gguf(path); }), "") << size;
  }
}

}  // namespace
}  // namespace bie::formats::test
