#include "train/loop/augmenter.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/index.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <numbers>
#include <utility>

#include "ops/random.h"

namespace bie::train {
namespace {

constexpr std::int64_t border = 4;
constexpr double most_turn = 15 * std::numbers::pi / 180, most_change = 0.2;

// Streams in the place of a parameter's index, of which no optimizer has so many.
constexpr std::uint64_t crops_stream = ~std::uint64_t{0}, turns_stream = crops_stream - 1,
                        colours_stream = crops_stream - 2;

constexpr std::pair<const char*, bool Augmentations::*> names[] = {
    {"crop-flip", &Augmentations::crop_flip}, {"rotate", &Augmentations::rotate}, {"colour", &Augmentations::colour}};

/// In [-1, 1).
double symmetric(std::uint64_t bits) { return static_cast<double>(bits >> 40) / (1 << 23) - 1; }

}  // namespace

std::string name(const Augmentations& augmentations) {
  std::string all;
  for (const auto& [name, member] : names)
    if (augmentations.*member) all += (all.empty() ? "" : ",") + std::string(name);
  return all.empty() ? "none" : all;
}

Augmentations augmentations_of(const std::string& text) {
  Augmentations chosen;
  if (text == "none") return chosen;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const auto* found = std::begin(names);
    while (found != std::end(names) && word != found->first) ++found;
    TORCH_CHECK_VALUE(
        found != std::end(names),
        "the augmentation: expected none, crop-flip, rotate or colour, or several with commas between, got '", word,
        "'");
    TORCH_CHECK_VALUE(!(chosen.*found->second), "the augmentation '", word, "' is given twice");
    chosen.*found->second = true;
    begin = end + 1;
  }
  return chosen;
}

void Augmenter::start_epoch(std::int64_t first_step, std::int64_t steps, std::int64_t width) {
  if (chosen_.crop_flip) draw_crops(first_step, steps, width);
  const auto drawn = [&](std::uint64_t stream_of, std::int64_t numbers) {
    const at::Tensor all = at::empty({numbers, steps * batch_}, at::kFloat);
    auto* value = all.mutable_data_ptr<float>();
    for (std::int64_t k = 0; k < numbers; ++k)
      for (std::int64_t i = 0; i < steps * batch_; ++i) {
        const ops::Stream stream(seed_, stream_of, static_cast<std::uint64_t>(first_step + i / batch_));
        *value++ = static_cast<float>(symmetric(stream.bits(k * batch_ + i % batch_)));
      }
    return all.to(device_);
  };
  if (chosen_.rotate) angles_ = drawn(turns_stream, 1)[0] * most_turn;
  if (chosen_.colour) colours_ = drawn(colours_stream, 3) * most_change + 1;
}

void Augmenter::draw_crops(std::int64_t first_step, std::int64_t steps, std::int64_t width) {
  const std::int64_t used = steps * batch_;
  const at::Tensor drawn = at::empty({3, used}, at::kLong);
  auto* top = drawn.mutable_data_ptr<std::int64_t>();
  std::int64_t *left = top + used, *way = left + used;
  constexpr std::uint64_t places = 2 * border + 1;
  for (std::int64_t i = 0; i < used; ++i) {
    const ops::Stream stream(seed_, crops_stream, static_cast<std::uint64_t>(first_step + i / batch_));
    const std::uint64_t bits = stream.bits(i % batch_);
    const bool mirrored = bits >> 63 != 0;
    top[i] = static_cast<std::int64_t>(bits % places);
    left[i] = static_cast<std::int64_t>(bits / places % places) + (mirrored ? width - 1 : 0);
    way[i] = mirrored ? -1 : 1;
  }
  const at::Tensor moved = drawn.to(device_);
  top_ = moved[0];
  left_ = moved[1];
  way_ = moved[2];
}

at::Tensor Augmenter::apply(at::Tensor images, std::int64_t step) const {
  if (chosen_.crop_flip) images = cropped(images, step);
  if (chosen_.rotate) images = rotated(images, step);
  if (chosen_.colour) images = coloured(images, step);
  return images;
}

at::Tensor Augmenter::cropped(const at::Tensor& images, std::int64_t step) const {
  const auto of_step = [&](const at::Tensor& drawn) { return drawn.narrow(0, step * batch_, batch_).view({-1, 1, 1}); };
  const at::Tensor padded =
      at::constant_pad_nd(images.permute({0, 2, 3, 1}), {0, 0, border, border, border, border}).contiguous();
  const auto numbers = [&](std::int64_t count) { return at::arange(count, top_.options()); };
  const at::Tensor rows = of_step(top_) + numbers(images.size(2)).view({1, -1, 1});
  const at::Tensor columns = of_step(left_) + of_step(way_) * numbers(images.size(3));
  return at::index(padded, {numbers(batch_).view({-1, 1, 1}), rows, columns}).permute({0, 3, 1, 2});
}

at::Tensor Augmenter::rotated(const at::Tensor& images, std::int64_t step) const {
  const at::Tensor angles = angles_.narrow(0, step * batch_, batch_), c = at::cos(angles), s = at::sin(angles);
  const double ratio = static_cast<double>(images.size(2)) / static_cast<double>(images.size(3));
  const at::Tensor none = at::zeros_like(c);  // where each pixel comes from, in units of half a side
  const at::Tensor from = at::stack({c, s * -ratio, none, s / ratio, c, none}, 1).view({-1, 2, 3});
  const at::Tensor grid = at::affine_grid_generator(from, images.sizes(), /*align_corners=*/false);
  return at::grid_sampler(images, grid, /*interpolation_mode=*/0, /*padding_mode=*/0, /*align_corners=*/false);
}

at::Tensor Augmenter::coloured(const at::Tensor& images, std::int64_t step) const {
  const auto factor = [&](std::int64_t which) {
    return colours_[which].narrow(0, step * batch_, batch_).view({-1, 1, 1, 1});
  };
  at::Tensor x = images;
  if (images.size(1) == 3) {
    const at::Tensor weights = at::tensor({0.299f, 0.587f, 0.114f}, images.options()).view({1, 3, 1, 1});
    const at::Tensor grey = (x * weights).sum(1, /*keepdim=*/true);
    x = grey + (x - grey) * factor(2);
  }
  const at::Tensor mean = x.mean({1, 2, 3}, /*keepdim=*/true);
  return ((mean + (x - mean) * factor(1)) * factor(0)).clamp(0, 1);
}

}  // namespace bie::train
