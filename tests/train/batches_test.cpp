// Batches of the training data: every image once an epoch, and crops and flips that a formula here finds again.
#include "train/loop/batches.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "tests/support/scratch.h"

namespace bie::train::test {
namespace {

constexpr std::int64_t count = 50, batch = 8, steps = 6;  // an epoch's

/// Images of positive pixels that all differ; the label is the image's index.
data::Dataset numbered(at::IntArrayRef image) {
  std::vector<std::int64_t> sizes{count};
  sizes.insert(sizes.end(), image.begin(), image.end());
  const std::int64_t pixels = c10::multiply_integers(sizes);
  return {at::arange(1, pixels + 1, at::kFloat).view(sizes), at::arange(count), {}, {}, count, "numbered"};
}

Batches batches_of(const data::Dataset& data, Augmentation augmentation, std::uint64_t seed = 3) {
  return {data, at::kCPU, batch, augmentation, seed};
}

/// First row, first column and whether it is mirrored: the place that `image` was cropped from.
std::tuple<int, int, bool> place_of(const at::Tensor& image, const at::Tensor& original) {
  const at::Tensor padded = at::constant_pad_nd(original, {4, 4, 4, 4});
  for (const bool mirrored : {false, true})
    for (int top = 0; top <= 8; ++top)
      for (int left = 0; left <= 8; ++left) {
        at::Tensor crop = padded.slice(1, top, top + original.size(1)).slice(2, left, left + original.size(2));
        if (mirrored) crop = crop.flip(2);
        if (crop.equal(image)) return {top, left, mirrored};
      }
  ADD_FAILURE() << "no crop of its original";
  return {};
}

TEST(Batches, WithoutAugmentationTheyAreTheImages) {
  const data::Dataset data = numbered({2, 5, 4});
  Batches batches = batches_of(data, Augmentation::none);
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < steps; ++i) {
      const auto [images, labels] = batches.batch(epoch * steps + i);
      EXPECT_TRUE(images.is_contiguous());
      EXPECT_TRUE(images.equal(data.train_images.index_select(0, labels)));
      order.insert(order.end(), labels.data_ptr<std::int64_t>(), labels.data_ptr<std::int64_t>() + labels.numel());
    }
    EXPECT_EQ(order.size(), static_cast<std::size_t>(steps * batch));
    EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), order.size()) << "no image twice";
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(Batches, CropsAndFlipsReachEveryPlaceAlike) {
  for (const std::vector<std::int64_t>& image : {std::vector<std::int64_t>{3, 9, 11}, {1, 12, 9}}) {
    const data::Dataset data = numbered(image);
    Batches batches = batches_of(data, Augmentation::crop_flip), plain = batches_of(data, Augmentation::none);
    std::map<int, int> tops, lefts;
    int mirrored = 0;
    constexpr int epochs = 20, all = epochs * steps * batch;
    for (std::int64_t step = 0; step < epochs * steps; ++step) {
      const auto [images, labels] = batches.batch(step);
      EXPECT_TRUE(images.is_contiguous());
      EXPECT_TRUE(labels.equal(plain.batch(step).labels)) << "the order is that without augmentation";
      for (std::int64_t i = 0; i < batch; ++i) {
        const auto [top, left, flip] = place_of(images[i], data.train_images[labels[i].item<std::int64_t>()]);
        ++tops[top];
        ++lefts[left];
        mirrored += flip;
      }
    }
    // 960 draws: about 107 of each place, give or take 10, and 480 flips, give or take 15.
    for (const auto* places : {&tops, &lefts}) {
      EXPECT_EQ(places->size(), 9u);
      for (const auto& [place, times] : *places) EXPECT_NEAR(times, all / 9, 50) << place;
    }
    EXPECT_NEAR(mirrored, all / 2, 75);
  }
}

TEST(Batches, AStepIsTheSameWhereverARunStarts) {
  const data::Dataset data = numbered({1, 9, 9});
  for (const Augmentation augmentation : {Augmentation::none, Augmentation::crop_flip}) {
    Batches whole = batches_of(data, augmentation);
    for (const std::int64_t first : {0, 3, 8, 12}) {
      Batches resumed = batches_of(data, augmentation);
      for (std::int64_t step = first; step < 15; ++step) {
        const auto [images, labels] = resumed.batch(step);
        EXPECT_TRUE(images.equal(whole.batch(step).images)) << step;
        EXPECT_TRUE(labels.equal(whole.batch(step).labels)) << step;
      }
    }
    Batches other = batches_of(data, augmentation, 4);
    EXPECT_FALSE(other.batch(0).labels.equal(whole.batch(0).labels));
  }
  // Two steps move the same image differently: the order repeats, the crops do not.
  const data::Dataset one{
      at::arange(1, 82, at::kFloat).view({1, 1, 9, 9}), at::zeros({1}, at::kLong), {}, {}, 1, "one"};
  Batches crops(one, at::kCPU, 1, Augmentation::crop_flip, 3);
  std::set<std::tuple<int, int, bool>> places;
  for (std::int64_t step = 0; step < 20; ++step)
    places.insert(place_of(crops.batch(step).images[0], one.train_images[0]));
  EXPECT_GT(places.size(), 10u);
}

TEST(Batches, AugmentationsHaveNames) {
  for (const Augmentation augmentation : {Augmentation::none, Augmentation::crop_flip})
    EXPECT_EQ(augmentation_of(name(augmentation)), augmentation);
  EXPECT_STREQ(name(Augmentation::crop_flip), "crop-flip");
  for (const char* wrong : {"", "flip", "Crop-flip"})
    bie::test::expect_sentence(bie::test::refusal([&] { augmentation_of(wrong); }), "the augmentation is '",
                               "none or crop-flip is wanted");
}

}  // namespace
}  // namespace bie::train::test
