// The installed bie::train from outside: its data set as torch tensors.
#include <cstdio>

#include "bie/data/dataset.h"

int main() {
  const bie::data::Dataset digits = bie::data::load_dataset("digits");
  std::printf("%s: %lld images\n", digits.name.c_str(), static_cast<long long>(digits.train_images.size(0)));
  return digits.classes == 10 && digits.train_images.size(0) == digits.train_labels.size(0) ? 0 : 1;
}
