// Choice is a pure function of table, shape and level, and every table of ours keeps the rules of a table.
#include "bie/kernels/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "bie/kernels/registry.h"

namespace bie::kernels::test {
namespace {

struct PretendedKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const int&);
};

constexpr PretendedKernel pretended_kernels[] = {
    {"even_avx512", Isa::avx512, [](const int& size) { return size % 2 == 0; }},
    {"large_avx2", Isa::avx2, [](const int& size) { return size > 100; }},
    {"any_avx2", Isa::avx2, nullptr},
    {"any_reference", Isa::reference, nullptr},
};
constexpr Table<PretendedKernel> pretended = {pretended_kernels, 4};

TEST(Table, TheFirstKernelThatCpuAndShapeAllowIsChosen) {
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

TEST(Table, KernelsAreFoundByTheirWholeName) {
  EXPECT_EQ(find(pretended, "any_avx2"), &pretended_kernels[2]);
  EXPECT_EQ(find(pretended, "any_avx"), nullptr);
  EXPECT_EQ(find(pretended, ""), nullptr);
}

/// Names follow <stem>_<isa>[_<variant>], are unique and found again; no kernel stands before a better one; the last
/// kernel is the reference and takes everything; each level gets a kernel of its own level or below.
template <class Kernel, class Shape>
void expect_orderly(const Table<Kernel>& table, const std::string& stem, const Shape& shape) {
  SCOPED_TRACE(stem);
  ASSERT_GT(table.count, 0);
  std::set<std::string> names;
  Isa level = Isa::i8mm;
  for (const Kernel& kernel : table) {
    const std::string prefix = stem + "_" + name(kernel.isa);
    EXPECT_TRUE(kernel.name == prefix || std::string(kernel.name).rfind(prefix + "_", 0) == 0) << kernel.name;
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_EQ(find(table, kernel.name), &kernel) << kernel.name;
    EXPECT_LE(kernel.isa, level) << kernel.name << " stands behind a lower level";
    level = kernel.isa;
  }
  EXPECT_EQ(table.back().isa, Isa::reference);
  EXPECT_EQ(table.back().accepts, nullptr);
  for (const IsaFacts& f : isa_facts) {
    if (!belongs_to(f.isa, this_architecture)) continue;
    Isa best = Isa::reference;  // of the kernels that a CPU with these sets can run
    for (const Kernel& kernel : table)
      if (IsaSet(f.isa).has(kernel.isa)) best = std::max(best, kernel.isa);
    EXPECT_EQ(choose(table, shape, f.isa).isa, best) << f.name;
  }
#if defined(__x86_64__)
  // Without a kernel of its own for the CPU, mixed_gemm is a product of torch.
  if (stem != "mixed_gemm") {
    EXPECT_GE(choose(table, shape, Isa::avx2).isa, Isa::avx2) << "AVX2 has no kernel";
  }
#endif
}

GemmShape a_shape(bool (*)(const GemmShape&)) { return {64, 64, 64}; }
DoubleGemm a_shape(bool (*)(const DoubleGemm&)) { return {}; }
Conv2dShape a_shape(bool (*)(const Conv2dShape&)) { return {1, 64, 8, 8, 64, 3, 3}; }
RowsShape a_shape(bool (*)(const RowsShape&)) { return {64, 64}; }
CodeTailShape a_shape(bool (*)(const CodeTailShape&)) { return {1, 8, 4, 4, 1}; }
AttentionShape a_shape(bool (*)(const AttentionShape&)) { return {4, 2, 64, 1}; }
SignThresholdShape a_shape(bool (*)(const SignThresholdShape&)) { return {1, 8, 4, 4, 1}; }
BlockTailShape a_shape(bool (*)(const BlockTailShape&)) { return {1, 64, 8, 8, 1, ImageLayout::nchw}; }
std::int64_t a_shape(bool (*)(const std::int64_t&)) { return 64; }

TEST(Table, EveryTableOfOursIsOrderly) {
  int tables = 0;
  for_each_table([&](const std::string& stem, const auto& table) {
    expect_orderly(table, stem, a_shape(table.back().accepts));
    ++tables;
  });
  EXPECT_GE(tables, 15);
}

TEST(Registry, ProductsAreFoundByTheirCode) {
  for (const Products& products : all_products()) {
    EXPECT_EQ(&products_of(products.code), &products);
    EXPECT_EQ(products.weight, tensor_format(products.weight.bits));
    EXPECT_EQ(row_bytes(products.code, 64), products.weight.bits * 8);
    EXPECT_EQ(std::string(products.gemm.back().name), products.name + std::string("_gemm_reference"));
    EXPECT_EQ(std::string(products.conv2d.back().name), products.name + std::string("_conv2d_reference"));
  }
}

}  // namespace
}  // namespace bie::kernels::test
