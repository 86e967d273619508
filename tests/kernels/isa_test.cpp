// Which instruction set is used: a pure function of CPU facts, capped by BIE_MAX_ISA, read once per process.
#include "bie/kernels/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bie/kernels/registry.h"

namespace bie::kernels::test {
namespace {

constexpr bool CpuFeatures::*avx2_flags[] = {&CpuFeatures::avx2, &CpuFeatures::fma, &CpuFeatures::f16c};
constexpr bool CpuFeatures::*avx512_flags[] = {
    &CpuFeatures::avx512f,    &CpuFeatures::avx512bw,        &CpuFeatures::avx512dq, &CpuFeatures::avx512vl,
    &CpuFeatures::avx512vnni, &CpuFeatures::avx512vpopcntdq, &CpuFeatures::gfni};
constexpr bool CpuFeatures::*amx_flags[] = {&CpuFeatures::amx_tile, &CpuFeatures::amx_int8, &CpuFeatures::amx_bf16};

std::vector<Isa> isas_of_architecture(Architecture architecture) {
  std::vector<Isa> isas;
  for (const IsaFacts& f : isa_facts)
    if (belongs_to(f.isa, architecture)) isas.push_back(f.isa);
  return isas;
}

std::vector<Isa> all_isas() { return isas_of_architecture(this_architecture); }

/// Every flag of x86.
CpuFeatures everything() {
  CpuFeatures f;
  for (const auto flag : amx_flags) f.*flag = true;
  for (const auto flag : avx2_flags) f.*flag = true;
  for (const auto flag : avx512_flags) f.*flag = true;
  f.avxvnni = true;
  return f;
}

/// The sets of any CPU and these, without those in between.
IsaSet set_of(std::initializer_list<Isa> isas) {
  IsaSet set = Isa::portable;
  for (const Isa isa : isas) set.add(isa);
  return set;
}

TEST(Isa, FactsStandInTheOrderOfTheSets) {
  for (const IsaFacts& f : isa_facts) {
    EXPECT_EQ(&facts(f.isa), &f);
    EXPECT_STREQ(name(f.isa), f.name);
  }
}

TEST(Isa, ABareCpuGetsWhatAnyCpuHas) { EXPECT_EQ(isas_of(CpuFeatures{}), Isa::portable); }

TEST(Isa, AllFlagsGiveAllOfThem) { EXPECT_EQ(isas_of(everything()), Isa::amx); }

TEST(Isa, NoSetHoldsTwoArchitectures) {
  for (const Architecture one : {Architecture::x86, Architecture::arm})
    for (const Isa last : isas_of_architecture(one))
      for (const IsaFacts& f : isa_facts)
        EXPECT_EQ(IsaSet(last).has(f.isa), f.isa <= last && belongs_to(f.isa, one)) << name(last) << " " << f.name;
  EXPECT_FALSE(IsaSet(Isa::neon).has(Isa::avx512));
  EXPECT_FALSE(IsaSet(Isa::amx).has(Isa::neon));
}

TEST(Isa, ASetHasWhatWasAdded) {
  for (const IsaFacts& one : isa_facts) {
    IsaSet set;
    set.add(one.isa);
    EXPECT_EQ(set.best(), one.isa);
    EXPECT_EQ(IsaSet(one.isa).best(), one.isa);
    for (const IsaFacts& other : isa_facts)
      EXPECT_EQ(set.has(other.isa), other.isa == one.isa || other.isa == Isa::reference);
  }
}

TEST(Isa, EachOfThemWantsAllItsFlags) {
  for (const auto flag : avx512_flags) {
    CpuFeatures f = everything();
    f.*flag = false;
    const bool vnni = flag == &CpuFeatures::avx512vnni, popcnt = flag == &CpuFeatures::avx512vpopcntdq;
    EXPECT_EQ(isas_of(f),
              vnni || popcnt || flag == &CpuFeatures::gfni ? IsaSet(Isa::avxvnni) : set_of({Isa::avx2, Isa::avxvnni}));
    // Without AVX-VNNI vpdpbusd of 256 bits is AVX512 F VL VNNI.
    f.avxvnni = false;
    const bool evex = f.avx512f && f.avx512vl && f.avx512vnni;
    EXPECT_EQ(isas_of(f).has(Isa::avxvnni), evex);
  }
  for (const auto flag : amx_flags) {
    CpuFeatures f = everything();
    f.*flag = false;
    EXPECT_EQ(isas_of(f), Isa::avx512);
  }
}

TEST(Isa, CpusOfTheFieldGetWhatTheyHave) {
  CpuFeatures haswell;
  for (const auto flag : avx2_flags) haswell.*flag = true;
  EXPECT_EQ(isas_of(haswell), Isa::avx2);
  CpuFeatures alder_lake = haswell;
  alder_lake.avxvnni = true;
  EXPECT_EQ(isas_of(alder_lake), set_of({Isa::avx2, Isa::avxvnni}));
  CpuFeatures skylake_x = haswell;
  skylake_x.avx512f = skylake_x.avx512bw = skylake_x.avx512dq = skylake_x.avx512vl = true;
  EXPECT_EQ(isas_of(skylake_x), Isa::avx512bw);
  CpuFeatures cascade_lake = skylake_x;
  cascade_lake.avx512vnni = true;
  EXPECT_EQ(isas_of(cascade_lake), Isa::avxvnni);
  CpuFeatures zen4 = cascade_lake;
  zen4.avx512vpopcntdq = zen4.gfni = true;
  EXPECT_EQ(isas_of(zen4), Isa::avx512);
  CpuFeatures sapphire_rapids = zen4;
  for (const auto flag : amx_flags) sapphire_rapids.*flag = true;
  EXPECT_EQ(isas_of(sapphire_rapids), Isa::amx);
  CpuFeatures cortex_a72;
  cortex_a72.neon = true;
  EXPECT_EQ(isas_of(cortex_a72), Isa::neon);
  CpuFeatures neoverse_n1 = cortex_a72;
  neoverse_n1.dotprod = true;
  EXPECT_EQ(isas_of(neoverse_n1), Isa::dotprod);
  CpuFeatures neoverse_v1 = neoverse_n1;
  neoverse_v1.i8mm = true;
  EXPECT_EQ(isas_of(neoverse_v1), Isa::i8mm);
}

TEST(Isa, OneMissingAvx2FlagLeavesWhatAnyCpuHasWhateverElseThereIs) {
  for (const auto flag : avx2_flags) {
    CpuFeatures f = everything();
    f.*flag = false;
    EXPECT_EQ(isas_of(f), Isa::portable);
  }
}

TEST(Isa, ACapTakesAwayAndAddsNothing) {
  for (const Architecture architecture : {Architecture::x86, Architecture::arm}) {
    const std::vector<Isa> isas = isas_of_architecture(architecture);
    for (const Isa cap : isas)
      for (const IsaSet start : {IsaSet(), IsaSet(isas.back()), IsaSet(isas[3])}) {
        IsaSet capped = start;
        EXPECT_EQ(cap_isas(name(cap), &capped, architecture), Status::ok);
        for (const Isa isa : isas)
          EXPECT_EQ(capped.has(isa), start.has(isa) && isa <= cap) << name(cap) << " " << name(isa);
      }
  }
}

TEST(Isa, NoTextIsNoCap) {
  for (const char* text : {static_cast<const char*>(nullptr), ""}) {
    IsaSet isas = Isa::avx512;
    EXPECT_EQ(cap_isas(text, &isas), Status::ok);
    EXPECT_EQ(isas, Isa::avx512);
  }
}

TEST(Isa, AnyOtherNameIsAnErrorAndChangesNothing) {
  for (const char* text : {"AVX2", "avx", "avx2 ", " avx2", "avx_vnni", "avx512f", "none", "0", "neon", "unknown"})
    for (const Isa start : isas_of_architecture(Architecture::x86)) {
      IsaSet isas = start;
      EXPECT_EQ(cap_isas(text, &isas, Architecture::x86), Status::bad_environment) << '"' << text << '"';
      EXPECT_EQ(isas, start);
    }
  IsaSet arm = Isa::i8mm;
  EXPECT_EQ(cap_isas("avx2", &arm, Architecture::arm), Status::bad_environment);
  EXPECT_EQ(arm, Isa::i8mm);
}

TEST(Isa, TheProbeAgreesWithTheKernelOfTheSystem) {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line) && line.rfind("flags", 0) != 0) continue;
  if (line.rfind("flags", 0) != 0) GTEST_SKIP() << "/proc/cpuinfo names no flags here";
  std::istringstream words(line);
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  const CpuFeatures f = detect_cpu();
  EXPECT_EQ(f.avx2, flags.count("avx2") == 1);
  EXPECT_EQ(f.fma, flags.count("fma") == 1);
  EXPECT_EQ(f.f16c, flags.count("f16c") == 1);
  EXPECT_EQ(f.avxvnni, flags.count("avx_vnni") == 1);
  EXPECT_EQ(f.avx512f, flags.count("avx512f") == 1);
  EXPECT_EQ(f.avx512bw, flags.count("avx512bw") == 1);
  EXPECT_EQ(f.avx512dq, flags.count("avx512dq") == 1);
  EXPECT_EQ(f.avx512vl, flags.count("avx512vl") == 1);
  EXPECT_EQ(f.avx512vnni, flags.count("avx512_vnni") == 1);
  EXPECT_EQ(f.avx512vpopcntdq, flags.count("avx512_vpopcntdq") == 1);
  EXPECT_EQ(f.gfni, flags.count("gfni") == 1);
  EXPECT_EQ(f.amx_tile, flags.count("amx_tile") == 1);
  EXPECT_EQ(f.amx_int8, flags.count("amx_int8") == 1);
  EXPECT_EQ(f.amx_bf16, flags.count("amx_bf16") == 1);
}

// CI runs this binary once per level; here is where a cap that had no effect would show.
TEST(IsaOfThisProcess, TheCapTookEffect) {
  const IsaSet all = isas_of(detect_cpu());
  const char* text = std::getenv("BIE_MAX_ISA");
  if (text == nullptr || *text == '\0') {
    EXPECT_EQ(host().status, Status::ok);
    EXPECT_EQ(host().isas, all);
    RecordProperty("isa", name(host().isas.best()));
    return;
  }
  const std::vector<Isa> isas = all_isas();
  const auto cap = std::find_if(isas.begin(), isas.end(), [text](Isa isa) { return name(isa) == std::string(text); });
  ASSERT_NE(cap, isas.end()) << "BIE_MAX_ISA=" << text << " names no level, so this run proves nothing";
  RecordProperty("isa", name(host().isas.best()));
  EXPECT_EQ(host().status, Status::ok);
  EXPECT_EQ(host().isas, all & *cap);
  for_each_table([&](const std::string& stem, const auto& table) {
    for (const auto& kernel : table) {
      if (host().isas.has(kernel.isa)) {
        EXPECT_LE(kernel.isa, *cap) << stem << ": " << kernel.name;
      }
    }
  });
  if (!all.has(*cap))
    GTEST_SKIP() << "BIE_MAX_ISA=" << text << " asks for what this CPU does not have: everything ran with "
                 << name(host().isas.best());
}

/// Ends the process with 0 where a process started with this BIE_MAX_ISA uses `isas` and says `status`.
[[noreturn]] void report_host(const char* text, IsaSet isas, Status status) {
  setenv("BIE_MAX_ISA", text, 1);
  std::_Exit(host().isas == isas && host().status == status ? 0 : 1);
}

// Each case is a process of its own, because host() reads the variable once.
TEST(IsaDeathTest, TheVariableRulesTheWholeProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const IsaSet all = isas_of(detect_cpu());
  for (const Isa cap : all_isas())
    EXPECT_EXIT(report_host(name(cap), all & cap, Status::ok), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(report_host("", all, Status::ok), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(report_host("fastest", all, Status::bad_environment), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace bie::kernels::test
