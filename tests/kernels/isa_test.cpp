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

constexpr Isa levels[] = {Isa::reference, Isa::avx2, Isa::avxvnni, Isa::avx512};

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

TEST(Isa, ABareCpuGetsTheReference) { EXPECT_EQ(best_isa(CpuFeatures{}), Isa::reference); }

TEST(Isa, AllFlagsGiveTheHighestLevel) { EXPECT_EQ(best_isa(everything()), Isa::avx512); }

/// Those that the EVEX form of vpdpbusd on 256 bits wants.
bool is_of_evex_vnni(bool CpuFeatures::*flag) {
  return flag == &CpuFeatures::avx512f || flag == &CpuFeatures::avx512vl || flag == &CpuFeatures::avx512vnni;
}

TEST(Isa, OneMissingAvx512FlagLowersToTheNextLevel) {
  for (const auto flag : avx512_flags) {
    CpuFeatures f = everything();
    f.*flag = false;
    EXPECT_EQ(best_isa(f), Isa::avxvnni);
    f.avxvnni = false;
    EXPECT_EQ(best_isa(f), is_of_evex_vnni(flag) ? Isa::avx2 : Isa::avxvnni);
  }
}

TEST(Isa, AvxVnniNeedsNoAvx512) {
  CpuFeatures f;
  f.avxvnni = true;
  EXPECT_EQ(best_isa(f), Isa::reference);
  for (const auto flag : avx2_flags) f.*flag = true;
  EXPECT_EQ(best_isa(f), Isa::avxvnni);
}

TEST(Isa, OneMissingAvx2FlagLowersToTheReferenceWhateverElseThereIs) {
  for (const auto flag : avx2_flags) {
    CpuFeatures f = everything();
    f.*flag = false;
    EXPECT_EQ(best_isa(f), Isa::reference);
  }
}

TEST(Isa, OneFlagAloneIsNoLevel) {
  for (const auto flag : avx2_flags) {
    CpuFeatures f;
    f.*flag = true;
    EXPECT_EQ(best_isa(f), Isa::reference);
  }
  for (const auto flag : avx512_flags) {
    CpuFeatures f;
    f.*flag = true;
    EXPECT_EQ(best_isa(f), Isa::reference);
  }
}

TEST(Isa, ACapLowersAndNeverRaises) {
  for (const Isa cap : levels)
    for (const Isa start : levels) {
      Isa isa = start;
      EXPECT_EQ(cap_isa(name(cap), &isa), Status::ok);
      EXPECT_EQ(isa, std::min(cap, start)) << name(cap) << " on " << name(start);
    }
}

TEST(Isa, NoTextIsNoCap) {
  for (const char* text : {static_cast<const char*>(nullptr), ""}) {
    Isa isa = Isa::avx512;
    EXPECT_EQ(cap_isa(text, &isa), Status::ok);
    EXPECT_EQ(isa, Isa::avx512);
  }
}

TEST(Isa, AnyOtherNameIsAnErrorAndChangesNothing) {
  for (const char* text : {"AVX2", "avx", "avx2 ", " avx2", "avx_vnni", "avx512f", "none", "0", "neon", "unknown"})
    for (const Isa start : levels) {
      Isa isa = start;
      EXPECT_EQ(cap_isa(text, &isa), Status::bad_environment) << '"' << text << '"';
      EXPECT_EQ(isa, start);
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
  const Row& row = choose(table, shape, host().isa);
  EXPECT_LE(row.isa, cap) << row.name;
}

// CI runs this binary once per level; here is where a cap that had no effect would show.
TEST(IsaOfThisProcess, TheCapTookEffect) {
  const Isa best = best_isa(detect_cpu());
  const char* text = std::getenv("BIE_MAX_ISA");
  if (text == nullptr || *text == '\0') {
    EXPECT_EQ(host().status, Status::ok);
    EXPECT_EQ(host().isa, best);
    RecordProperty("isa", name(host().isa));
    return;
  }
  const Isa* cap =
      std::find_if(std::begin(levels), std::end(levels), [text](Isa isa) { return name(isa) == std::string(text); });
  ASSERT_NE(cap, std::end(levels)) << "BIE_MAX_ISA=" << text << " names no level, so this run proves nothing";
  RecordProperty("isa", name(host().isa));
  EXPECT_EQ(host().status, Status::ok);
  EXPECT_EQ(host().isa, std::min(best, *cap));
  expect_choice_under(*cap, b1xb1_gemm_table(), GemmShape{64, 64, 64});
  expect_choice_under(*cap, s8xs8_gemm_table(), GemmShape{64, 64, 64});
  expect_choice_under(*cap, s4xs4_gemm_table(), GemmShape{64, 64, 64});
  expect_choice_under(*cap, b1xb1_conv2d_table(), Conv2dShape{1, 64, 8, 8, 64, 3, 3});
  expect_choice_under(*cap, s8xs8_conv2d_table(), Conv2dShape{1, 64, 8, 8, 64, 3, 3});
  expect_choice_under(*cap, s4xs4_conv2d_table(), Conv2dShape{1, 64, 8, 8, 64, 3, 3});
  expect_choice_under(*cap, sign_pack_table(), RowsShape{64, 64});
  expect_choice_under(*cap, int4_pack_table(), RowsShape{64, 64});
  expect_choice_under(*cap, quantize_table(), RowsShape{64, 64});
  if (*cap > best)
    GTEST_SKIP() << "BIE_MAX_ISA=" << text << " asks for more than this CPU has: everything ran with " << name(best);
}

/// Ends the process with 0 where a process started with this BIE_MAX_ISA uses `isa` and says `status`.
[[noreturn]] void report_host(const char* text, Isa isa, Status status) {
  setenv("BIE_MAX_ISA", text, 1);
  std::_Exit(host().isa == isa && host().status == status ? 0 : 1);
}

// Each case is a process of its own, because host() reads the variable once.
TEST(IsaDeathTest, TheVariableRulesTheWholeProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Isa best = best_isa(detect_cpu());
  for (const Isa cap : levels)
    EXPECT_EXIT(report_host(name(cap), std::min(best, cap), Status::ok), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(report_host("", best, Status::ok), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(report_host("fastest", best, Status::bad_environment), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace bie::kernels::test
