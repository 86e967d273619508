// In place of the tiles that a build up to AVX2 leaves out (BIE_LAST_ISA). Their lines stay in the tables and are never
// chosen: the host has no stronger set than the build.
#include "kernels/cpu/attention/attention_q8.h"
#include "kernels/cpu/gemm/double_gemm.h"
#include "kernels/cpu/gemm/float_tile.h"
#include "kernels/cpu/gemm/mixed_gemm.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu {

namespace avxvnni {
const Tile s8xs8_tile{}, s4xs4_tile{};
const WeightOnlyQ8Tile weight_only_q8_tile{};
}  // namespace avxvnni

namespace avx512bw {
const Tile b1xb1_tile{}, s8xs8_tile{}, s4xs4_tile{};
const MixedTile mixed_tile{}, mixed_tile_of_bf16{};
const WeightOnlyTile weight_only_tile{};
const FloatConvPasses float_conv_passes{};
const DoubleGemmTile double_gemm_tile{};
const FloatTile<float> f32_tile{};
const FloatTile<std::uint16_t> f16_tile{}, bf16_tile{};
const SigmoidPasses sigmoid_passes{};
}  // namespace avx512bw

namespace avx512 {
const Tile b1xb1_tile{}, s8xs8_tile{}, s4xs4_tile{};
const PixelTile b1xb1_pixel_tile{}, s8xs8_pixel_tile{}, s4xs4_pixel_tile{};
const GroupedTile b1xb1_grouped_tile{}, s8xs8_grouped_tile{}, s4xs4_grouped_tile{};
const SignPixels sign_pixels{};
const WeightOnlyQ8Tile weight_only_q8_tile{};
const AttentionQ8Tile attention_q8_tile{};
bool encode(const EncodeArgs&) { return false; }
bool tail(const TailArgs&) { return false; }
void pack_int4(const std::int8_t*, std::int64_t, std::uint8_t*) {}
}  // namespace avx512

namespace amx {
const Tile s8xs8_tile{}, s4xs4_tile{};
const MixedTile mixed_tile{}, mixed_tile_of_bf16{};
const WeightOnlyQ8Tile weight_only_q8_tile{};
}  // namespace amx

}  // namespace bie::kernels::cpu
