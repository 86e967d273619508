// Broken and malicious safetensors files: each is refused in one sentence, and none crashes or allocates what it
// claims.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bie/data/tensor_files.h"
#include "tests/support/scratch.h"

namespace bie::data::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i));
  return bytes + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes = 0) {
  return with_length(header.size(), header + std::string(data_bytes, '\1'));
}

struct Hostile {
  const char* name;
  std::string bytes;
  const char* part;  ///< of the sentence; "" for a file that is fine
};

std::string u8(const std::string& name, const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":"U8","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::vector<Hostile> hostile_files() {
  const std::string a = u8("a", "[2]", "[0,2]");
  const std::string zero(1, '\0');
  std::string ones = "[1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  ones += "]";
  return {
      {"fine", file_of("{" + a + "}", 2), ""},
      {"fine_padding", file_of("{" + a + "} \n ", 2), ""},
      {"fine_begins_as_a_pickle", file_of(("{" + a + "}").append(0x280 - a.size() - 2, ' '), 2), ""},
      {"fine_begins_as_gzip", file_of(("{" + a + "}").append(0x8b1f - a.size() - 2, ' '), 2), ""},
      {"fine_empty_with_big_size", file_of("{" + u8("a", "[0,1099511627776]", "[0,0]") + "}"), ""},
      {"empty", "", "has 0 bytes"},
      {"seven_bytes", "\1\2\3\4\5\6\7", "has 7 bytes"},
      {"a_text", "loss 0.1\n", "is a text, no safetensors file"},
      {"a_picture", "\x89PNG\r\n\x1a\n and more", "is a PNG picture, no safetensors file"},
      {"a_zip", "PK\3\4 and more", "is a zip archive, as torch.save"},
      {"length_over_file", with_length(3, "{}"), "header of 3 bytes and has 2"},
      {"length_over_limit", with_length(100000001, "{}"), "the limit is 100000000"},
      {"length_negative", with_length(UINT64_MAX, "{}"), "the limit is 100000000"},
      {"header_empty", with_length(0, ""), "does not begin with {"},
      {"header_space_first", file_of(" {}"), "does not begin with {"},
      {"header_array", file_of("[]"), "does not begin with {"},
      {"header_byte_order_mark", file_of("\xEF\xBB\xBF{}"), "does not begin with {"},
      {"zero_byte_after", file_of("{}" + zero + "x"), "zero byte"},
      {"garbage_after", file_of("{}x"), "not UTF-8 JSON at its byte 3"},
      {"unclosed", file_of("{" + a), "not UTF-8 JSON"},
      {"not_utf8", file_of("{\"\xff\":{}}"), "not UTF-8 JSON"},
      {"overlong_utf8", file_of("{\"\xc0\x80\":{}}"), "not UTF-8 JSON"},
      {"lone_surrogate", file_of(R"({"\ud800":{}})"), "not UTF-8 JSON"},
      {"comment", file_of("{/**/}"), "not UTF-8 JSON"},
      {"nested_objects", file_of(R"({"a":)" + std::string(100000, '{')), "not UTF-8 JSON"},
      {"nested_keys", file_of(R"({"a":{"dtype":{"b":{"c":1}}}})"), "\"a\" holds an object"},
      {"nested_arrays", file_of(R"({"a":{"shape":)" + std::string(100000, '[')), "\"a\" holds an array"},
      {"twice", file_of("{" + a + "," + a + "}", 2), "\"a\" appears twice"},
      {"twice_escaped", file_of("{" + a + "," + u8("\\u0061", "[0]", "[2,2]") + "}", 2), "\"a\" appears twice"},
      {"metadata_twice", file_of(R"({"__metadata__":{},"__metadata__":{}})"), "\"__metadata__\" appears twice"},
      {"metadata_key_twice", file_of(R"({"__metadata__":{"k":"1","k":"2"}})"), "__metadata__ has \"k\" twice"},
      {"metadata_number", file_of(R"({"__metadata__":{"k":1}})"), "\"__metadata__\" holds a number"},
      {"metadata_string", file_of(R"({"__metadata__":"k"})"), "\"__metadata__\" holds a string"},
      {"metadata_nested", file_of(R"({"__metadata__":{"k":{}}})"), "\"__metadata__\" holds an object"},
      {"field_twice", file_of(R"({"a":{"dtype":"U8","dtype":"U8"}})"), "\"a\" has \"dtype\" twice"},
      {"field_unknown", file_of(R"({"a":{"stride":[1]}})"), "unknown key \"stride\""},
      {"field_missing", file_of(R"({"a":{"dtype":"U8","shape":[]}})"), "\"a\" has no data_offsets"},
      {"entry_null", file_of(R"({"a":null})"), "\"a\" holds null"},
      {"entry_array", file_of(R"({"a":[]})"), "\"a\" holds an array"},
      {"dtype_unknown", file_of(R"({"a":{"dtype":"F4"}})"), "unknown dtype \"F4\""},
      {"dtype_number", file_of(R"({"a":{"dtype":7}})"), "\"a\" holds a number"},
      {"shape_string", file_of("{" + u8("a", "\"2\"", "[0,2]") + "}", 2), "\"a\" holds a string"},
      {"shape_negative", file_of("{" + u8("a", "[-2]", "[0,2]") + "}", 2), "a negative number"},
      {"shape_fraction", file_of("{" + u8("a", "[2.0]", "[0,2]") + "}", 2), "no 64-bit integer"},
      {"shape_huge", file_of("{" + u8("a", "[99999999999999999999]", "[0,2]") + "}", 2), "no 64-bit integer"},
      {"shape_over_int64", file_of("{" + u8("a", "[9223372036854775808]", "[0,2]") + "}", 2), "a number over 2^63"},
      {"shape_true", file_of("{" + u8("a", "[true]", "[0,2]") + "}", 2), "a boolean"},
      {"shape_nested", file_of("{" + u8("a", "[[2]]", "[0,2]") + "}", 2), "\"a\" holds an array"},
      {"shape_long", file_of("{" + u8("a", ones, "[0,1]") + "}", 1), "more than 64 sizes"},
      {"product_overflows", file_of("{" + u8("a", "[4294967296,4294967296]", "[0,0]") + "}"), "overflows"},
      {"empty_product_overflows", file_of("{" + u8("a", "[4294967296,4294967296,0]", "[0,0]") + "}"), "overflows"},
      {"terabytes", file_of("{" + u8("a", "[1099511627776]", "[0,1099511627776]") + "}", 2),
       "the file has 2 data bytes"},
      {"terabytes_short", file_of("{" + u8("a", "[1099511627776]", "[0,2]") + "}", 2), "1099511627776 bytes, and its"},
      {"offsets_one", file_of("{" + u8("a", "[2]", "[2]") + "}", 2), "expected 2 data_offsets, got 1"},
      {"offsets_three", file_of("{" + u8("a", "[2]", "[0,2,2]") + "}", 2), "expected 2 data_offsets, got 3"},
      {"offsets_backwards", file_of("{" + u8("a", "[2]", "[2,0]") + "}", 2), "data_offsets [2, 0]"},
      {"offsets_past_end", file_of("{" + u8("a", "[2]", "[1,3]") + "}", 2), "the file has 2 data bytes"},
      {"overlap", file_of("{" + a + "," + u8("b", "[2]", "[1,3]") + "}", 3), "begins at data byte 1"},
      {"same_bytes", file_of("{" + a + "," + u8("b", "[2]", "[0,2]") + "}", 2), "begins at data byte 0"},
      {"gap", file_of("{" + a + "," + u8("b", "[1]", "[3,4]") + "}", 4), "begins at data byte 3"},
      {"gap_in_front", file_of("{" + u8("a", "[1]", "[1,2]") + "}", 2), "begins at data byte 1"},
      {"trailing", file_of("{" + a + "}", 3), "has 3 data bytes and its tensors end at 2"},
      {"trailing_no_tensor", file_of("{}", 1), "has 1 data bytes and its tensors end at 0"},
      {"bool_two", file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})") + "\2", "neither 0 nor 1"},
      {"line_break_in_name", file_of(R"({"a\nb":1})"), "\"a?b\" holds a number"},
  };
}

class SafetensorsHostile : public testing::TestWithParam<Hostile> {};

TEST_P(SafetensorsHostile, IsRefusedInOneSentence) {
  const Scratch scratch;
  const std::string path = scratch.path("model.safetensors");
  write_file(path, GetParam().bytes);
  const std::string sentence = refusal([&] { load_safetensors(path); });
  if (GetParam().part[0] == '\0') {
    EXPECT_EQ(sentence, "");
  } else {
    expect_sentence(sentence, path, GetParam().part);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, SafetensorsHostile, testing::ValuesIn(hostile_files()),
                         [](const auto& file) { return file.param.name; });

TEST(SafetensorsHostile, WhatIsNoFileIsRefused) {
  const Scratch scratch;
  expect_sentence(refusal([&] { load_safetensors(scratch.path("none")); }), scratch.path("none"), "No such file");
  expect_sentence(refusal([&] { load_safetensors(scratch.folder()); }), scratch.folder(), "is not a regular file");
  ASSERT_EQ(mkfifo(scratch.path("pipe").c_str(), 0600), 0);
  expect_sentence(refusal([&] { load_safetensors(scratch.path("pipe")); }), scratch.path("pipe"), "not a regular file");
}

/// One random damage to a file.
std::string mutate(std::string bytes, std::mt19937_64* random) {
  const auto below = [&](std::size_t limit) {
    return static_cast<std::size_t>((*random)() % std::max<std::size_t>(limit, 1));
  };
  const std::size_t at = below(bytes.size());
  const std::size_t header_end = std::min<std::size_t>(
      bytes.size(), 8 + static_cast<unsigned char>(bytes[0]) + 256 * static_cast<unsigned char>(bytes[1]));
  static const std::string alphabet = "{}[]\":,0123456789-.eE \\utrfnBOLUIF_";
  switch (below(8)) {
    case 0: bytes[at] = static_cast<char>((*random)()); break;
    case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
    case 2: bytes.resize(at); break;
    case 3: bytes.erase(at, 1 + below(16)); break;
    case 4: bytes.insert(at, bytes.substr(below(bytes.size()), below(64))); break;
    case 5: bytes[below(8)] = static_cast<char>((*random)()); break;
    case 6: bytes[8 + below(header_end - 8)] = alphabet[below(alphabet.size())]; break;
    default:
      // Changes in the header that keep its length right reach the checks behind the parser.
      for (std::size_t i = 8; i < header_end; ++i)
        if (bytes[i] >= '0' && bytes[i] <= '9' && below(12) == 0) bytes[i] = static_cast<char>('0' + below(10));
  }
  return bytes;
}

TEST(SafetensorsHostile, DamagedFilesAreRefusedOrValid) {
  constexpr int tries = 20000;
  constexpr std::uint64_t seed = 20240607;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const Scratch scratch;
  const std::string path = scratch.path("model.safetensors");
  save_safetensors(path,
                   {{"a.weight", at::ones({3, 4})},
                    {"a.bias", at::ones({3}, at::kHalf)},
                    {"mask", at::ones({5}, at::kBool)},
                    {"none", at::ones({0, 2}, at::kLong)},
                    {"step", at::ones({}, at::kDouble)}},
                   {{"bie", R"({"format_version":1})"}, {"x", "y"}});
  const std::string original = read_file(path);
  std::mt19937_64 random(seed);
  int loaded = 0;
  for (int i = 0; i < tries; ++i) {
    std::string bytes = mutate(original, &random);
    if (!bytes.empty() && bytes.size() > 16 && random() % 2 == 0) bytes = mutate(bytes, &random);
    write_file(path, bytes);
    std::size_t held = 0;
    const std::string sentence = refusal([&] {
      for (const auto& [name, tensor] : load_safetensors(path).tensors) held += tensor.nbytes();
      ++loaded;
    });
    ASSERT_LE(held, bytes.size()) << "try " << i;
    ASSERT_EQ(sentence.find('\n'), std::string::npos) << "try " << i << ": " << sentence;
    ASSERT_TRUE(sentence.empty() || sentence.find(path) != std::string::npos) << "try " << i << ": " << sentence;
  }
  // Damage to the data alone leaves a valid file; most damage does not.
  EXPECT_GT(loaded, tries / 100);
  EXPECT_LT(loaded, tries / 2);
}

}  // namespace
}  // namespace bie::data::test
