// Files of training checkpoints: what is written comes back, every damage is found, only the newest are kept.
#include "bie/train/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bie/data/checksum.h"
#include "bie/data/tensor_files.h"
#include "tests/support/scratch.h"

namespace bie::train::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

Checkpoint checkpoint(std::int64_t step) {
  return {step,
          R"({"lr":0.1})",
          {{"a", at::arange(6, at::kFloat).view({2, 3})},
           {"b", at::full({}, step, at::kLong)},
           {"c", at::arange(5, at::kChar)},
           {"d", at::full({0, 3}, 0, at::kBFloat16)}}};
}

std::vector<std::string> files(const Scratch& scratch) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.folder()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string file_of(const Scratch& scratch, const std::string& step) {
  return scratch.path("step-" + std::string(12 - step.size(), '0') + step + ".safetensors");
}

TEST(Checkpoint, ComesBackAsItWas) {
  const Scratch scratch;
  const std::string dir = scratch.path("new/folder");
  EXPECT_FALSE(has_checkpoints(dir));
  EXPECT_FALSE(newest_checkpoint(dir, {}).has_value());
  const Checkpoint written = checkpoint(7);
  save_checkpoint(dir, written);
  EXPECT_TRUE(has_checkpoints(dir));
  const std::optional<Checkpoint> read = newest_checkpoint(dir, [](const std::string& s) { ADD_FAILURE() << s; });
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->step, 7);
  EXPECT_EQ(read->run, written.run);
  ASSERT_EQ(read->tensors.size(), written.tensors.size());
  for (const auto& [name, tensor] : written.tensors) {
    ASSERT_EQ(read->tensors.count(name), 1u) << name;
    EXPECT_EQ(read->tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(read->tensors.at(name).equal(tensor)) << name;
  }
}

TEST(Checkpoint, TheNewestAreKept) {
  const Scratch scratch;
  for (const std::int64_t step : {8, 9, 10, 100}) save_checkpoint(scratch.folder(), checkpoint(step));
  EXPECT_EQ(files(scratch),
            (std::vector<std::string>{"step-000000000010.safetensors", "step-000000000100.safetensors"}));
  EXPECT_EQ(newest_checkpoint(scratch.folder(), {})->step, 100);
  for (const std::int64_t step : {101, 102, 103}) save_checkpoint(scratch.folder(), checkpoint(step), 3);
  EXPECT_EQ(scratch.count(), 3);
}

TEST(Checkpoint, DamagedOnesOfLaterStepsDoNotPushGoodOnesOut) {
  const Scratch scratch;
  for (const std::int64_t step : {8, 9}) save_checkpoint(scratch.folder(), checkpoint(step));
  for (const char* step : {"20", "25"}) write_file(file_of(scratch, step), "damaged");
  EXPECT_EQ(newest_checkpoint(scratch.folder(), {})->step, 9);
  save_checkpoint(scratch.folder(), checkpoint(10));
  EXPECT_EQ(files(scratch),
            (std::vector<std::string>{"step-000000000009.safetensors", "step-000000000010.safetensors"}));
}

TEST(Checkpoint, OddMetadataIsPassedOver) {
  const Scratch scratch;
  const auto write = [&](const std::string& text) {
    const Checkpoint c = checkpoint(2);
    data::save_safetensors(file_of(scratch, "2"), c.tensors,
                           {{"bie", text}, {"crc32", std::to_string(data::checksum(c.tensors, text))}});
  };
  write(R"({"kind":"training","format_version":1,"step":2,"run":{}})");
  EXPECT_EQ(newest_checkpoint(scratch.folder(), {})->run, "{}");
  save_checkpoint(scratch.folder(), checkpoint(1));
  for (const char* odd : {
           R"({"kind":5,"format_version":1,"step":2,"run":{}})",
           R"({"format_version":1,"step":2,"run":{}})",
           R"({"kind":"training","format_version":"1","step":2,"run":{}})",
           R"({"kind":"training","format_version":2,"step":2,"run":{}})",
           R"({"kind":"training","format_version":1,"step":"x","run":{}})",
           R"({"kind":"training","format_version":1,"step":3,"run":{}})",
           R"({"kind":"training","format_version":1,"step":[2],"run":{}})",
           R"({"kind":"training","format_version":1,"run":{}})",
           R"({"kind":"training","format_version":1,"step":2,"run":[]})",
           R"({"kind":"training","format_version":1,"step":2,"run":"{}"})",
           R"({"kind":"training","format_version":1,"step":2})",
           "[]",
           "no JSON",
       }) {
    SCOPED_TRACE(odd);
    write(odd);
    std::vector<std::string> notes;
    const auto found = newest_checkpoint(scratch.folder(), [&](const std::string& s) { notes.push_back(s); });
    EXPECT_EQ(found->step, 1);
    ASSERT_EQ(notes.size(), 1u);
    expect_sentence(notes[0], file_of(scratch, "2"), "passed over");
  }
}

TEST(Checkpoint, FilesOfOthersAreLeftAlone) {
  const Scratch scratch;
  const std::vector<std::string> others = {"notes.txt", "step-1.txt", "step-last.safetensors",
                                           "step-000000000003.safetensors.bak"};
  for (const std::string& name : others) write_file(scratch.path(name), "mine");
  EXPECT_FALSE(has_checkpoints(scratch.folder()));
  for (const std::int64_t step : {1, 2, 3}) save_checkpoint(scratch.folder(), checkpoint(step));
  EXPECT_EQ(newest_checkpoint(scratch.folder(), [](const std::string& s) { ADD_FAILURE() << s; })->step, 3);
  for (const std::string& name : others) EXPECT_EQ(read_file(scratch.path(name)), "mine") << name;
  EXPECT_EQ(scratch.count(), 6);
}

// The names are those of formats::ReplacingFile, the process one that cannot be.
TEST(Checkpoint, WhatAKilledSaveLeftDoesNoHarm) {
  const Scratch scratch;
  const std::string left = file_of(scratch, "5") + ".tmp-2147483646";
  write_file(left, "half a checkpoint");
  EXPECT_FALSE(has_checkpoints(scratch.folder()));
  EXPECT_FALSE(newest_checkpoint(scratch.folder(), {}).has_value());
  save_checkpoint(scratch.folder(), checkpoint(4));
  EXPECT_EQ(newest_checkpoint(scratch.folder(), [](const std::string& s) { ADD_FAILURE() << s; })->step, 4);
  save_checkpoint(scratch.folder(), checkpoint(5));
  EXPECT_FALSE(std::filesystem::exists(left)) << "the save of the same step removes it";
  EXPECT_EQ(newest_checkpoint(scratch.folder(), {})->step, 5);
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  const Scratch scratch;
  save_checkpoint(scratch.folder(), checkpoint(1));
  const std::string path = file_of(scratch, "1"), good = read_file(path);
  ASSERT_GT(good.size(), 300u);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    write_file(path, bad);
    ASSERT_NE(refusal([&] { newest_checkpoint(scratch.folder(), {}); }), "") << "byte " << i;
  }
}

TEST(Checkpoint, EveryTruncationIsFound) {
  const Scratch scratch;
  save_checkpoint(scratch.folder(), checkpoint(1));
  const std::string path = file_of(scratch, "1"), good = read_file(path);
  for (std::size_t size = 0; size < good.size(); size += 3) {
    write_file(path, good.substr(0, size));
    ASSERT_NE(refusal([&] { newest_checkpoint(scratch.folder(), {}); }), "") << size << " bytes";
  }
}

TEST(Checkpoint, WhereAllAreDamagedTheNewestIsNamed) {
  const Scratch scratch;
  for (const std::int64_t step : {1, 2}) save_checkpoint(scratch.folder(), checkpoint(step));
  write_file(file_of(scratch, "2"), "");
  write_file(file_of(scratch, "1"), "no header at all, but enough bytes for one");
  std::vector<std::string> notes;
  const std::string sentence =
      refusal([&] { newest_checkpoint(scratch.folder(), [&](const std::string& s) { notes.push_back(s); }); });
  expect_sentence(sentence, file_of(scratch, "2"), "no checkpoint in " + scratch.folder());
  ASSERT_EQ(notes.size(), 2u);
  expect_sentence(notes[0], file_of(scratch, "2"), "passed over");
  expect_sentence(notes[1], file_of(scratch, "1"), "passed over");
}

TEST(Checkpoint, AFolderThatCannotBeMadeIsNamed) {
  const Scratch scratch;
  write_file(scratch.path("file"), "");
  for (const std::string& dir : {scratch.path("file"), scratch.path("file/below")})
    expect_sentence(refusal([&] { save_checkpoint(dir, checkpoint(1)); }), dir, "");
  EXPECT_EQ(scratch.count(), 1);
}

}  // namespace
}  // namespace bie::train::test
