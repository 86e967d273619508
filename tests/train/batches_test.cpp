// Batches of the training data: every image once per epoch, and crops and flips that a formula here finds again.
#include "train/loop/batches.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

Batches batches_of(const data::Dataset& data, const Augmentations& augmentation, std::uint64_t seed = 3) {
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
  Batches batches = batches_of(data, Augmentations{});
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
    Batches batches = batches_of(data, Augmentations{.crop_flip = true}), plain = batches_of(data, Augmentations{});
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
  for (const Augmentations augmentation : {Augmentations{}, Augmentations{.crop_flip = true}}) {
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
  Batches crops(one, at::kCPU, 1, Augmentations{.crop_flip = true}, 3);
  std::set<std::tuple<int, int, bool>> places;
  for (std::int64_t step = 0; step < 20; ++step)
    places.insert(place_of(crops.batch(step).images[0], one.train_images[0]));
  EXPECT_GT(places.size(), 10u);
}

TEST(Batches, AugmentationsHaveNames) {
  const Augmentations all{.crop_flip = true, .rotate = true, .colour = true};
  for (const Augmentations& chosen : {Augmentations{}, Augmentations{.rotate = true}, all})
    EXPECT_EQ(augmentations_of(name(chosen)), chosen);
  EXPECT_EQ(name(all), "crop-flip,rotate,colour");
  EXPECT_EQ(augmentations_of("colour,crop-flip"), (Augmentations{.crop_flip = true, .colour = true}));
  for (const char* wrong : {"", "flip", "Crop-flip", "rotate,", "none,rotate"})
    bie::test::expect_sentence(bie::test::refusal([&] { augmentations_of(wrong); }),
                               "the augmentation: expected none, crop-flip, rotate or colour", ", got '");
  bie::test::expect_sentence(bie::test::refusal([&] { augmentations_of("rotate,rotate"); }), "'rotate' is given twice",
                             "");
}

/// Pixel of an image rotated about its centre, from the definition, in float64: the mean of the four pixels around the
/// place that it comes from (bilinear), zeros outside.
double turned_pixel(const at::Tensor& image, double angle, std::int64_t c, std::int64_t y, std::int64_t x) {
  const std::int64_t height = image.size(1), width = image.size(2);
  const double across = static_cast<double>(x) + 0.5 - static_cast<double>(width) / 2,
               down = static_cast<double>(y) + 0.5 - static_cast<double>(height) / 2;
  const double u = std::cos(angle) * across - std::sin(angle) * down + static_cast<double>(width) / 2 - 0.5,
               v = std::sin(angle) * across + std::cos(angle) * down + static_cast<double>(height) / 2 - 0.5;
  const auto at = [&](double row, double column) {
    const auto i = static_cast<std::int64_t>(row), j = static_cast<std::int64_t>(column);
    return row < 0 || column < 0 || i >= height || j >= width ? 0.0 : image[c][i][j].item<double>();
  };
  const double top = std::floor(v), left = std::floor(u), dv = v - top, du = u - left;
  return (1 - dv) * ((1 - du) * at(top, left) + du * at(top, left + 1)) +
         dv * ((1 - du) * at(top + 1, left) + du * at(top + 1, left + 1));
}

TEST(Batches, RotationsAreTurnsAboutTheMiddle) {
  const data::Dataset data = numbered({2, 9, 12});
  Batches batches(data, at::kCPU, batch, Augmentations{.rotate = true}, 3);
  double least = 1, most = -1;
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto [images, labels] = batches.batch(step);
    for (std::int64_t i = 0; i < batch; ++i) {
      const at::Tensor original = data.train_images[labels[i].item<std::int64_t>()];
      // The angle that explains one pixel off the middle explains all of them.
      double best = 0, error = 1e30;
      for (double angle = -0.27; angle < 0.27; angle += 1e-4)
        if (const double e = std::abs(turned_pixel(original, angle, 0, 2, 8) - images[i][0][2][8].item<double>()) +
                             std::abs(turned_pixel(original, angle, 0, 6, 3) - images[i][0][6][3].item<double>());
            e < error) {
          error = e;
          best = angle;
        }
      least = std::min(least, best);
      most = std::max(most, best);
      for (std::int64_t y = 0; y < 9; ++y)
        for (std::int64_t x = 0; x < 12; ++x)
          EXPECT_NEAR(images[i][1][y][x].item<double>(), turned_pixel(original, best, 1, y, x),
                      0.02 * original.max().item<double>());
    }
  }
  EXPECT_LT(least, -0.1);
  EXPECT_GT(most, 0.1);
  EXPECT_LE(std::max(-least, most), 15 * 3.14159266 / 180 + 1e-3);
}

TEST(Batches, ColoursKeepTheOrderOfBrightness) {
  data::Dataset data = numbered({3, 4, 5});
  data.train_images = data.train_images.div(data.train_images.max() * 2);
  Batches batches(data, at::kCPU, batch, Augmentations{.colour = true}, 3);
  std::set<double> ratios;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto [images, labels] = batches.batch(step);
    for (std::int64_t i = 0; i < batch; ++i) {
      const at::Tensor original = data.train_images[labels[i].item<std::int64_t>()].to(at::kDouble);
      // Brightness alone moves the mean, but for what saturation does to it: within 20 %.
      const double ratio = images[i].mean().item<double>() / original.mean().item<double>();
      EXPECT_GT(ratio, 0.75);
      EXPECT_LT(ratio, 1.25);
      ratios.insert(ratio);
      // Grey over the mean grey is contrast: a straight line for every pixel.
      const at::Tensor weights = at::tensor({0.299, 0.587, 0.114}, at::kDouble).view({3, 1, 1});
      const at::Tensor before = (original * weights).sum(0), after = (images[i].to(at::kDouble) * weights).sum(0);
      const at::Tensor slope =
          (after - after[0][0]).flatten().slice(0, 1) / (before - before[0][0]).flatten().slice(0, 1);
      EXPECT_LT((slope.max() - slope.min()).item<double>(), 1e-3);
      EXPECT_GT(slope.min().item<double>(), 0.8 * 0.8 - 1e-3);
      EXPECT_LT(slope.max().item<double>(), 1.2 * 1.2 + 1e-3);
    }
  }
  EXPECT_EQ(ratios.size(), static_cast<std::size_t>(steps * batch)) << "numbers of its own for every image";
  const auto grey = numbered({1, 4, 5});
  Batches of_grey(grey, at::kCPU, batch, Augmentations{.colour = true}, 3);
  EXPECT_EQ(of_grey.batch(0).images.sizes(), at::IntArrayRef({batch, 1, 4, 5}));
}

TEST(Batches, BytesAreTheSameImages) {
  data::Dataset bytes = numbered({3, 4, 2}), floats = bytes;
  bytes.train_images = bytes.train_images.remainder(256).to(at::kByte);
  floats.train_images = bytes.train_images.to(at::kFloat).div(255);
  for (const Augmentations& chosen : {Augmentations{}, Augmentations{.crop_flip = true}})
    EXPECT_TRUE(batches_of(bytes, chosen).batch(7).images.equal(batches_of(floats, chosen).batch(7).images));
}

}  // namespace
}  // namespace bie::train::test
