// b1xb1 tile: one 32-bit word of signs a lane and unit; bits are counted in the bytes of a word, by adding neighbours.
#include "kernels/cpu/portable/passes.h"
#include "kernels/cpu/portable/tile_loop.h"
#include "kernels/cpu/portable/vectors.h"

namespace bie::kernels::cpu::portable {
namespace {

struct Product {
  using Vector = Words;
  using Operand = Words;
  static constexpr int rows = many_registers ? 4 : 2, lanes = 4, vectors = many_registers ? 4 : 2, unit_bytes = 4;
  static constexpr int parts = 1;
  static constexpr std::int64_t max_units = 31;  // a byte counts at most 8 per unit and holds 255
  static Vector zero() { return Vector{}; }
  static Vector weights(const char* at, int) { return load<Vector>(at); }
  static Vector broadcast(const char* row, std::int64_t unit, int) {
    std::uint32_t word;
    std::memcpy(&word, row + 4 * unit, 4);
    return Vector{word, word, word, word};
  }
  static Vector add(Vector sum, Vector x, Vector w) {
    Vector bits = x ^ w;
    bits = bits - ((bits >> 1) & 0x55555555u);
    bits = (bits & 0x33333333u) + ((bits >> 2) & 0x33333333u);
    return sum + ((bits + (bits >> 4)) & 0x0f0f0f0fu);
  }
  static void flush(Vector bytes, std::int32_t* acc) {
    const Vector pairs = (bytes & 0x00ff00ffu) + ((bytes >> 8) & 0x00ff00ffu);
    const Vector words = load<Vector>(acc) + (pairs & 0xffffu) + (pairs >> 16);
    std::memcpy(acc, &words, sizeof words);
  }
  static std::int32_t finish(std::int32_t sum, std::int32_t k) { return k - 2 * sum; }
  static constexpr auto store = portable::store;
  static constexpr auto signs_of = portable::signs_of;
};

}  // namespace

const Tile b1xb1_tile = {Code::bits,
                         Product::rows,
                         Product::vectors* Product::lanes,
                         32,
                         4,
                         encode,
                         sign_planes,
                         run_tile<Product>,
                         store,
                         nullptr,
                         nullptr,
                         nullptr,
                         nullptr,
                         nullptr,
                         0,
                         false,
                         tail};

}  // namespace bie::kernels::cpu::portable
