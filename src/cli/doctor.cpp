// bie doctor: what this machine has and which rows the kernels choose.
#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>

#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/cuda/conv2d.h"
#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "bie/kernels/packing.h"
#include "bie/kernels/quantize.h"
#include "cli/commands.h"

namespace bie::cli {
namespace {

/// Every row of a table, and whether it runs here.
template <class Row>
void print_table(const kernels::Table<Row>& table) {
  for (const Row& row : table)
    std::printf("  %-28s %s\n", row.name, row.isa <= kernels::host().isa ? "available" : "not on this machine");
}

/// The GPUs and the rows for them; one line where this build or this machine has none.
void print_cuda() {
#if BIE_WITH_CUDA
  namespace cuda = kernels::cuda;
  const cuda::Gpu* gpu = nullptr;
  kernels::Status status = kernels::Status::ok;
  int device = 0;
  for (; (status = cuda::gpu(device, &gpu)) == kernels::Status::ok; ++device) {
    std::printf("GPU %d: %s, sm_%d, %d multiprocessors, driver for CUDA %d.%d\n", device, gpu->name, gpu->sm,
                gpu->multiprocessors, gpu->driver / 1000, gpu->driver % 1000 / 10);
    const auto print = [&](const auto& table) {
      for (const auto& row : table)
        std::printf("  %-28s %s\n", row.name,
                    row.min_sm <= gpu->sm && gpu->sm <= row.max_sm ? "available" : "not on this GPU");
    };
    print(cuda::b1xb1_gemm_table());
    print(cuda::s8xs8_gemm_table());
    print(cuda::s4xs4_gemm_table());
    print(cuda::s8xs8_conv2d_table());
    print(cuda::s4xs4_conv2d_table());
  }
  if (device == 0) std::printf("GPU: none (%s)\n", kernels::describe(status));
#else
  std::printf("GPU: this build has no CUDA kernels\n");
#endif
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "What this machine has and which kernels run on it");
  command->callback([] {
    const kernels::Host& host = kernels::host();
    std::printf("bie %s, torch %s\n", BIE_VERSION, BIE_TORCH_VERSION);
    std::printf("CPU: %s", kernels::name(kernels::best_isa(kernels::detect_cpu())));
    if (host.status != kernels::Status::ok)
      std::printf(" (%s)", kernels::describe(host.status));
    else if (host.isa != kernels::best_isa(kernels::detect_cpu()))
      std::printf(", capped to %s by BIE_MAX_ISA", kernels::name(host.isa));
    std::printf(", %d threads\nkernels, best first (the first available row that takes a shape runs):\n",
                at::get_num_threads());
    print_table(kernels::b1xb1_gemm_table());
    print_table(kernels::s8xs8_gemm_table());
    print_table(kernels::s4xs4_gemm_table());
    print_table(kernels::s8xs8_conv2d_table());
    print_table(kernels::s4xs4_conv2d_table());
    print_table(kernels::sign_pack_table());
    print_table(kernels::int4_pack_table());
    print_table(kernels::quantize_table());
    print_cuda();
  });
}

}  // namespace bie::cli
