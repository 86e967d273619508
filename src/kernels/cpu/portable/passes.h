// Passes before and after the tiles of this folder: plain loops that compilers vectorise.
#pragma once

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::portable {

bool encode(const EncodeArgs& args);
bool sign_planes(const SignPlanesArgs& args);
void store(const StoreArgs& args);
bool tail(const TailArgs& args);
void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed);

/// Bit c: float(acc[c]) * scale + bias[c] >= 0. bias may be null.
std::uint64_t signs_of(const std::int32_t* acc, int count, float scale, const float* bias);

}  // namespace bie::kernels::cpu::portable
