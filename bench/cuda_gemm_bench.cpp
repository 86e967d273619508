// Every kernel of the CUDA GEMM tables on one GPU: what a call takes from float16 activations to float16 results, their
// quantising included ("us"); from packed activations ("packed_us"); from codes to the next layer's codes, bits or int8
// ("codes_us"), as between layers of a chain. Device time from CUDA-graph replays with weights that are not in the
// cache. bench/gpu_layers.py has the rivals.
//
// bie_cuda_gemm_bench [M,N,K]...: a line of JSON for each kernel and shape.
#include "bench/cuda_timing.h"
#include "bie/kernels/cuda/registry.h"

namespace {

using namespace bie::bench;
using namespace bie::kernels;

void bench(int bits, const cuda::GemmTable& table, const GemmShape& s, const cuda::Gpu& gpu, cudaStream_t stream) {
  constexpr std::int64_t beyond_the_cache = 200 << 20;
  const std::int64_t panel_bytes = s.n * table.panel_row(s.k);
  const int copies = static_cast<int>(std::clamp<std::int64_t>(beyond_the_cache / panel_bytes, 1, 40));
  const int calls = std::max(copies, 10);
  const Filled x(2 * s.m * s.k, 0xbbffbbffu), panels(panel_bytes * copies, ~0u),
      workspace(table.workspace(s.m, s.k), 0);
  const Filled y(2 * s.m * s.n, 0);
  const cuda::Queue queue{stream, 0};
  const Dtype packed = bits == 1 ? Dtype::bits : bits == 4 ? Dtype::s4 : Dtype::s8;
  for (const cuda::GemmKernel& kernel : table) {
    if (!cuda::fits(kernel, s, gpu)) continue;
    const auto time = [&](Dtype dtype, Dtype out) {
      return time_calls(calls, stream, [&](int i) {
        const Status status =
            kernel.run(s, {x.get(), dtype, row_bytes(dtype, s.k), nullptr, {nullptr, 0.01f}, 1e-5f},
                       {panels.get() + i % copies * panel_bytes},
                       {y.get(), out, row_bytes(out, s.n), {nullptr, 0.01f}, {nullptr, 0.01f}}, workspace.get(), queue);
        if (status == Status::ok) return;
        std::fprintf(stderr, "%s: %s\n", kernel.name, describe(status));
        std::exit(1);
      });
    };
    const double us = time(Dtype::f16, Dtype::f16), packed_us = time(packed, Dtype::f16);
    const double codes_us = time(packed, bits == 1 ? Dtype::bits : Dtype::s8);
    std::printf(
        "{\"bits\": %d, \"m\": %lld, \"n\": %lld, \"k\": %lld, \"kernel\": \"%s\", \"us\": %.2f, \"packed_us\": %.2f, "
        "\"codes_us\": %.2f, \"chosen\": %s}\n",
        bits, static_cast<long long>(s.m), static_cast<long long>(s.n), static_cast<long long>(s.k), kernel.name, us,
        packed_us, codes_us, &kernel == &cuda::choose(table, s, gpu) ? "true" : "false");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const cuda::Gpu* gpu = nullptr;
  const Status status = cuda::gpu(0, &gpu);
  if (status != Status::ok) {
    std::fprintf(stderr, "%s\n", describe(status));
    return 1;
  }
  std::vector<GemmShape> shapes;
  for (int i = 1; i < argc; ++i) {
    long long m = 0, n = 0, k = 0;
    if (std::sscanf(argv[i], "%lld,%lld,%lld", &m, &n, &k) != 3 || m <= 0 || n <= 0 || k <= 0) {
      std::fprintf(stderr, "expected M,N,K of positive numbers, got %s\n", argv[i]);
      return 2;
    }
    shapes.push_back({m, n, k});
  }
  if (shapes.empty()) shapes = {{1, 4096, 4096}, {128, 4096, 4096}, {4096, 4096, 4096}};
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  for (const GemmShape& shape : shapes) {
    for (const cuda::Products& products : cuda::all_products())
      bench(products.weight.bits, products.gemm, shape, *gpu, stream);
  }
}
