// The tiles of the level avxvnni: AVX2's, with products by the form of vpdpbusd that this CPU has.
#include "bie/kernels/isa.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/weight_panels.h"

namespace bie::kernels::cpu::avxvnni {
namespace {

template <auto vex, auto evex, class Args>
void run(const Args& args) {
  static const auto chosen = detect_cpu().avxvnni ? vex : evex;
  chosen(args);
}

constexpr int columns = 16;

}  // namespace

const Tile s8xs8_tile = {Code::u8_s8, s8xs8_rows, columns, 4, 4, avx2::encode, nullptr, run<vex::s8xs8, evex::s8xs8>,
                         avx2::store};
const Tile s4xs4_tile = {Code::u8_s4, s4xs4_rows, columns, 8, 4, avx2::encode, nullptr, run<vex::s4xs4, evex::s4xs4>,
                         avx2::store};

const WeightOnlyQ8Tile weight_only_q8_tile = {weight_only_q8_rows, 1, avx2::weight_only_q8_codes,
                                              run<vex::weight_only_q8, evex::weight_only_q8>};

}  // namespace bie::kernels::cpu::avxvnni
