// Choice is a pure function of table, shape and level, and every table of ours keeps the rules of a table.
#include "bie/kernels/table.h"

#include <gtest/gtest.h>

#include <set>
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

struct PretendedRow {
  const char* name;
  Isa isa;
  bool (*accepts)(const int&);
};

constexpr PretendedRow pretended_rows[] = {
    {"even_avx512", Isa::avx512, [](const int& size) { return size % 2 == 0; }},
    {"large_avx2", Isa::avx2, [](const int& size) { return size > 100; }},
    {"any_avx2", Isa::avx2, nullptr},
    {"any_reference", Isa::reference, nullptr},
};
constexpr Table<PretendedRow> pretended = {pretended_rows, 4};

TEST(Table, TheFirstRowThatCpuAndShapeAllowIsChosen) {
  const auto chosen = [](int size, IsaSet isas) { return std::string(choose(pretended, size, isas).name); };
  EXPECT_EQ(chosen(8, Isa::avx512), "even_avx512");
  EXPECT_EQ(chosen(7, Isa::avx512), "any_avx2");
  EXPECT_EQ(chosen(101, Isa::avx512), "large_avx2");
  EXPECT_EQ(chosen(102, Isa::avx512), "even_avx512");
  EXPECT_EQ(chosen(102, Isa::avx2), "large_avx2");
  EXPECT_EQ(chosen(8, Isa::avx2), "any_avx2");
  EXPECT_EQ(chosen(102, Isa::reference), "any_reference");
}

TEST(Table, APretendedCpuDecidesTheLevel) {
  CpuFeatures laptop;
  laptop.avx2 = laptop.fma = laptop.f16c = true;
  EXPECT_EQ(choose(pretended, 8, isas_of(laptop)).isa, Isa::avx2);
  EXPECT_EQ(choose(pretended, 8, isas_of(CpuFeatures{})).isa, Isa::reference);
}

TEST(Table, RowsAreFoundByTheirWholeName) {
  EXPECT_EQ(find(pretended, "any_avx2"), &pretended_rows[2]);
  EXPECT_EQ(find(pretended, "any_avx"), nullptr);
  EXPECT_EQ(find(pretended, ""), nullptr);
}

/// Names follow <stem>_<isa>[_<variant>], are unique and found again; no row stands before a better one; the last row
/// is the reference and takes everything; each level gets a row of its own level or below.
template <class Row, class Shape>
void expect_orderly(const Table<Row>& table, const std::string& stem, const Shape& shape) {
  SCOPED_TRACE(stem);
  ASSERT_GT(table.count, 0);
  std::set<std::string> names;
  Isa level = Isa::avx512;
  for (const Row& row : table) {
    const std::string prefix = stem + "_" + name(row.isa);
    EXPECT_TRUE(row.name == prefix || std::string(row.name).rfind(prefix + "_", 0) == 0) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(find(table, row.name), &row) << row.name;
    EXPECT_LE(row.isa, level) << row.name << " stands behind a lower level";
    level = row.isa;
  }
  EXPECT_EQ(table.back().isa, Isa::reference);
  EXPECT_EQ(table.back().accepts, nullptr);
  for (const Isa isa : {Isa::reference, Isa::avx2, Isa::avx512}) {  // the others have no rows in some tables
    EXPECT_LE(choose(table, shape, isa).isa, isa);
#if defined(__x86_64__)
    EXPECT_EQ(choose(table, shape, isa).isa, isa) << "no row of level " << name(isa);
#endif
  }
}

TEST(Table, EveryTableOfOursIsOrderly) {
  const GemmShape gemm = {64, 64, 64};
  const Conv2dShape conv2d = {1, 64, 8, 8, 64, 3, 3};
  const RowsShape rows = {64, 64};
  expect_orderly(b1xb1_gemm_table(), "b1xb1_gemm", gemm);
  expect_orderly(s8xs8_gemm_table(), "s8xs8_gemm", gemm);
  expect_orderly(s4xs4_gemm_table(), "s4xs4_gemm", gemm);
  expect_orderly(b1xb1_conv2d_table(), "b1xb1_conv2d", conv2d);
  expect_orderly(s8xs8_conv2d_table(), "s8xs8_conv2d", conv2d);
  expect_orderly(s4xs4_conv2d_table(), "s4xs4_conv2d", conv2d);
  expect_orderly(sign_pack_table(), "sign_pack", rows);
  expect_orderly(int4_pack_table(), "int4_pack", rows);
  expect_orderly(quantize_table(), "quantize", rows);
}

}  // namespace
}  // namespace bie::kernels::test
