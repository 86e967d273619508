// Classifiers as nets that run without torch.
#pragma once

#include "bie/formats/net_file.h"
#include "bie/models/classifier.h"

namespace bie::models {

/// The net that gives the logits of `model.forward` in evaluation on the CPU, to the bit. Metadata: "arch", "bits",
/// "image" ("1,28,28"), "classes" (names, one per line; "" where they are numbers), "input" ("unit": values in 0 to 1,
/// "numbers": as they are in tables). The model is not changed.
/// @throws c10::ValueError for a layer that has not been trained or loaded, and for what a net cannot hold.
formats::NetFile exported_net(Classifier& model, bool folds = true);

}  // namespace bie::models
