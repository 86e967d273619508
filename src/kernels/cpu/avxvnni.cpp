// The tiles of the level avxvnni: AVX2's, with products by the form of vpdpbusd that this CPU has.
#include "bie/kernels/isa.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avxvnni {
namespace {

template <void (*vex)(const TileArgs&), void (*evex)(const TileArgs&)>
void run(const TileArgs& args) {
  static const auto chosen = detect_cpu().avxvnni ? vex : evex;
  chosen(args);
}

constexpr int columns = 16;

}  // namespace

const Tile s8xs8_tile = {Code::u8_s8, s8xs8_rows, columns, 4, 4, avx2::encode, nullptr, run<vex::s8xs8, evex::s8xs8>,
                         avx2::store};
const Tile s4xs4_tile = {Code::u8_s4, s4xs4_rows, columns, 8, 4, avx2::encode, nullptr, run<vex::s4xs4, evex::s4xs4>,
                         avx2::store};

}  // namespace bie::kernels::cpu::avxvnni
