#include "train/loop/batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

namespace bie::train {
namespace {

constexpr std::int64_t most_bytes_on_a_gpu = std::int64_t{4} << 30;

}  // namespace

at::Tensor on_device(const at::Tensor& images, at::Device device) {
  return data::pixels(images.to(device))
      .contiguous(device.is_cuda() ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

Batches::Batches(const data::Dataset& data, at::Device device, std::int64_t batch, const Augmentations& augmentations,
                 std::uint64_t seed)
    : images_(data.train_images),
      labels_(data.train_labels.to(device)),
      device_(device),
      count_(images_.size(0)),
      batch_(batch),
      augmented_(augmentations.any()),
      seed_(seed),
      augmenter_(augmentations, device, batch, seed) {
  if (static_cast<std::int64_t>(images_.nbytes()) <= most_bytes_on_a_gpu) images_ = images_.to(device);
}

void Batches::start_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  const std::uint64_t mixed = seed_ * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(epoch);
  order_ = at::randperm(count_, at::detail::createCPUGenerator(mixed), at::kLong).to(images_.device());
  const std::int64_t steps = count_ / batch_;
  augmenter_.start_epoch(epoch * steps, steps, images_.size(3));
}

Batches::Batch Batches::batch(std::int64_t step) {
  const std::int64_t steps = count_ / batch_;
  if (step / steps != epoch_) start_epoch(step / steps);
  const at::Tensor chosen = order_.narrow(0, step % steps * batch_, batch_);
  at::Tensor images = data::pixels(images_.index_select(0, chosen).to(device_));
  if (augmented_) images = augmenter_.apply(images, step % steps);
  return {on_device(images, device_), labels_.index_select(0, chosen.to(device_))};
}

}  // namespace bie::train
