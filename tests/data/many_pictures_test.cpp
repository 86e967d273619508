// Room for more pictures than fit into memory, and the threads that read them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "bie/data/dataset.h"
#include "data/room_for_bytes.h"
#include "data/split.h"
#include "data/workers.h"
#include "tests/support/scratch.h"

namespace bie::data {
namespace {

using test::expect_sentence;
using test::refusal;
using test::Scratch;

/// TMPDIR while it lives.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& folder) { ::setenv("TMPDIR", folder.c_str(), 1); }
  ~TemporaryFolder() { ::unsetenv("TMPDIR"); }
};

TEST(RoomForBytes, WhatDoesNotFitLiesInAFileWithoutAName) {
  const Scratch scratch;
  const TemporaryFolder here(scratch.folder());
  const at::Tensor images = room_for_bytes({1000, 3, 7, 5}, 1000);
  EXPECT_EQ(images.sizes(), at::IntArrayRef({1000, 3, 7, 5}));
  images.copy_(at::arange(105000).remainder(251).view({1000, 3, 7, 5}));
  EXPECT_TRUE(images.select(0, 999).flatten().equal(at::arange(104895, 105000).remainder(251).to(at::kByte)));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.folder())) << "nobody has to delete it";
  EXPECT_TRUE(pixels(images.select(0, 3)).equal(images.select(0, 3).to(at::kFloat).div(255)));
}

TEST(RoomForBytes, AFolderWithoutRoomIsNamed) {
  const TemporaryFolder nowhere("/nowhere/at/all");
  expect_sentence(refusal([&] { room_for_bytes({1000, 3, 7, 5}, 10); }), "/nowhere/at/all", "pictures of 105000 bytes");
}

TEST(Workers, EveryNumberIsCalledOnce) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> calls(1000);
    on_workers(1000, threads, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
    on_workers(0, threads, [](std::int64_t) { ADD_FAILURE(); });
  }
}

TEST(Workers, TheFirstFaultIsThrown) {
  for (const int threads : {1, 3}) try {
      on_workers(200, threads, [](std::int64_t i) {
        if (i % 50 == 49) throw std::runtime_error(std::to_string(i));
      });
      ADD_FAILURE();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "49");
    }
}

TEST(Validation, AShareOfEachClassIsSetAside) {
  for (const at::ScalarType type : {at::kFloat, at::kByte}) {
    Dataset data;
    data.name = "numbers";
    data.train_images = at::arange(40).view({40, 1, 1, 1}).to(type);
    data.train_labels = at::arange(40).remainder(4);
    data.test_images = data.train_images.slice(0, 0, 4);
    data.test_labels = data.train_labels.slice(0, 0, 4);
    set_aside_validation(data, 0.2);
    EXPECT_EQ(data.validation_images.sizes(), at::IntArrayRef({8, 1, 1, 1}));
    EXPECT_TRUE(at::bincount(data.validation_labels).equal(at::full({4}, 2, at::kLong)));
    const at::Tensor all = at::cat({data.train_images.flatten(), data.validation_images.flatten()});
    EXPECT_TRUE(std::get<0>(all.to(at::kLong).sort()).equal(at::arange(40))) << "each sample is in one part";
    EXPECT_EQ(data.test_images.size(0), 4);
  }
}

TEST(Validation, WithoutEnoughSamplesItIsRefused) {
  DataOptions options;
  options.validation_share = 0.0001;
  expect_sentence(refusal([&] { load_dataset("digits", options); }), "digits",
                  "for validation, and no class has enough");
  options.validation_share = 1.5;
  expect_sentence(refusal([&] { load_dataset("digits", options); }), "digits",
                  "expected a number between 0 and 1, got");
}

}  // namespace
}  // namespace bie::data
