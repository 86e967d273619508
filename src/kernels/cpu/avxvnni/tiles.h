// The tiles of this folder, which is compiled twice: with the VEX form of vpdpbusd (AVX-VNNI) and with the EVEX form
// (AVX512 VNNI and VL). cpu/avxvnni.cpp takes the one that this CPU has.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/avx2/tile_loop.h"
#include "kernels/cpu/tile.h"

#if defined(__AVXVNNI__)
#define BIE_ENCODING vex
#define BIE_DOT _mm256_dpbusd_avx_epi32
#else
#define BIE_ENCODING evex
#define BIE_DOT _mm256_dpbusd_epi32
#endif

namespace bie::kernels::cpu::avxvnni {
namespace {

/// Traits shared by the tiles whatever their weights: eight lanes, units of four bytes.
struct DotProduct : avx2::Vectors256 {
  static constexpr int lanes = 8, unit_bytes = 4;
  static constexpr bool late = true;
  static constexpr std::int64_t max_units = INT64_MAX;  // int32 sums need no flush
  static __m256i add(__m256i sum, __m256i x, __m256i w) { return BIE_DOT(sum, x, w); }
  static void flush(__m256i sum, std::int32_t* acc) {
    __m256i* at = reinterpret_cast<__m256i*>(acc);
    _mm256_store_si256(at, _mm256_add_epi32(_mm256_load_si256(at), sum));
  }
};

}  // namespace
}  // namespace bie::kernels::cpu::avxvnni
