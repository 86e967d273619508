// Which instruction set is used: a pure function of CPU facts, capped by BIE_MAX_ISA, read once a process.
#include "bie/kernels/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "bie/kernels/binary_conv2d.h"
#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_conv2d.h"
#include "bie/kernels/int8_gemm.h"
#include "bie/kernels/packing.h"
#include "bie/kernels/quantize.h"

namespace bie::kernels::test {
namespace {

constexpr bool CpuFeatures::*avx2_flags[] = {&CpuFeatures::avx2, &CpuFeatures::fma, &CpuFeatures::f16c};
constexpr bool CpuFeatures::*avx512_flags[] = {&CpuFeatures::avx512f,    &CpuFeatures::avx512bw,
                                               &CpuFeatures::avx512dq,   &CpuFeatures::avx512vl,
                                               &CpuFeatures::avx512vnni, &CpuFeatures::avx512vpopcntdq};

CpuFeatures everything() {
  CpuFeatures f;
  for (const auto flag : avx2_flags) f.*flag = true;
  for (const auto flag : avx512_flags) f.*flag = true;
  f.avxvnni = true;
  return f;
}

/// A set of its own, whatever lies between.
IsaSet set_of(std::initializer_list<Isa> isas) {
  IsaSet set;
  for (const Isa isa : isas) set.add(isa);
  return set;
}

TEST(Isa, ABareCpuGetsTheReference) { EXPECT_EQ(isas_of(CpuFeatures{}), Isa::reference); }

TEST(Isa, AllFlagsGiveAllOfThem) { EXPECT_EQ(isas_of(everything()), Isa::avx512); }

TEST(Isa, ASetHasWhatWasAdded) {
  for (const Isa one : all_isas) {
    const IsaSet set = set_of({one});
    EXPECT_EQ(set.best(), one);
    EXPECT_EQ(IsaSet(one).best(), one);
    for (const Isa other : all_isas) {
      EXPECT_EQ(set.has(other), other == one || other == Isa::reference);
      EXPECT_EQ(IsaSet(one).has(other), other <= one);
    }
  }
}

TEST(Isa, EachOfThemWantsAllItsFlags) {
  for (const auto flag : avx512_flags) {
    CpuFeatures f = everything();
    f.*flag = false;
    const bool vnni = flag == &CpuFeatures::avx512vnni, popcnt = flag == &CpuFeatures::avx512vpopcntdq;
    EXPECT_EQ(isas_of(f), vnni || popcnt ? IsaSet(Isa::avxvnni) : set_of({Isa::avx2, Isa::avxvnni}));
    // Without AVX-VNNI vpdpbusd of 256 bits is AVX512 F VL VNNI.
    f.avxvnni = false;
    const bool evex = f.avx512f && f.avx512vl && f.avx512vnni;
    EXPECT_EQ(isas_of(f).has(Isa::avxvnni), evex);
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
  zen4.avx512vpopcntdq = true;
  EXPECT_EQ(isas_of(zen4), Isa::avx512);
}

TEST(Isa, OneMissingAvx2FlagLeavesTheReferenceWhateverElseThereIs) {
  for (const auto flag : avx2_flags) {
    CpuFeatures f = everything();
    f.*flag = false;
    EXPECT_EQ(isas_of(f), Isa::reference);
  }
}

TEST(Isa, ACapTakesAwayAndAddsNothing) {
  for (const Isa cap : all_isas) {
    for (const IsaSet start : {IsaSet(), IsaSet(Isa::avx512), set_of({Isa::avx2, Isa::avxvnni})}) {
      IsaSet isas = start;
      EXPECT_EQ(cap_isas(name(cap), &isas), Status::ok);
      for (const Isa isa : all_isas) EXPECT_EQ(isas.has(isa), start.has(isa) && isa <= cap) << name(cap) << name(isa);
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
    for (const Isa start : all_isas) {
      IsaSet isas = start;
      EXPECT_EQ(cap_isas(text, &isas), Status::bad_environment) << '"' << text << '"';
      EXPECT_EQ(isas, start);
    }
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
}

/// The rows a capped process would choose lie under its cap.
template <class Row, class Shape>
void expect_choice_under(Isa cap, const Table<Row>& table, const Shape& shape) {
  const Row& row = choose(table, shape, host().isas);
  EXPECT_LE(row.isa, cap) << row.name;
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
  const Isa* cap = std::find_if(std::begin(all_isas), std::end(all_isas),
                                [text](Isa isa) { return name(isa) == std::string(text); });
  ASSERT_NE(cap, std::end(all_isas)) << "BIE_MAX_ISA=" << text << " names no level, so this run proves nothing";
  RecordProperty("isa", name(host().isas.best()));
  EXPECT_EQ(host().status, Status::ok);
  EXPECT_EQ(host().isas, all & *cap);
  expect_choice_under(*cap, b1xb1_gemm_table(), GemmShape{64, 64, 64});
  expect_choice_under(*cap, s8xs8_gemm_table(), GemmShape{64, 64, 64});
  expect_choice_under(*cap, s4xs4_gemm_table(), GemmShape{64, 64, 64});
  expect_choice_under(*cap, b1xb1_conv2d_table(), Conv2dShape{1, 64, 8, 8, 64, 3, 3});
  expect_choice_under(*cap, s8xs8_conv2d_table(), Conv2dShape{1, 64, 8, 8, 64, 3, 3});
  expect_choice_under(*cap, s4xs4_conv2d_table(), Conv2dShape{1, 64, 8, 8, 64, 3, 3});
  expect_choice_under(*cap, sign_pack_table(), RowsShape{64, 64});
  expect_choice_under(*cap, int4_pack_table(), RowsShape{64, 64});
  expect_choice_under(*cap, quantize_table(), RowsShape{64, 64});
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
  for (const Isa cap : all_isas)
    EXPECT_EXIT(report_host(name(cap), all & cap, Status::ok), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(report_host("", all, Status::ok), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(report_host("fastest", all, Status::bad_environment), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace bie::kernels::test
