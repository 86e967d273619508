// Products of codes of 4 and 8 bits as floats, which every CPU multiplies in vectors: exact, because the sum of
// max_units products stays below 2^24. Weights are opened to floats once per block of rows.
#pragma once

#include "kernels/cpu/portable/passes.h"
#include "kernels/cpu/portable/tile_loop.h"
#include "kernels/cpu/portable/vectors.h"

namespace bie::kernels::cpu::portable {
namespace {

struct Product {
  using Vector = Floats;
  using Operand = Floats;
  static constexpr int rows = many_registers ? 6 : 4, lanes = 4, vectors = many_registers ? 4 : 2, unit_bytes = 4;
  static constexpr int columns = lanes * vectors, parts = 1;
  static constexpr std::int64_t max_units = 1024;  // of 2^14 at most
  static Vector zero() { return Vector{}; }
  static Vector weights(const char* at, int) { return load<Vector>(at); }
  static Vector broadcast(const char* row, std::int64_t unit, int) {
    float code;
    std::memcpy(&code, row + 4 * unit, 4);
    return Vector{code, code, code, code};
  }
  static Vector add(Vector sum, Vector x, Vector w) { return sum + x * w; }
  static void flush(Vector sum, std::int32_t* acc) {
    for (int i = 0; i < lanes; ++i) acc[i] += static_cast<std::int32_t>(sum[i]);
  }
  static std::int32_t finish(std::int32_t sum, std::int32_t init) { return sum + init; }
  static constexpr auto store = portable::store;
  static constexpr auto signs_of = portable::signs_of;
};

/// A tile whose units are `unit_codes` weights in one byte.
constexpr Tile float_tile(int unit_codes, void (*open)(const void*, std::int64_t, void*)) {
  return {Code::f32, Product::rows, Product::columns, unit_codes, 1,       encode, nullptr,        run_tile<Product>,
          store,     nullptr,       nullptr,          nullptr,    nullptr, open,   4 * unit_codes, false,
          tail};
}

}  // namespace
}  // namespace bie::kernels::cpu::portable
