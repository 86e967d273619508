// The probe. Compiled without ISA flags and never merged with code that has them.
#include "bie/kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace bie::kernels {

const char* name(Isa isa) {
  switch (isa) {
    case Isa::reference: return "reference";
    case Isa::avx2: return "avx2";
    case Isa::avxvnni: return "avxvnni";
    case Isa::avx512: return "avx512";
  }
  return "unknown";
}

Isa best_isa(const CpuFeatures& f) {
  const bool avx2 = f.avx2 && f.fma && f.f16c;
  if (!avx2) return Isa::reference;
  if (f.avx512f && f.avx512bw && f.avx512dq && f.avx512vl && f.avx512vnni && f.avx512vpopcntdq) return Isa::avx512;
  return f.avxvnni || (f.avx512f && f.avx512vl && f.avx512vnni) ? Isa::avxvnni : Isa::avx2;
}

CpuFeatures detect_cpu() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  f.avx2 = __builtin_cpu_supports("avx2") != 0;
  f.fma = __builtin_cpu_supports("fma") != 0;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;  // clang 14 does not know "f16c"; leaf 1, ecx bit 29
  f.f16c = f.avx2 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
  f.avxvnni = f.avx2 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;  // nor "avxvnni"
  f.avx512f = __builtin_cpu_supports("avx512f") != 0;
  f.avx512bw = __builtin_cpu_supports("avx512bw") != 0;
  f.avx512dq = __builtin_cpu_supports("avx512dq") != 0;
  f.avx512vl = __builtin_cpu_supports("avx512vl") != 0;
  f.avx512vnni = __builtin_cpu_supports("avx512vnni") != 0;
  f.avx512vpopcntdq = __builtin_cpu_supports("avx512vpopcntdq") != 0;
#endif
  return f;
}

Status cap_isa(const char* text, Isa* isa) {
  if (text == nullptr || *text == '\0') return Status::ok;
  for (const Isa level : {Isa::reference, Isa::avx2, Isa::avxvnni, Isa::avx512}) {
    if (std::strcmp(text, name(level)) != 0) continue;
    if (level < *isa) *isa = level;
    return Status::ok;
  }
  return Status::bad_environment;
}

const Host& host() {
  static const Host once = [] {
    Host h{best_isa(detect_cpu()), Status::ok};
    h.status = cap_isa(std::getenv("BIE_MAX_ISA"), &h.isa);
    return h;
  }();
  return once;
}

const char* why_not(Isa isa) {
  if (isa <= host().isa) return nullptr;
  static const Isa best = best_isa(detect_cpu());
  return isa <= best ? "left out by BIE_MAX_ISA" : "not on this machine";
}

}  // namespace bie::kernels
