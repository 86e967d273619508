// The tile of weight-only products with integer activations of the level avxvnni: AVX2's codes, and products by the
// form of vpdpbusd that this CPU has. Apart from the other tiles, so that a program with those alone links none of it.
#include "bie/kernels/isa.h"
#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu::avxvnni {
namespace {

void run(const WeightOnlyQ8Args& args) {
  static const auto chosen = detect_cpu().avxvnni ? vex::weight_only_q8 : evex::weight_only_q8;
  chosen(args);
}

}  // namespace

const WeightOnlyQ8Tile weight_only_q8_tile = {weight_only_q8_rows, 1, avx2::weight_only_q8_codes, run};

}  // namespace bie::kernels::cpu::avxvnni
