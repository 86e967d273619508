#include "bench/roofline.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace bie::bench {
namespace {

constexpr int chains = 12;  // independent sums, enough for any latency

// Assembly, so that no compiler comes between the instructions and the result.
#define BIE_BURST(body)                                                                                         \
  asm volatile(".p2align 6\n1:\n.irp i,0,1,2,3,4,5,6,7,8,9,10,11\n" body ".endr\ndec %0\njnz 1b\nvzeroupper\n"  \
               : "+r"(rounds)                                                                                   \
               :                                                                                                \
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                 "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

#if defined(__x86_64__)
/// 16 rows, 16 columns and 64 of k a step, on four sums by turns.
int run_tiles(std::int64_t rounds) {
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const config;
  asm volatile(
      "ldtilecfg %1\n.p2align 6\n1:\n.rept 3\n.irp i,0,1,2,3\ntdpbusd %%tmm6,%%tmm5,%%tmm\\i\n.endr\n.endr\n"
      "dec %0\njnz 1b\ntilerelease\n"
      : "+r"(rounds)
      : "m"(config)
      : "cc");
  return 16 * 16 * 64;
}
#endif

/// Runs `rounds` times `chains` steps; products a step.
int run_burst(Unit unit, std::int64_t rounds) {
#if defined(__x86_64__)
  switch (unit) {
    case Unit::none: return 0;
    case Unit::popcount512:
      BIE_BURST("vpxord %%zmm14,%%zmm15,%%zmm12\nvpopcntd %%zmm12,%%zmm12\nvpaddd %%zmm12,%%zmm\\i,%%zmm\\i\n");
      return 512;
    case Unit::dot512: BIE_BURST("vpdpbusd %%zmm14,%%zmm15,%%zmm\\i\n"); return 64;
    case Unit::dot256:
      static const bool vex = kernels::detect_cpu().avxvnni;  // asking takes as long as the burst in a virtual machine
      if (vex) {
        BIE_BURST("%{vex%} vpdpbusd %%ymm14,%%ymm15,%%ymm\\i\n");
      } else {
        BIE_BURST("vpdpbusd %%ymm14,%%ymm15,%%ymm\\i\n");  // EVEX, as assemblers choose
      }
      return 32;
    case Unit::shuffles512:
      BIE_BURST(
          "vpxord %%zmm14,%%zmm15,%%zmm12\nvpsrlw $4,%%zmm12,%%zmm13\nvpandd %%zmm14,%%zmm12,%%zmm12\n"
          "vpandd %%zmm14,%%zmm13,%%zmm13\nvpshufb %%zmm12,%%zmm15,%%zmm12\nvpshufb %%zmm13,%%zmm15,%%zmm13\n"
          "vpaddb %%zmm12,%%zmm13,%%zmm12\nvpaddb %%zmm12,%%zmm\\i,%%zmm\\i\n");
      return 512;
    case Unit::madd512: BIE_BURST("vpmaddwd %%zmm14,%%zmm15,%%zmm12\nvpaddd %%zmm12,%%zmm\\i,%%zmm\\i\n"); return 32;
    case Unit::maddubs512:
      BIE_BURST("vpmaddubsw %%zmm14,%%zmm15,%%zmm12\nvpaddw %%zmm12,%%zmm\\i,%%zmm\\i\n");
      return 64;
    case Unit::popcount256:
      BIE_BURST(
          "vpxor %%ymm14,%%ymm15,%%ymm12\nvpsrlw $4,%%ymm12,%%ymm13\nvpand %%ymm14,%%ymm12,%%ymm12\n"
          "vpand %%ymm14,%%ymm13,%%ymm13\nvpshufb %%ymm12,%%ymm15,%%ymm12\nvpshufb %%ymm13,%%ymm15,%%ymm13\n"
          "vpaddb %%ymm12,%%ymm13,%%ymm12\nvpaddb %%ymm12,%%ymm\\i,%%ymm\\i\n");
      return 256;
    case Unit::madd256: BIE_BURST("vpmaddwd %%ymm14,%%ymm15,%%ymm12\nvpaddd %%ymm12,%%ymm\\i,%%ymm\\i\n"); return 16;
    case Unit::maddubs256:
      BIE_BURST("vpmaddubsw %%ymm14,%%ymm15,%%ymm12\nvpaddw %%ymm12,%%ymm\\i,%%ymm\\i\n");
      return 32;
    case Unit::fma512: BIE_BURST("vfmadd231ps %%zmm14,%%zmm15,%%zmm\\i\n"); return 16;
    case Unit::fma256: BIE_BURST("vfmadd231ps %%ymm14,%%ymm15,%%ymm\\i\n"); return 8;
    case Unit::tiles: return run_tiles(rounds);
  }
#endif
  throw std::runtime_error("no rates of this processor's instructions are known");
}
#undef BIE_BURST

double reading_rate(const char* data, std::int64_t bytes) {
  std::vector<double> rates;
  for (int round = 0; round < 15; ++round) {
    const std::int64_t times = std::max<std::int64_t>(1, (std::int64_t{1} << 24) / bytes);
    read_all(data, bytes);
    const double start = thread_seconds();
    for (std::int64_t i = 0; i < times; ++i) read_all(data, bytes);
    rates.push_back(static_cast<double>(times * bytes) / (thread_seconds() - start));
  }
  // Other work on the machine only slows reading down, so the best rate counts.
  return *std::max_element(rates.begin(), rates.end());
}

}  // namespace

void read_all(const void* from, std::int64_t bytes) {
  const char* data = static_cast<const char*>(from);
  bytes = bytes / 512 * 512;
  if (bytes == 0) return;
#if defined(__x86_64__)
  const char* end = data + bytes;
  asm volatile(
      ".p2align 6\n1:\n.irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nvmovdqa 32*\\i(%0),%%ymm\\i\n.endr\n"
      "add $512,%0\ncmp %1,%0\njb 1b\nvzeroupper\n"
      : "+r"(data)
      : "r"(end)
      : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#else
  const volatile char* at = data;
  for (std::int64_t i = 0; i < bytes; i += 64) static_cast<void>(at[i]);
#endif
}

Unit unit_of(kernels::Isa isa, kernels::Dtype code) {
  const bool bits = code == kernels::Dtype::bits;
  switch (isa) {
    case kernels::Isa::amx: return bits ? Unit::popcount512 : Unit::tiles;
    case kernels::Isa::avx512: return bits ? Unit::popcount512 : Unit::dot512;
    case kernels::Isa::avxvnni: return bits ? Unit::popcount256 : Unit::dot256;
    case kernels::Isa::avx512bw:
      return bits ? Unit::shuffles512 : code == kernels::Dtype::s4 ? Unit::maddubs512 : Unit::madd512;
    case kernels::Isa::avx2:
      return bits ? Unit::popcount256 : code == kernels::Dtype::s4 ? Unit::maddubs256 : Unit::madd256;
    default: return Unit::none;
  }
}

Unit float_unit_of(kernels::Isa isa) {
  return isa == kernels::Isa::avx512bw ? Unit::fma512 : isa == kernels::Isa::avx2 ? Unit::fma256 : Unit::none;
}

double burst(Unit unit) {
  constexpr std::int64_t rounds = 20000;  // reading the clock is a thousandth of it
  const double start = thread_seconds();
  const int products = run_burst(unit, rounds);
  return static_cast<double>(rounds * chains * products) / (thread_seconds() - start);
}

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<Level> reading_speeds() {
  const auto cache = [](int name, long guess) {
    const long size = sysconf(name);
    return size > 0 ? size : guess;
  };
  const std::int64_t l1 = cache(_SC_LEVEL1_DCACHE_SIZE, 32l << 10), l2 = cache(_SC_LEVEL2_CACHE_SIZE, 1l << 20),
                     l3 = cache(_SC_LEVEL3_CACHE_SIZE, 32l << 20), memory = std::max<std::int64_t>(256l << 20, 4 * l3);
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  struct Free {
    void operator()(void* buffer) const { std::free(buffer); }
  };
  const std::unique_ptr<void, Free> buffer(std::aligned_alloc(huge_page, static_cast<std::size_t>(memory)));
  if (buffer == nullptr) throw std::runtime_error("no memory to measure reading with");
  madvise(buffer.get(), static_cast<std::size_t>(memory), MADV_HUGEPAGE);
  char* data = static_cast<char*>(buffer.get());
  std::fill_n(data, memory, char{1});
  return {{"L1", reading_rate(data, l1 / 2)},
          {"L2", reading_rate(data, l2 / 2)},
          {"L3", reading_rate(data, l3 / 3)},
          {"DRAM", reading_rate(data, memory)}};
}

}  // namespace bie::bench
