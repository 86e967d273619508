// One of the binary files in which CIFAR-10 is distributed.
#pragma once

#include <cstdint>
#include <string>

#include "bie/formats/array.h"

namespace bie::formats {

/// @return [n, 3073] uint8, a record an image: its label in [0, 10), then the red, green and blue planes of 32 x 32,
///   as a view of the mapped file.
/// @throws Error, one sentence naming the file, unless it holds one or more whole records.
Array load_cifar10_records(const std::string& path);

constexpr std::int64_t cifar10_classes = 10;

}  // namespace bie::formats
