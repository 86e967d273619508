// Training checkpoints: everything a run needs to go on to the bit, in a folder of safetensors files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bie/layers/quant_layer.h"
#include "bie/train/history.h"

namespace bie::train {

/// Progress within an epoch, at a checkpoint inside it.
struct EpochPart {
  std::int64_t steps = 0;
  double loss_sum = 0;   ///< over those steps
  double score_sum = 0;  ///< over their samples
  double seconds = 0;
};

struct Checkpoint {
  std::int64_t step = 0;  ///< steps done
  std::string run;        ///< JSON of what has to be the same to go on
  layers::StateDict tensors;
  std::vector<Epoch> history = {};
  EpochPart part = {};
  double seconds = 0;  ///< of all processes of the run so far
};

/// Writes DIR/step-<step>.safetensors whole or not at all (written beside, flushed, renamed), then removes all but the
/// `keep` newest checkpoints up to this step. Removes those of later steps as well: a run that went on from before them
/// has passed them over as damaged. Creates the folder.
void save_checkpoint(const std::string& dir, const Checkpoint& checkpoint, int keep = 2);

/// The newest checkpoint that is whole: its structure and the CRC-32 of its contents are checked. `note` is told of
/// each one passed over, and why. None where the folder has no checkpoint at all. A ValueError, naming the newest file
/// and its fault, where there are some and all are damaged.
std::optional<Checkpoint> newest_checkpoint(const std::string& dir,
                                            const std::function<void(const std::string&)>& note);

/// Whether the folder holds a checkpoint, good or not.
bool has_checkpoints(const std::string& dir);

}  // namespace bie::train
