// Which instruction sets this CPU has, and which of them the kernels may use.
#pragma once

#include <cstdint>

#include "bie/kernels/status.h"

namespace bie::kernels {

enum class Architecture : std::uint8_t { any, x86, arm };

/// Instruction sets, those of one architecture weakest first; a CPU may lack one and have the next.
enum class Isa : std::uint8_t { reference, portable, avx2, avx512bw, avxvnni, avx512, amx, neon, dotprod, i8mm };

/// Facts about one instruction set. An Isa names exactly the flags that its folder is compiled with.
struct IsaFacts {
  Isa isa;
  Architecture architecture;
  const char* name;   ///< in names of kernels and in BIE_MAX_ISA
  const char* needs;  ///< what a CPU must have
};

/// Ordered by Isa.
inline constexpr IsaFacts isa_facts[] = {
    {Isa::reference, Architecture::any, "reference", "any CPU; a loop that defines the result, slow"},
    {Isa::portable, Architecture::any, "portable", "any CPU; loops that a compiler makes vectors of"},
    {Isa::avx2, Architecture::x86, "avx2", "AVX2, FMA, F16C"},
    {Isa::avx512bw, Architecture::x86, "avx512bw", "avx2 and AVX512 F, BW, DQ, VL"},
    {Isa::avxvnni, Architecture::x86, "avxvnni", "avx2 and AVX-VNNI or AVX512 VL, VNNI"},
    {Isa::avx512, Architecture::x86, "avx512", "avx512bw and AVX512 VNNI, VPOPCNTDQ, GFNI"},
    {Isa::amx, Architecture::x86, "amx", "avx512 and AMX TILE, INT8, BF16"},
    {Isa::neon, Architecture::arm, "neon", "Advanced SIMD"},
    {Isa::dotprod, Architecture::arm, "dotprod", "neon and SDOT, UDOT"},
    {Isa::i8mm, Architecture::arm, "i8mm", "dotprod and SMMLA, USDOT"},
};

constexpr const IsaFacts& facts(Isa isa) { return isa_facts[static_cast<int>(isa)]; }
constexpr const char* name(Isa isa) { return facts(isa).name; }

#if defined(__x86_64__)
inline constexpr Architecture this_architecture = Architecture::x86;
#elif defined(__aarch64__)
inline constexpr Architecture this_architecture = Architecture::arm;
#else
inline constexpr Architecture this_architecture = Architecture::any;
#endif

/// Whether a build for `architecture` can have kernels of `isa`.
constexpr bool belongs_to(Isa isa, Architecture architecture) {
  return facts(isa).architecture == Architecture::any || facts(isa).architecture == architecture;
}

/// A set of instruction sets that may be used; the reference is always a member. All others are of one architecture.
class IsaSet {
 public:
  constexpr IsaSet() = default;
  /// The sets that any CPU has, and those of the architecture of `last` up to `last`.
  constexpr IsaSet(Isa last) {  // NOLINT(google-explicit-constructor)
    for (const IsaFacts& f : isa_facts)
      if (f.isa <= last && belongs_to(f.isa, facts(last).architecture)) bits_ |= bit(f.isa);
  }
  constexpr bool has(Isa isa) const { return (bits_ & bit(isa)) != 0; }
  constexpr void add(Isa isa) { bits_ |= bit(isa); }
  /// Intersection.
  constexpr IsaSet operator&(IsaSet other) const { return IsaSet(bits_ & other.bits_); }
  constexpr bool operator==(IsaSet other) const { return bits_ == other.bits_; }
  constexpr bool operator!=(IsaSet other) const { return bits_ != other.bits_; }
  constexpr Isa best() const {
    Isa best = Isa::reference;
    for (const IsaFacts& f : isa_facts)
      if (has(f.isa)) best = f.isa;
    return best;
  }

 private:
  static constexpr unsigned bit(Isa isa) { return 1u << static_cast<unsigned>(isa); }
  explicit constexpr IsaSet(unsigned bits) : bits_(bits) {}
  unsigned bits_ = 1;
};

/// CPU features, operating-system support included. A plain struct, so that tests can pretend any CPU.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, avxvnni = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false;
  bool avx512vnni = false, avx512vpopcntdq = false, gfni = false;
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;
  bool neon = false, dotprod = false, i8mm = false;
};

/// The instruction sets all of whose flags are present.
IsaSet isas_of(const CpuFeatures& features);

CpuFeatures detect_cpu();

/// The processor as the system calls it; "" where it does not say.
const char* cpu_name();

/// Keeps in `isas` the sets up to the one that BIE_MAX_ISA's text names (null or "" means no cap).
/// Status::bad_environment for any other name, one of another architecture included; `isas` is then left as it was.
Status cap_isas(const char* text, IsaSet* isas, Architecture architecture = this_architecture);

/// Instruction sets that kernels of this process may use: isas_of(detect_cpu()) capped by BIE_MAX_ISA, read once.
struct Host {
  IsaSet isas;
  Status status;
};
const Host& host();

/// Why this process runs no kernels of `isa`, in a few words; null where it does.
const char* why_not(Isa isa);

}  // namespace bie::kernels
