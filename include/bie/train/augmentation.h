// How training images are changed from step to step.
#pragma once

#include <string>

namespace bie::train {

/// Each that is chosen is applied to every image of every step, with numbers of its own, in this order.
struct Augmentations {
  bool crop_flip = false;  ///< a border of 4 zeros, cropped back at a random place; half of the images are mirrored
  bool rotate = false;     ///< turned by up to 15 degrees either way about the middle, with black corners
  bool colour = false;     ///< brightness, contrast and, of coloured images, saturation times 0.8 to 1.2

  bool any() const { return crop_flip || rotate || colour; }
  bool operator==(const Augmentations&) const = default;
};
/// "none", or the names of the chosen ones, "crop-flip,rotate,colour".
std::string name(const Augmentations& augmentations);
Augmentations augmentations_of(const std::string& names);  ///< A ValueError for any other name, or one given twice.

}  // namespace bie::train
