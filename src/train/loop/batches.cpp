#include "train/loop/batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/randperm.h>

#include "layers/named.h"
#include "ops/random.h"

namespace bie::train {
namespace {

constexpr layers::Named<Augmentation> augmentations[] = {{Augmentation::none, "none"},
                                                         {Augmentation::crop_flip, "crop-flip"}};
constexpr std::int64_t border = 4;
// In the place of a parameter's index, of which no optimizer has so many.
constexpr std::uint64_t crops_stream = ~std::uint64_t{0};

}  // namespace

const char* name(Augmentation augmentation) { return layers::name_of(augmentations, augmentation); }

Augmentation augmentation_of(const std::string& text) {
  return layers::value_of(augmentations, "the augmentation", text);
}

at::Tensor on_device(const at::Tensor& images, at::Device device) {
  return images.to(device).contiguous(device.is_cuda() ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

Batches::Batches(const data::Dataset& data, at::Device device, std::int64_t batch, Augmentation augmentation,
                 std::uint64_t seed)
    : images_(on_device(data.train_images, device).permute({0, 2, 3, 1})),
      labels_(data.train_labels.to(device)),
      count_(images_.size(0)),
      height_(images_.size(1)),
      width_(images_.size(2)),
      batch_(batch),
      augmentation_(augmentation),
      seed_(seed) {
  if (augmentation_ == Augmentation::none) return;
  images_ = at::constant_pad_nd(images_, {0, 0, border, border, border, border}).contiguous();
  rows_ = at::arange(height_, labels_.options());
  columns_ = at::arange(width_, labels_.options());
}

void Batches::start_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  const std::uint64_t mixed = seed_ * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(epoch);
  order_ = at::randperm(count_, at::detail::createCPUGenerator(mixed), at::kLong).to(labels_.device());
  if (augmentation_ == Augmentation::none) return;
  const std::int64_t steps = count_ / batch_, used = steps * batch_;
  const at::Tensor drawn = at::empty({3, used}, at::kLong);
  auto* top = drawn.mutable_data_ptr<std::int64_t>();
  std::int64_t *left = top + used, *way = left + used;
  constexpr std::uint64_t places = 2 * border + 1;
  for (std::int64_t i = 0; i < used; ++i) {
    const ops::Stream stream(seed_, crops_stream, static_cast<std::uint64_t>(epoch * steps + i / batch_));
    const std::uint64_t bits = stream.bits(i % batch_);
    const bool mirrored = bits >> 63 != 0;
    top[i] = static_cast<std::int64_t>(bits % places);
    left[i] = static_cast<std::int64_t>(bits / places % places) + (mirrored ? width_ - 1 : 0);
    way[i] = mirrored ? -1 : 1;
  }
  const at::Tensor moved = drawn.to(labels_.device());  // once an epoch: a step waits for no copy
  top_ = moved[0];
  left_ = moved[1];
  way_ = moved[2];
}

Batches::Batch Batches::batch(std::int64_t step) {
  const std::int64_t steps = count_ / batch_;
  if (step / steps != epoch_) start_epoch(step / steps);
  const std::int64_t first = step % steps * batch_;
  const auto of_step = [&](const at::Tensor& tensor) { return tensor.slice(0, first, first + batch_); };
  const at::Tensor chosen = of_step(order_);
  at::Tensor images;
  if (augmentation_ == Augmentation::none) {
    images = images_.index_select(0, chosen);
  } else {
    const at::Tensor rows = of_step(top_).view({-1, 1, 1}) + rows_.view({1, -1, 1});
    const at::Tensor columns = of_step(left_).view({-1, 1, 1}) + of_step(way_).view({-1, 1, 1}) * columns_;
    images = at::index(images_, {chosen.view({-1, 1, 1}), rows, columns});
  }
  images = images.permute({0, 3, 1, 2});
  return {images.is_cuda() ? images : images.contiguous(), labels_.index_select(0, chosen)};
}

}  // namespace bie::train
