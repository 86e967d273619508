// Room for many pictures.
#pragma once

#include <ATen/core/Tensor.h>

namespace bie::data {

/// uint8 of these sizes, not filled. Anything larger than a quarter of the machine's memory lies in a file without a
/// name in $TMPDIR (else /var/tmp), which the system keeps in memory as far as there is room, and which goes away with
/// the tensor.
/// @throws c10::ValueError, one sentence, where the folder has no room for it.
at::Tensor room_for_bytes(at::IntArrayRef sizes);

/// room_for_bytes with another limit, in bytes.
at::Tensor room_for_bytes(at::IntArrayRef sizes, std::int64_t most_in_memory);

}  // namespace bie::data
