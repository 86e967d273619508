// The choice of a kernel is a pure function of shape and GPU: pretended GPUs, no device.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "bie/kernels/cuda/conv2d.h"

namespace bie::kernels::test {
namespace {

cuda::Gpu pretended(int sm, int multiprocessors = 132) {
  cuda::Gpu gpu;
  gpu.sm = sm;
  gpu.multiprocessors = multiprocessors;
  return gpu;
}

std::string chosen(const cuda::GemmTable& table, const GemmShape& shape, int sm) {
  return cuda::choose(table, shape, pretended(sm)).name;
}

/// Images of the dtype to results of the same, channels side by side.
std::string chosen(const cuda::Conv2dTable& table, const Conv2dShape& shape, int sm, Dtype dtype) {
  const cuda::Image x = {nullptr, dtype, ImageLayout::nhwc, nullptr, {nullptr, 1}, 1};
  const cuda::Conv2dOutput y = {nullptr, dtype, ImageLayout::nhwc, {nullptr, 1}, {nullptr, 1}};
  return cuda::choose(table, shape, x, y, pretended(sm)).name;
}

TEST(CudaChoice, BinaryUsesTheAndFormWhereItIsNative) {
  const cuda::GemmTable table = cuda::b1xb1_gemm_table();
  for (const int sm : {80, 86, 89}) EXPECT_EQ(chosen(table, {4096, 4096, 4096}, sm), "b1xb1_gemm_mma_and_128x256");
  EXPECT_EQ(chosen(table, {4096, 4096, 4096}, 90), "b1xb1_gemm_wgmma_128x256");
  for (const int sm : {75, 100, 120}) EXPECT_EQ(chosen(table, {4096, 4096, 4096}, sm), "b1xb1_gemm_portable");
}

TEST(CudaChoice, FourBitTensorCoresAreUsedWhereTheyAreNative) {
  const cuda::GemmTable table = cuda::s4xs4_gemm_table();
  for (const int sm : {80, 86, 89}) EXPECT_EQ(chosen(table, {4096, 4096, 4096}, sm), "s4xs4_gemm_mma_s4_128x256");
  for (const int sm : {100, 120}) EXPECT_EQ(chosen(table, {4096, 4096, 4096}, sm), "s4xs4_gemm_mma_128x256");
  EXPECT_EQ(chosen(table, {4096, 4096, 4096}, 90), "s4xs4_gemm_wgmma_weight_128x256");
  EXPECT_EQ(chosen(table, {4096, 4096, 4096}, 75), "s4xs4_gemm_portable");
}

TEST(CudaChoice, TilesShrinkWithTheShape) {
  const cuda::GemmTable table = cuda::s8xs8_gemm_table();
  EXPECT_EQ(chosen(table, {1, 4096, 4096}, 80), "s8xs8_gemm_dp4a_gemv");
  EXPECT_EQ(chosen(table, {5, 1024, 1024}, 80), "s8xs8_gemm_mma_16x128");
  EXPECT_EQ(chosen(table, {16, 4096, 4096}, 80), "s8xs8_gemm_mma_16x128");
  EXPECT_EQ(chosen(table, {256, 256, 4096}, 80), "s8xs8_gemm_mma_64x64");
  EXPECT_EQ(chosen(table, {4096, 4096, 4096}, 80), "s8xs8_gemm_mma_128x256");
}

// docs/measured/gpu-linear.md has the times that the predicates were taken from.
TEST(CudaChoice, HopperTilesFillItsMultiprocessors) {
  const cuda::GemmTable table = cuda::s8xs8_gemm_table();
  EXPECT_EQ(chosen(table, {1, 4096, 4096}, 90), "s8xs8_gemm_dp4a_gemv");
  EXPECT_EQ(chosen(table, {1, 8192, 8192}, 90), "s8xs8_gemm_wgmma_weight_64x16");
  EXPECT_EQ(chosen(cuda::b1xb1_gemm_table(), {1, 8192, 8192}, 90), "b1xb1_gemm_popc_gemv");
  EXPECT_EQ(chosen(table, {12, 1024, 1024}, 90), "s8xs8_gemm_dp4a_gemv");
  EXPECT_EQ(chosen(table, {13, 1024, 1024}, 90), "s8xs8_gemm_wgmma_weight_64x16");
  EXPECT_EQ(chosen(table, {8, 4096, 4096}, 90), "s8xs8_gemm_wgmma_weight_64x16");
  EXPECT_EQ(chosen(table, {16, 4096, 4096}, 90), "s8xs8_gemm_wgmma_weight_64x16");
  EXPECT_EQ(chosen(table, {128, 4096, 4096}, 90), "s8xs8_gemm_wgmma_weight_64x64");
  EXPECT_EQ(chosen(table, {128, 8192, 8192}, 90), "s8xs8_gemm_wgmma_weight_64x128");
  EXPECT_EQ(chosen(table, {512, 4096, 4096}, 90), "s8xs8_gemm_wgmma_128x128");
  EXPECT_EQ(chosen(table, {1024, 4096, 4096}, 90), "s8xs8_gemm_wgmma_128x256");
  EXPECT_EQ(chosen(table, {4096, 8192, 8192}, 90), "s8xs8_gemm_wgmma_128x256");
  EXPECT_EQ(chosen(table, {70, 64, 0}, 90), "s8xs8_gemm_mma_64x64");  // the TMA takes no empty rows
}

TEST(CudaChoice, ARowTooLongForSharedMemoryIsNoGemv) {
  EXPECT_NE(chosen(cuda::s8xs8_gemm_table(), {4, 64, 100000}, 90), "s8xs8_gemm_dp4a_gemv");
}

TEST(CudaChoice, ConvolutionsChooseByPixelsAndChannels) {
  const cuda::Conv2dTable table = cuda::s8xs8_conv2d_table();
  const auto name = [&](const Conv2dShape& s, int sm, Dtype dtype = Dtype::f32) { return chosen(table, s, sm, dtype); };
  const Conv2dShape deep{128, 256, 14, 14, 256, 3, 3, 1, 1, 1, 1}, wide{128, 64, 56, 56, 64, 3, 3, 1, 1, 1, 1};
  const Conv2dShape small{1, 64, 7, 7, 64, 3, 3, 1, 1, 1, 1};
  EXPECT_EQ(name(deep, 80), "s8xs8_conv2d_mma_128x256");
  EXPECT_EQ(name(wide, 80), "s8xs8_conv2d_halo_128x64");
  EXPECT_EQ(name(small, 80), "s8xs8_conv2d_mma_64x64");
  // Large tiles make less than two waves of it.
  EXPECT_EQ(name(deep, 90), "s8xs8_conv2d_wgmma_128x128");
  const Conv2dShape pointwise{128, 64, 56, 56, 256, 1, 1}, long_pixels{128, 1024, 14, 14, 256, 1, 1};
  EXPECT_EQ(name(pointwise, 90), "s8xs8_conv2d_wgmma_128x256");
  EXPECT_EQ(name(wide, 90), "s8xs8_conv2d_halo_128x64");
  EXPECT_EQ(name({128, 64, 56, 56, 128, 3, 3, 2, 2, 1, 1}, 90), "s8xs8_conv2d_halo_128x128");
  // Halves side by side are quantised while others are multiplied.
  EXPECT_EQ(name(wide, 90, Dtype::f16), "s8xs8_conv2d_halo_pipeline_256x64");
  EXPECT_EQ(name({128, 64, 56, 56, 128, 3, 3, 2, 2, 1, 1}, 90, Dtype::bf16), "s8xs8_conv2d_halo_pipeline_128x128");
  EXPECT_EQ(name({128, 128, 28, 28, 128, 3, 3, 1, 1, 1, 1}, 90, Dtype::f16), "s8xs8_conv2d_wgmma_128x128");
  EXPECT_EQ(name({4, 64, 56, 56, 64, 3, 3, 1, 1, 1, 1}, 90, Dtype::f16), "s8xs8_conv2d_wgmma_128x64");  // few tiles
  EXPECT_EQ(name(wide, 80, Dtype::f16), "s8xs8_conv2d_halo_128x64");
  // Halves of one tap are quantised on their way to the product, for as many output channels at once as there are.
  EXPECT_EQ(name(pointwise, 90, Dtype::f16), "s8xs8_conv2d_wgmma_pixels_256");
  EXPECT_EQ(name({2, 64, 56, 56, 256, 1, 1}, 90, Dtype::bf16), "s8xs8_conv2d_wgmma_pixels_128");
  EXPECT_EQ(name({1, 64, 56, 56, 256, 1, 1}, 90, Dtype::f16), "s8xs8_conv2d_wgmma_128x64");  // few pixels
  EXPECT_EQ(name({128, 64, 56, 56, 256, 1, 1, 1, 1, 1, 1}, 90, Dtype::f16), "s8xs8_conv2d_wgmma_128x256");
  EXPECT_EQ(name(pointwise, 80, Dtype::f16), "s8xs8_conv2d_mma_128x256");
  // Few channels, whatever they are of.
  EXPECT_EQ(name({128, 3, 224, 224, 64, 7, 7, 2, 2, 3, 3}, 80), "s8xs8_conv2d_mma_lines");
  EXPECT_EQ(name({1, 3, 32, 32, 64, 3, 3, 1, 1, 1, 1}, 80), "s8xs8_conv2d_mma_64x64");  // few tiles
  EXPECT_EQ(name({128, 3, 224, 224, 64, 7, 7, 2, 2, 3, 3}, 90, Dtype::f16), "s8xs8_conv2d_mma_lines");
  // Most pixels of a 1x1 kernel with a stride are not read.
  EXPECT_EQ(name({128, 256, 14, 14, 512, 1, 1, 2, 2}, 90), "s8xs8_conv2d_halo_128x128");
  EXPECT_EQ(name(small, 90), "s8xs8_conv2d_wgmma_weight_64x64");
  // The TMA knows strides up to 8.
  EXPECT_EQ(name({1, 64, 90, 90, 64, 3, 3, 9, 9, 1, 1}, 90), "s8xs8_conv2d_mma_64x64");
  EXPECT_EQ(name({128, 256, 14, 14, 256, 3, 3, 1, 1, 1, 1}, 75), "s8xs8_conv2d_portable");
  const auto binary = [&](const Conv2dShape& s) { return chosen(cuda::b1xb1_conv2d_table(), s, 90, Dtype::f32); };
  EXPECT_EQ(chosen(cuda::b1xb1_conv2d_table(), {1, 64, 14, 14, 256, 1, 1}, 90, Dtype::f16),
            "b1xb1_conv2d_wgmma_pixels_64");
  EXPECT_EQ(chosen(cuda::b1xb1_conv2d_table(), {1, 1024, 14, 14, 256, 1, 1}, 90, Dtype::f16),
            "b1xb1_conv2d_mma_and_64x64");
  EXPECT_EQ(binary(wide), "b1xb1_conv2d_halo_128x64");
  EXPECT_EQ(binary(deep), "b1xb1_conv2d_halo_128x128");
  EXPECT_EQ(binary(small), "b1xb1_conv2d_mma_and_64x64");
  // A halo is quantised for each tile of columns; a 1x1 kernel has none.
  EXPECT_EQ(binary({128, 256, 14, 14, 512, 3, 3, 2, 2, 1, 1}), "b1xb1_conv2d_mma_and_128x128");
  EXPECT_EQ(binary(long_pixels), "b1xb1_conv2d_halo_128x128");
}

template <class Table>
void expect_sound(const Table& table, std::set<std::string>* names) {
  for (const auto& kernel : table) EXPECT_TRUE(names->insert(kernel.name).second) << kernel.name << " stands twice";
  const auto& last = table.back();
  EXPECT_EQ(last.min_sm, 75);
  EXPECT_GE(last.max_sm, 120);
  EXPECT_EQ(last.accepts, nullptr);
  EXPECT_EQ(last.suits, nullptr);
}

TEST(CudaChoice, TablesEndWithARowThatRunsEverywhere) {
  std::set<std::string> names;
  for (const auto& table : {cuda::b1xb1_gemm_table(), cuda::s8xs8_gemm_table(), cuda::s4xs4_gemm_table()})
    expect_sound(table, &names);
  for (const auto& table :
       {cuda::b1xb1_conv2d_table(), cuda::s8xs8_conv2d_table(), cuda::s4xs4_conv2d_table(),
        cuda::b1xb1_grouped_conv2d_table(), cuda::s8xs8_grouped_conv2d_table(), cuda::s4xs4_grouped_conv2d_table()})
    expect_sound(table, &names);
}

TEST(CudaChoice, GroupsOfFewChannelsHaveTablesOfTheirOwn) {
  const auto grouped = [](std::int64_t in_c, std::int64_t out_c, std::int64_t groups) {
    return Conv2dShape{1, in_c, 8, 8, out_c, 3, 3, 1, 1, 1, 1, 1, 1, groups};
  };
  EXPECT_TRUE(cuda::has_small_groups(grouped(96, 96, 96)));
  EXPECT_TRUE(cuda::has_small_groups(grouped(128, 128, 32)));
  EXPECT_FALSE(cuda::has_small_groups(grouped(8, 8, 1)));
  EXPECT_FALSE(cuda::has_small_groups(grouped(512, 512, 2)));
  const cuda::Conv2dTable table = cuda::s8xs8_grouped_conv2d_table();
  EXPECT_EQ(chosen(table, grouped(96, 96, 96), 90, Dtype::f16), "s8xs8_grouped_conv2d_dp4a");
  // Lines so far apart that no two of them fit a block.
  const Conv2dShape far{1, 32, 4000, 4000, 32, 9, 9, 1, 1, 0, 0, 400, 400, 32};
  EXPECT_EQ(chosen(table, far, 90, Dtype::f16), "s8xs8_grouped_conv2d_portable");
}

TEST(CudaChoice, ADeviceThatIsNotThereIsAStatus) {
  const cuda::Gpu* facts = nullptr;
  EXPECT_EQ(cuda::gpu(-1, &facts), Status::no_device);
  EXPECT_EQ(cuda::gpu(63, &facts), Status::no_device);
  EXPECT_EQ(cuda::gpu(1000, &facts), Status::no_device);
}

}  // namespace
}  // namespace bie::kernels::test
