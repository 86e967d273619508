// Broken and malicious torch.save files: refused in one sentence; none crashes, executes or allocates what it claims.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bie/data/tensor_files.h"
#include "tests/data/torch_peer.h"
#include "tests/support/scratch.h"
#include "tests/support/zip_writer.h"

namespace bie::data::test {
namespace {

using bie::test::expect_sentence;
using bie::test::little_endian;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;
using bie::test::zip_of;
using bie::test::ZipMember;

using namespace std::string_literals;

/// The sentence about a file with this pickle and a storage "0" of 16 bytes; "" where it is read.
std::string sentence_of(const std::string& pickle) {
  const Scratch scratch;
  write_file(scratch.path("a"), zip_of({{"a/data.pkl", pickle}, {"a/data/0", "0123456789abcdef"}}));
  const std::string sentence = refusal([&] { load_torch_state_dict(scratch.path("a")); });
  EXPECT_TRUE(sentence.empty() || sentence.find(scratch.path("a")) != std::string::npos) << sentence;
  EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  return sentence;
}

std::string text(const std::string& value) { return "X"s + little_endian(value.size(), 4) + value; }

std::string integer(std::int64_t value) { return "\x8a\x08"s + little_endian(static_cast<std::uint64_t>(value), 8); }

std::string integers(const std::vector<std::int64_t>& values) {
  std::string pickle = "(";
  for (const std::int64_t value : values) pickle += integer(value);
  return pickle + "t";
}

struct Recipe {
  std::string storage_class = "FloatStorage", key = "0";
  std::int64_t count = 4, offset = 0;
  std::vector<std::int64_t> sizes = {4}, strides = {1};
};

std::string tensor(const Recipe& r) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(("s + text("storage") + "ctorch\n" + r.storage_class + "\n" +
         text(r.key) + text("cpu") + integer(r.count) + "tQ" + integer(r.offset) + integers(r.sizes) +
         integers(r.strides) + "\x89}tR";
}

std::string dict_of(const std::string& value) { return "\x80\x02}"s + text("w") + value + "s."; }

struct Hostile {
  const char* name;
  std::string pickle;
  const char* part;  ///< of the sentence; "" for a pickle that is fine
};

std::vector<Hostile> hostile_pickles() {
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  const std::string deep(100000, '(');
  const std::string lists(100000, ']');
  std::string append_lists;
  for (int i = 0; i < 99999; ++i) append_lists += "a";
  std::string long_name(5000, 'n');
  return {
      {"fine", dict_of(tensor({})), ""},
      {"fine_view", dict_of(tensor({.offset = 1, .sizes = {2}, .strides = {2}})), ""},
      {"fine_empty", dict_of(tensor({.offset = 9, .sizes = {0, huge}, .strides = {1, 1}})), ""},
      {"fine_deep", "\x80\x02}"s + text("w") + tensor({}) + "s" + text("l") + lists + append_lists + "s.", ""},
      {"fine_holds_itself", "\x80\x02}q\0"s + text("w") + tensor({}) + "s" + text("me") + "h\0s."s, ""},
      {"os_system", "\x80\x02"s + "cos\nsystem\n" + text("touch hacked") + "\x85R.", R"("os"."system")"},
      {"posix_system", "\x80\x02"s + "cposix\nsystem\n" + text("touch hacked") + "\x85R.", R"("posix"."system")"},
      {"eval_by_stack", "\x80\x04"s + "\x8c\x08" + "builtins" + "\x8c\x04" + "eval" + "\x93\x8c\x01" + "1" + "\x85R.",
       R"("builtins"."eval")"},
      {"long_global", "\x80\x02"s + "c" + long_name + "\n" + long_name + "\n.", "nnn...\""},
      {"global_of_two_lines", "\x80\x02"s + "c\n\n.", R"(names ""."")"},
      {"call_of_a_class", dict_of("ctorch\nTensor\n)R"), "calls a class"},
      {"call_of_a_storage_class", dict_of("ctorch\nFloatStorage\n)R"), "calls a class"},
      {"call_of_no_function", dict_of("K\1)R"), "expected a function, got something else"},
      {"call_without_tuple", dict_of("ccollections\nOrderedDict\n]R"), "expected arguments, got something else"},
      {"ordered_dict_of_arguments", dict_of("ccollections\nOrderedDict\n(K\1tR"), "makes an OrderedDict of arguments"},
      {"tensor_of_nothing", dict_of("ctorch._utils\n_rebuild_tensor_v2\n)R"),
       "makes a tensor: expected 6 or 7 arguments, got 0"},
      {"tensor_of_numbers", dict_of("ctorch._utils\n_rebuild_tensor_v2\n(K\1K\1K\1K\1K\1K\1tR"),
       "no storage and offset"},
      {"parameter_of_no_tensor", dict_of("ctorch._utils\n_rebuild_parameter\n(K\1K\1K\1tR"),
       "a parameter of no tensor"},
      {"from_type_of_itself",
       dict_of("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nctorch\nTensor\n)}tR"),
       "from the wrong arguments"},
      {"instance", dict_of("ccollections\nOrderedDict\n)\x81"), "the operation 129"},
      {"inst", "\x80\x02(ios\nsystem\n.", "the operation 105"},
      {"extension", dict_of("\x82\1"), "the operation 130"},
      {"protocol_0_string", dict_of("S'x'\n"), "the operation 83"},
      {"protocol_6", "\x80\x06}.", "is of protocol 6"},
      {"protocol_again", "\x80\x02\x80\x02}.", "is of protocol 2"},
      {"nothing", "", "ends in the middle"},
      {"only_stop", "\x80\x02.", "ends in the middle"},
      {"two_values", "\x80\x02}}.", "ends in the middle"},
      {"open_mark", "\x80\x02}(.", "ends in the middle"},
      {"bytes_after", dict_of(tensor({})) + "}", "ends in the middle"},
      {"deep_marks", "\x80\x02"s + deep + "t.", "ends in the middle"},
      {"text_over_end", "\x80\x02X\xff\xff\xff\x7f", "ends in the middle"},
      {"text_of_terabytes", "\x80\x04\x8d"s + little_endian(UINT64_MAX, 8), "ends in the middle"},
      {"frame_over_end", "\x80\x04\x95"s + little_endian(UINT64_MAX, 8), "ends in the middle"},
      {"global_without_end", "\x80\x02"s + "cos", "ends in the middle"},
      {"pop_of_nothing", "\x80\x02\x85", "more values than there are"},
      {"pop_below_the_mark", "\x80\x02}(s", "more values than there are"},
      {"no_mark", "\x80\x02}t.", "more values than there are"},
      {"memo_of_nothing", "\x80\x02q\0"s, "more values than there are"},
      {"memo_gap", "\x80\x02}r\xff\xff\xff\x7f.", "out of order"},
      {"memo_unknown", "\x80\x02h\0."s, "a value it does not have"},
      {"odd_dict", "\x80\x02}(K\1u.", "adds to what cannot hold it"},
      {"append_to_dict", "\x80\x02}K\1a.", "adds to what cannot hold it"},
      {"set_item_of_list", "\x80\x02]K\1K\1s.", "adds to what cannot hold it"},
      {"build_of_list", "\x80\x02]}b.", "attributes of what is no dict"},
      {"storage_of_two", dict_of("K\1K\1\x86Q"), "names a storage: expected 5 values, got 2"},
      {"storage_of_numbers", dict_of("ctorch._utils\n_rebuild_tensor_v2\n((K\1K\1K\1K\1K\1tQK\0))\x89}tR"s),
       "a storage without its key and size"},
      {"storage_of_no_class", dict_of(tensor({.storage_class = "Tensor"})), "a storage of no dtype"},
      {"storage_missing", dict_of(tensor({.key = "1"})), "\"data/1\", which is missing"},
      {"storage_elsewhere", dict_of(tensor({.key = "../../etc/passwd"})), "which is missing"},
      {"storage_over_entry", dict_of(tensor({.count = 5})), "has 16 bytes"},
      {"storage_huge", dict_of(tensor({.count = INT64_MAX})), "has 16 bytes"},
      {"storage_negative", dict_of(tensor({.count = -1})), "has 16 bytes"},
      {"bool_of_letters", dict_of(tensor({.storage_class = "BoolStorage"})), "neither 0 nor 1"},
      {"offset_over_end", dict_of(tensor({.offset = 1})), "its storage has 4 elements"},
      {"offset_negative", dict_of(tensor({.offset = -1})), "no storage and offset"},
      {"offset_overflows", dict_of(tensor({.offset = INT64_MAX, .sizes = {2}})), "overflow"},
      {"sizes_over_end", dict_of(tensor({.sizes = {5}})), "its storage has 4 elements"},
      {"sizes_negative", dict_of(tensor({.sizes = {-4}})), "not all sizes"},
      {"sizes_huge", dict_of(tensor({.sizes = {huge}})), "its storage has 4 elements"},
      {"sizes_overflow", dict_of(tensor({.sizes = {huge, huge}, .strides = {0, 0}})), "overflow"},
      {"sizes_overflow_while_empty", dict_of(tensor({.sizes = {huge, huge, 0}, .strides = {0, 0, 0}})), "overflow"},
      {"sizes_repeat", dict_of(tensor({.sizes = {huge}, .strides = {0}})), "save a contiguous copy"},
      {"strides_over_end", dict_of(tensor({.sizes = {2}, .strides = {4}})), "its storage has 4 elements"},
      {"strides_negative", dict_of(tensor({.sizes = {2}, .strides = {-1}})), "not all sizes"},
      {"strides_overflow", dict_of(tensor({.sizes = {3}, .strides = {INT64_MAX}})), "overflow"},
      {"strides_missing", dict_of(tensor({.strides = {}})), "1 sizes and 0 strides"},
      {"rank_65", dict_of(tensor({.sizes = std::vector<std::int64_t>(65, 1)})), "more than 64 sizes"},
      {"twice", "\x80\x02}"s + text("w") + tensor({}) + "s" + text("w") + tensor({}) + "s.", "\"w\" appears twice"},
      {"too_many_values", "\x80\x02"s + std::string(4000001, 'N'), "more than 4000000 values"},
  };
}

class TorchFileHostile : public testing::TestWithParam<Hostile> {};

TEST_P(TorchFileHostile, PickleIsRefusedInOneSentence) {
  const std::string sentence = sentence_of(GetParam().pickle);
  if (GetParam().part[0] == '\0') {
    EXPECT_EQ(sentence, "");
  } else {
    EXPECT_NE(sentence.find(GetParam().part), std::string::npos) << sentence;
  }
}

INSTANTIATE_TEST_SUITE_P(Pickles, TorchFileHostile, testing::ValuesIn(hostile_pickles()),
                         [](const auto& file) { return file.param.name; });

TEST(TorchFileHostile, BrokenArchivesAreRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("a");
  const std::string pickle = dict_of(tensor({}));
  const ZipMember data{"a/data/0", "0123456789abcdef"};
  const auto refused = [&](const std::vector<ZipMember>& members, const char* part) {
    write_file(path, zip_of(members));
    expect_sentence(refusal([&] { load_torch_state_dict(path); }), path, part);
  };
  refused({}, "does not begin as a zip file does");
  refused({data}, "has no entry \"a/data.pkl\"");
  refused({{"b/data.pkl", pickle}, data}, "\"data/0\", which is missing");
  refused({{"a/data.pkl", pickle}, data, data}, "\"a/data/0\" appears twice");
  refused({{.name = "a/data.pkl", .bytes = pickle, .method = 8}, data}, "\"a/data.pkl\" is compressed");
  refused({{.name = "a/data.pkl", .bytes = pickle, .flags = 1}, data}, "\"a/data.pkl\" is encrypted");
  refused({{.name = "a/data.pkl", .bytes = pickle, .claimed = 300}, data}, "does not lie before the directory");
  refused({{.name = "a/data.pkl", .bytes = pickle, .claimed = 0xfffffff0}, data}, "the zip directory names byte");
  refused({{.name = "a/data.pkl", .bytes = pickle, .claimed = 0xffffffff}, data}, "without its zip64 sizes");
  refused({{.name = "a/data.pkl", .bytes = pickle, .claimed = pickle.size() + 20}, data}, "overlap");
  refused({{"a/data.pkl", pickle}, data, {"a/byteorder", "big"}}, "only little-endian");
  write_file(path, "PK\3\4"s + std::string(100, '\0'));
  expect_sentence(refusal([&] { load_torch_state_dict(path); }), path, "does not end as a zip file does");
  write_file(path, "");
  expect_sentence(refusal([&] { load_torch_state_dict(path); }), path, "does not begin as a zip file does");
}

TEST(TorchFileHostile, AMisalignedStorageIsReadRight) {
  const Scratch scratch;
  for (int padding = 0; padding < 8; ++padding) {
    const std::string pickle = dict_of(tensor({}));
    const std::string values("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40", 16);
    write_file(scratch.path("a"), zip_of({{"a/data.pkl", pickle},
                                          {"a/padding", std::string(static_cast<std::size_t>(padding), ' ')},
                                          {"a/data/0", values}}));
    const at::Tensor w = load_torch_state_dict(scratch.path("a")).at("w");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(w.const_data_ptr()) % alignof(float), 0u);
    EXPECT_TRUE(at::equal(w, at::tensor({1.0F, 2.0F, 3.0F, 4.0F})));
  }
}

TEST(TorchFileHostile, EveryCutOfAFileIsRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("a");
  const std::string bytes = read_file(torch_files().path("small.pt"));
  ASSERT_GT(bytes.size(), 500u);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    write_file(path, bytes.substr(0, size));
    const std::string sentence = refusal([&] { load_torch_state_dict(path); });
    ASSERT_NE(sentence.find(path), std::string::npos) << "cut to " << size << ": " << sentence;
  }
}

TEST(TorchFileHostile, EveryFlippedBitIsRefusedOrHarmless) {
  const Scratch scratch;
  const std::string path = scratch.path("a");
  std::string bytes = read_file(torch_files().path("small.pt"));
  int loaded = 0;
  int tries = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit, ++tries) {
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      write_file(path, bytes);
      const std::string sentence = refusal([&] {
        for (const auto& [name, w] : load_torch_state_dict(path)) ASSERT_LE(w.clone().nbytes(), bytes.size());
        ++loaded;
      });
      ASSERT_EQ(sentence.find('\n'), std::string::npos) << sentence;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    }
  }
  // Padding, times and checksums can change; the pickle and the directory hardly.
  EXPECT_GT(loaded, tries / 4);
  EXPECT_LT(loaded, tries);
}

}  // namespace
}  // namespace bie::data::test
