// Which instruction sets this CPU has, and which of them the kernels may use.
#pragma once

#include <cstdint>

#include "bie/kernels/status.h"

namespace bie::kernels {

/// Instruction sets, weakest first; a CPU may lack one and have the next. Each names exactly the flags its folder is
/// compiled with: avx2 = AVX2 FMA F16C; avx512bw = avx2 + AVX512 F BW DQ VL; avxvnni = avx2 + vpdpbusd of 256 bits,
/// which AVX-VNNI has or AVX512 VL VNNI; avx512 = avx512bw + AVX512 VNNI VPOPCNTDQ.
enum class Isa : std::uint8_t { reference, avx2, avx512bw, avxvnni, avx512 };

inline constexpr Isa all_isas[] = {Isa::reference, Isa::avx2, Isa::avx512bw, Isa::avxvnni, Isa::avx512};

/// Which instruction sets may be used; the reference always may.
class IsaSet {
 public:
  constexpr IsaSet() = default;
  /// Everything up to `last`.
  constexpr IsaSet(Isa last) : bits_(2u * bit(last) - 1) {}  // NOLINT(google-explicit-constructor)
  constexpr bool has(Isa isa) const { return (bits_ & bit(isa)) != 0; }
  constexpr void add(Isa isa) { bits_ |= bit(isa); }
  /// What both have.
  constexpr IsaSet operator&(IsaSet other) const { return IsaSet(bits_ & other.bits_); }
  constexpr bool operator==(IsaSet other) const { return bits_ == other.bits_; }
  constexpr bool operator!=(IsaSet other) const { return bits_ != other.bits_; }
  constexpr Isa best() const {
    Isa best = Isa::reference;
    for (const Isa isa : all_isas)
      if (has(isa)) best = isa;
    return best;
  }

 private:
  static constexpr unsigned bit(Isa isa) { return 1u << static_cast<unsigned>(isa); }
  explicit constexpr IsaSet(unsigned bits) : bits_(bits) {}
  unsigned bits_ = 1;
};

const char* name(Isa isa);

/// Raw CPUID facts (operating-system support included), so that a choice can be tested with a pretended CPU.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, avxvnni = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false;
  bool avx512vnni = false, avx512vpopcntdq = false;
};

/// Those all of whose flags are present.
IsaSet isas_of(const CpuFeatures& features);

CpuFeatures detect_cpu();

/// The processor as the system calls it; "" where it does not say.
const char* cpu_name();

/// Leaves of `isas` those up to the one named by the text of BIE_MAX_ISA (null or "" means no cap).
/// Status::bad_environment for any other name; `isas` is then left as it was.
Status cap_isas(const char* text, IsaSet* isas);

/// What the kernels use in this process: isas_of(detect_cpu()) capped by BIE_MAX_ISA, read once.
struct Host {
  IsaSet isas;
  Status status;
};
const Host& host();

/// Why this process runs no rows of `isa`, in a few words; null where it does.
const char* why_not(Isa isa);

}  // namespace bie::kernels
