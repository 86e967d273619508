// How training images are changed from step to step.
#pragma once

#include <string>

namespace bie::train {

enum class Augmentation {
  none,
  crop_flip,  ///< a border of 4 zeros, cropped back at a random place, and half of the images mirrored left to right
};
/// "none" or "crop-flip".
const char* name(Augmentation augmentation);
Augmentation augmentation_of(const std::string& name);  ///< A ValueError for any other name.

}  // namespace bie::train
