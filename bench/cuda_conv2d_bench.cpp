// Every kernel of the CUDA convolution tables on one GPU: what a call takes from float images to float results, their
// quantising included. Device time from CUDA-graph replays with images that are not in the cache. bench/gpu_convs.py
// has the rivals.
//
// bie_cuda_conv2d_bench [nhwc|nchw] [f16|f32] [bias] [BATCH,IN_C,SIZE,OUT_C,KERNEL,STRIDE,PADDING[,GROUPS]]...: a
// line of JSON for each kernel and shape.
#include <cstring>

#include "bench/cuda_timing.h"
#include "bie/kernels/cuda/registry.h"

namespace {

using namespace bie::bench;
using namespace bie::kernels;

struct Form {
  ImageLayout layout = ImageLayout::nhwc;
  Dtype dtype = Dtype::f16;
  bool bias = false;
};

void bench(int bits, const cuda::Conv2dTable& table, Conv2dShape s, const Form& form, const cuda::Gpu& gpu,
           cudaStream_t stream) {
  constexpr std::int64_t beyond_the_cache = 200 << 20;
  s.pad_code = bits == 1 ? -1 : 0;
  const std::int64_t element = row_bytes(form.dtype, 1), in_bytes = element * s.batch * s.in_c * s.in_h * s.in_w;
  const int copies = static_cast<int>(std::clamp<std::int64_t>(beyond_the_cache / in_bytes, 1, 20));
  const Filled x(in_bytes * copies, 0xbbffbbffu), panels(s.out_c * table.panel_row(s), ~0u);
  const Filled workspace(table.workspace(s), 0), y(element * s.batch * s.out_c * s.out_h() * s.out_w(), 0);
  const Filled bias(4 * s.in_c, 0);
  const cuda::Queue queue{stream, 0};
  const auto image = [&](int i) {
    const float* const added = form.bias ? reinterpret_cast<const float*>(bias.get()) : nullptr;
    return cuda::Image{x.get() + i % copies * in_bytes, form.dtype, form.layout, added, {nullptr, 0.01f}, 1e-5f};
  };
  const cuda::Conv2dOutput out = {y.get(), form.dtype, form.layout, {nullptr, 0.01f}, {nullptr, 0.01f}};
  const cuda::Conv2dKernel& chosen = cuda::choose(table, s, image(0), out, gpu);
  for (const cuda::Conv2dKernel& kernel : table) {
    if (!cuda::fits(kernel, s, gpu) || (kernel.takes != nullptr && !kernel.takes(image(0), out))) continue;
    const double us = time_calls(std::max(copies, 10), stream, [&](int i) {
      const Status status = kernel.run(s, image(i), {panels.get()}, out, workspace.get(), queue);
      if (status == Status::ok) return;
      std::fprintf(stderr, "%s: %s\n", kernel.name, describe(status));
      std::exit(1);
    });
    std::printf(
        "{\"bits\": %d, \"batch\": %lld, \"in_c\": %lld, \"size\": %lld, \"out_c\": %lld, \"groups\": %lld, "
        "\"kernel\": %lld, "
        "\"stride\": %lld, \"layout\": \"%s\", \"dtype\": \"%s\", \"bias\": %s, \"kernel\": \"%s\", \"us\": %.2f, "
        "\"chosen\": %s}\n",
        bits, static_cast<long long>(s.batch), static_cast<long long>(s.in_c), static_cast<long long>(s.in_h),
        static_cast<long long>(s.out_c), static_cast<long long>(s.groups), static_cast<long long>(s.kernel_h),
        static_cast<long long>(s.stride_h), form.layout == ImageLayout::nhwc ? "nhwc" : "nchw",
        form.dtype == Dtype::f16 ? "f16" : "f32", form.bias ? "true" : "false", kernel.name, us,
        &kernel == &chosen ? "true" : "false");
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
  Form form;
  std::vector<Conv2dShape> shapes;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* word) { return std::strcmp(argv[i], word) == 0; };
    if (is("nhwc") || is("nchw")) form.layout = is("nhwc") ? ImageLayout::nhwc : ImageLayout::nchw;
    if (is("f16") || is("f32")) form.dtype = is("f16") ? Dtype::f16 : Dtype::f32;
    if (is("bias")) form.bias = true;
    if (is("nhwc") || is("nchw") || is("f16") || is("f32") || is("bias")) continue;
    long long batch = 0, in_c = 0, size = 0, out_c = 0, kernel = 0, stride = 0, padding = 0, groups = 1;
    if (std::sscanf(argv[i], "%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld", &batch, &in_c, &size, &out_c, &kernel, &stride,
                    &padding, &groups) < 7 ||
        groups <= 0 || in_c % groups != 0 || out_c % groups != 0 || batch <= 0 || in_c <= 0 || out_c <= 0 ||
        kernel <= 0 || stride <= 0 || padding < 0 || size + 2 * padding < kernel) {
      std::fprintf(stderr, "expected BATCH,IN_C,SIZE,OUT_C,KERNEL,STRIDE,PADDING[,GROUPS], got %s\n", argv[i]);
      return 2;
    }
    shapes.push_back({batch, in_c, size, size, out_c, kernel, kernel, stride, stride, padding, padding, 1, 1, groups});
  }
  if (shapes.empty()) shapes = {{128, 64, 56, 56, 64, 3, 3, 1, 1, 1, 1}, {128, 256, 14, 14, 256, 3, 3, 1, 1, 1, 1}};
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  for (const Conv2dShape& shape : shapes) {
    for (const cuda::Products& products : cuda::all_products())
      bench(products.weight.bits, shape.groups == 1 ? products.conv2d : products.grouped_conv2d, shape, form, *gpu,
            stream);
  }
}
