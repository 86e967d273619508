// bie doctor: what this machine has and which rows the kernels choose.
#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>

#include "bie/kernels/binary_gemm.h"
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
  });
}

}  // namespace bie::cli
