// Which instruction sets this CPU has, and which of them the kernels may use.
#pragma once

#include <cstdint>

#include "bie/kernels/status.h"

namespace bie::kernels {

/// Instruction-set levels, weakest first. Each level names exactly the flags its folder is compiled with:
/// avx2 = AVX2 FMA F16C; avxvnni = avx2 + vpdpbusd of 256 bits, which AVX-VNNI has or AVX512 VL VNNI;
/// avx512 = avx2 + AVX512 F BW DQ VL VNNI VPOPCNTDQ.
enum class Isa : std::uint8_t { reference, avx2, avxvnni, avx512 };

const char* name(Isa isa);

/// Raw CPUID facts (operating-system support included), so that a choice can be tested with a pretended CPU.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, avxvnni = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false;
  bool avx512vnni = false, avx512vpopcntdq = false;
};

/// The highest level all of whose flags are present.
Isa best_isa(const CpuFeatures& features);

CpuFeatures detect_cpu();

/// Lowers `isa` to the level named by the text of BIE_MAX_ISA (null or "" means no cap).
/// Status::bad_environment for any other name; `isa` is then left as it was.
Status cap_isa(const char* text, Isa* isa);

/// What the kernels use in this process: best_isa(detect_cpu()) capped by BIE_MAX_ISA, read once.
struct Host {
  Isa isa;
  Status status;
};
const Host& host();

/// Why this process runs no rows of `isa`, in a few words; null where it does.
const char* why_not(Isa isa);

}  // namespace bie::kernels
