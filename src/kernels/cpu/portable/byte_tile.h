// A tile of signed bytes for the folders of ARM. Included by their sources alone.
#pragma once

#include "kernels/cpu/portable/passes.h"
#include "kernels/cpu/portable/tile_loop.h"

namespace bie::kernels::cpu {
namespace {

constexpr Tile byte_tile(int rows, int columns, int unit_codes, int unit_bytes, void (*run)(const TileArgs&)) {
  return {Code::s8, rows,        columns,           unit_codes,         unit_bytes, neon::encode, nullptr,
          run,      neon::store, neon::code_planes, neon::store_planes, nullptr,    nullptr,      nullptr,
          0,        false,       portable::tail};
}

}  // namespace
}  // namespace bie::kernels::cpu
