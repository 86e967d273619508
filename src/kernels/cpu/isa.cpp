// The probe. Compiled without ISA flags and never merged with code that has them.
#include "bie/kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace bie::kernels {

namespace {

void add_arm(const CpuFeatures& f, IsaSet* isas) {
  if (!f.neon) return;
  isas->add(Isa::neon);
  if (!f.dotprod) return;
  isas->add(Isa::dotprod);
  if (f.i8mm) isas->add(Isa::i8mm);
}

#if defined(__x86_64__)
/// Whether the system saves the tiles of AMX. A program must request permission before it uses them.
bool system_knows_tiles() {
#if defined(__linux__)
  constexpr long get_supported = 0x1021;  // ARCH_GET_XCOMP_SUPP
  constexpr std::uint64_t tiles = 3u << 17;
  std::uint64_t components = 0;
  return syscall(SYS_arch_prctl, get_supported, &components) == 0 && (components & tiles) == tiles;
#else
  return false;
#endif
}
#endif

/// Requests permission to use the tiles of AMX, once per process. The system may refuse.
bool tiles_are_granted() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  return granted;
#else
  return false;
#endif
}

}  // namespace

IsaSet isas_of(const CpuFeatures& f) {
  IsaSet isas = Isa::portable;
  add_arm(f, &isas);
  if (!f.avx2 || !f.fma || !f.f16c) return isas;
  isas.add(Isa::avx2);
  if (f.avxvnni || (f.avx512f && f.avx512vl && f.avx512vnni)) isas.add(Isa::avxvnni);
  if (!f.avx512f || !f.avx512bw || !f.avx512dq || !f.avx512vl) return isas;
  isas.add(Isa::avx512bw);
  if (!f.avx512vnni || !f.avx512vpopcntdq || !f.gfni) return isas;
  isas.add(Isa::avx512);
  if (f.amx_tile && f.amx_int8 && f.amx_bf16) isas.add(Isa::amx);
  return isas;
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
  const bool leaf7 = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0;
  f.gfni = leaf7 && (ecx >> 8 & 1) != 0;  // the vectors that it comes with are asked for above
  if (leaf7 && system_knows_tiles()) {
    f.amx_bf16 = (edx >> 22 & 1) != 0;
    f.amx_tile = (edx >> 24 & 1) != 0;
    f.amx_int8 = (edx >> 25 & 1) != 0;
  }
#elif defined(__aarch64__)
  f.neon = true;
#if defined(__linux__)
  f.dotprod = (getauxval(AT_HWCAP) >> 20 & 1) != 0;  // HWCAP_ASIMDDP
  f.i8mm = (getauxval(AT_HWCAP2) >> 13 & 1) != 0;    // HWCAP2_I8MM
#endif
#endif
  return f;
}

const char* cpu_name() {
  static const std::string once = [] {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
      if (line.rfind("model name", 0) == 0)
        if (const std::size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
    return std::string();
  }();
  return once.c_str();
}

Status cap_isas(const char* text, IsaSet* isas, Architecture architecture) {
  if (text == nullptr || *text == '\0') return Status::ok;
  for (const IsaFacts& last : isa_facts) {
    if (std::strcmp(text, last.name) != 0 || !belongs_to(last.isa, architecture)) continue;
    *isas = *isas & last.isa;
    return Status::ok;
  }
  return Status::bad_environment;
}

const Host& host() {
  static const Host once = [] {
    Host h{isas_of(detect_cpu()), Status::ok};
#if defined(BIE_LAST_ISA)
    h.isas = h.isas & Isa::BIE_LAST_ISA;
#endif
    h.status = cap_isas(std::getenv("BIE_MAX_ISA"), &h.isas);
    if (h.isas.has(Isa::amx) && !tiles_are_granted()) h.isas = h.isas & Isa::avx512;
    return h;
  }();
  return once;
}

const char* why_not(Isa isa) {
  if (host().isas.has(isa)) return nullptr;
  if (!belongs_to(isa, this_architecture)) return "of another architecture";
  static const IsaSet all = isas_of(detect_cpu());
  if (!all.has(isa)) return "not on this machine";
  return isa == Isa::amx && !tiles_are_granted() ? "refused by the system" : "left out by BIE_MAX_ISA";
}

}  // namespace bie::kernels
