// Every kernel of the CUDA GEMM tables computes the formula. Kernels above their max_sm are emulated there, slow and
// right.
#include "bie/kernels/cuda/gemm.h"

#include <cmath>
#include <limits>

#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_gemm.h"
#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/formulas.h"
#include "tests/kernels/gemm_sweep.h"

namespace bie::kernels::test {
namespace {

struct CudaWidth {
  GemmWidth host;
  cuda::GemmTable (*table)();
};
const CudaWidth widths[] = {
    {{"b1xb1", Dtype::bits, -1, 1, max_k_b1, b1xb1_gemm_table}, cuda::b1xb1_gemm_table},
    {{"s8xs8", Dtype::s8, -128, 127, max_k_s8, s8xs8_gemm_table}, cuda::s8xs8_gemm_table},
    {{"s4xs4", Dtype::s4, -8, 7, max_k_s4, s4xs4_gemm_table}, cuda::s4xs4_gemm_table},
};

/// A problem's buffers on the device, scales included.
struct OnDevice {
  const GemmProblem& p;
  cuda::GemmTable table;
  DeviceBytes x{p.x}, weight{p.weight}, bias{p.bias}, out_bias{p.out_bias}, panels, workspace;
  DeviceBytes scales{std::vector<float>{p.step, p.scale, 1.0f, p.out_step}};

  OnDevice(const GemmProblem& problem, const cuda::GemmTable& t)
      : p(problem),
        table(t),
        panels(static_cast<std::size_t>(p.c.shape.n * t.panel_row(p.c.shape.k))),
        workspace(static_cast<std::size_t>(t.workspace(p.c.shape.m, p.c.shape.k))) {}

  Status prepack() const {
    int flag_count = 0;
    const cuda::Rows rows{weight.get(), p.width.code, row_bytes(p.width.code, p.c.shape.k), nullptr, {}, 1};
    return table.prepack(rows, p.c.shape.n, p.c.shape.k, panels.get(), nullptr, &flag_count, default_queue);
  }
  cuda::Rows rows(float eps = 1e-30f) const {
    return {x.get(), p.c.in, p.x_stride(), p.c.with_bias ? bias.as<float>() : nullptr, {scales.as<float>(), 0}, eps};
  }
  /// S = scale * 1, so that the step size can be any.
  cuda::GemmOutput output(void* data) const {
    return {data,
            p.c.out,
            p.y_stride(),
            {scales.as<float>() + 1, 0},
            {nullptr, 1},
            p.c.with_bias ? out_bias.as<float>() : nullptr,
            {scales.as<float>() + 3, 0}};
  }
};

/// Whether the kernel computes the shape on this GPU, be it by emulation.
bool computes(const cuda::GemmKernel& kernel, const GemmShape& shape) {
  return kernel.min_sm <= this_gpu().sm && (kernel.accepts == nullptr || kernel.accepts(shape));
}

void expect_kernel(const cuda::GemmKernel& kernel, const OnDevice& device, const std::vector<std::int32_t>& sums) {
  const GemmProblem& p = device.p;
  const GemmShape& shape = p.c.shape;
  SCOPED_TRACE(kernel.name);
  const std::vector<unsigned char> expected = expected_bytes(p, sums);
  GuardedBytes y(p.y_bytes());
  run_guarded(&y, p.y_bytes(), [&](void* data) {
    const Status status = kernel.run(shape, device.rows(), {device.panels.get()}, device.output(data),
                                     device.workspace.get(), default_queue);
    ASSERT_EQ(status, Status::ok) << describe(status) << "; " << p.c;
  });
  ASSERT_TRUE(same_bytes(expected, y)) << p.c << ", step " << p.step << ", scale " << p.scale;
}

void expect_every_kernel(const CudaWidth& width, const GemmProblem& p) {
  const std::vector<std::int32_t> sums = expected_sums(p);
  const OnDevice device(p, width.table());
  ASSERT_EQ(device.prepack(), Status::ok);
  for (const cuda::GemmKernel& kernel : device.table)
    if (computes(kernel, p.c.shape)) expect_kernel(kernel, device, sums);
}

class CudaGemm : public testing::TestWithParam<CudaWidth> {
 protected:
  GemmCase drawn_case(const GemmShape& shape, ReplayableRng& rng) const {
    return {shape,
            rng.one_of({Dtype::f32, Dtype::bf16, Dtype::f16, GetParam().host.code}),
            rng.one_of(every_output),
            rng.coin(),
            rng.one_of({0, 1, 5}),
            rng.one_of({0, 1, 7})};
  }
  void expect_drawn(const GemmShape& shape, ReplayableRng& rng) const {
    expect_every_kernel(GetParam(), random_gemm(GetParam().host, drawn_case(shape, rng), rng));
  }
};

TEST_P(CudaGemm, SmallOddShapes) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const std::int64_t m : {0, 1, 2, 3, 4, 5, 9, 12, 17, 65})
    for (const std::int64_t n : {0, 1, 7, 33, 129})
      for (const std::int64_t k : {0, 1, 7, 31, 33, 129, 257}) {
        expect_drawn({m, n, k}, rng);
        if (HasFailure()) return;
      }
}

TEST_P(CudaGemm, EveryMixOfDtypesBiasAndStrides) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16, GetParam().host.code})
    for (const Dtype out : every_output)
      for (const bool with_bias : {false, true})
        for (const std::int64_t gap : {0, 3})
          for (const GemmShape& shape : {GemmShape{7, 77, 83}, GemmShape{2, 9, 21}}) {
            expect_every_kernel(GetParam(), random_gemm(GetParam().host, {shape, in, out, with_bias, gap, gap}, rng));
            if (HasFailure()) return;
          }
}

TEST_P(CudaGemm, ShapesBeyondATileInEachDirection) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const GemmShape& shape :
       {GemmShape{300, 20, 100}, GemmShape{20, 600, 100}, GemmShape{3, 5, 20000}, GemmShape{129, 257, 513},
        GemmShape{4, 300, 3000}, GemmShape{1, 1, 100001}, GemmShape{1, 9001, 40}, GemmShape{3, 5000, 40},
        GemmShape{7, 2500, 70}, GemmShape{12, 3001, 300}}) {
    expect_drawn(shape, rng);
    if (HasFailure()) return;
  }
}

// Drawn with a kernel each that computes it; the slow formula sets the sizes. BIE_TEST_SHAPES asks for another number.
TEST_P(CudaGemm, ManyRandomShapes) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const char* text = std::getenv("BIE_TEST_SHAPES");
  const int wanted = text == nullptr ? 300 : std::atoi(text);
  const std::int64_t sizes[] = {1,  2,  3,  4,  5,   8,   15,  16,  17,  31,  32, 33,
                                63, 64, 65, 96, 127, 128, 129, 200, 255, 257, 300};
  const cuda::GemmTable table = GetParam().table();
  for (int done = 0; done < wanted;) {
    const GemmShape shape = {rng.one_of(sizes), rng.one_of(sizes), rng.one_of(sizes) * rng.one_of({1, 1, 1, 4})};
    const cuda::GemmKernel& kernel = table.best_first[rng.between(0, table.count - 1)];
    if (shape.m * shape.n * shape.k > 200000 || !computes(kernel, shape)) continue;
    const GemmProblem p = random_gemm(GetParam().host, drawn_case(shape, rng), rng);
    const OnDevice device(p, table);
    ASSERT_EQ(device.prepack(), Status::ok);
    expect_kernel(kernel, device, expected_sums(p));
    if (HasFailure()) return;
    ++done;
  }
  RecordProperty("shapes", wanted);
}

// A float weight is quantised into panels in one pass: as if its codes had been given.
TEST_P(CudaGemm, FloatWeightsBecomePanels) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const GemmWidth& width = GetParam().host;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const std::int64_t k : {5, 64, 131}) {
      // The weight of one problem is the activation of another, which tells its codes.
      GemmProblem source = random_gemm(width, {{23, 1, k}, dtype}, rng);
      GemmProblem p = random_gemm(width, {{9, 23, k}}, rng);
      for (std::int64_t o = 0; o < 23; ++o)
        for (std::int64_t i = 0; i < k; ++i)
          write_code(p.weight.data() + o * row_bytes(width.code, k), width.code, i, source.activation(o, i));
      const OnDevice device(p, GetParam().table());
      const DeviceBytes weight(source.x), step(std::vector<float>{source.step});
      int flag_count = 0;
      ASSERT_EQ(device.table.prepack({weight.get(), dtype, source.x_stride(), nullptr, {step.as<float>(), 0}, 1e-30f},
                                     23, k, device.panels.get(), nullptr, &flag_count, default_queue),
                Status::ok);
      expect_kernel(device.table.back(), device, expected_sums(p));
      if (HasFailure()) return;
    }
}

TEST_P(CudaGemm, NanAndInfinityMakeEveryResultNan) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const std::int64_t m : {1, 40}) {
      GemmProblem p = random_gemm(GetParam().host, {{m, 70, 90}, Dtype::f32, Dtype::f32}, rng);
      write_float(p.x.data() + (m - 1) * p.x_stride(), Dtype::f32, 89, bad);
      const OnDevice device(p, GetParam().table());
      ASSERT_EQ(device.prepack(), Status::ok);
      for (const cuda::GemmKernel& kernel : device.table) {
        if (!computes(kernel, p.c.shape)) continue;
        const DeviceBytes y(p.y_bytes());
        ASSERT_EQ(kernel.run(p.c.shape, device.rows(), {device.panels.get()}, device.output(y.get()),
                             device.workspace.get(), default_queue),
                  Status::ok);
        for (const float value : y.values<float>()) ASSERT_TRUE(std::isnan(value)) << kernel.name;
      }
    }
}

TEST_P(CudaGemm, NanInAFloatWeightMakesEveryResultNan) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 0.0f}) {
    const std::int64_t n = 70, k = 90;
    std::vector<float> weight(static_cast<std::size_t>(n * k), 0.5f);
    weight[static_cast<std::size_t>(n * k - 1)] = bad;
    const GemmProblem p = random_gemm(GetParam().host, {{3, n, k}, Dtype::f32, Dtype::f32}, rng);
    const OnDevice device(p, GetParam().table());
    const DeviceBytes values(weight), flags(cuda::most_flags * sizeof(int));
    int flag_count = 0;
    ASSERT_EQ(device.table.prepack({values.get(), Dtype::f32, 4 * k, nullptr, {nullptr, 1}, 1}, n, k,
                                   device.panels.get(), flags.as<int>(), &flag_count, default_queue),
              Status::ok);
    for (const cuda::GemmKernel& kernel : device.table) {
      if (!computes(kernel, p.c.shape)) continue;
      const DeviceBytes y(p.y_bytes());
      ASSERT_EQ(kernel.run(p.c.shape, device.rows(), {device.panels.get(), flags.as<int>(), flag_count},
                           device.output(y.get()), device.workspace.get(), default_queue),
                Status::ok);
      for (const float value : y.values<float>()) ASSERT_EQ(std::isnan(value), bad != 0.0f) << kernel.name;
    }
  }
}

TEST_P(CudaGemm, AScaleThatIsNotFiniteMakesEveryResultNan) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const GemmProblem p = random_gemm(GetParam().host, {{5, 70, 90}, GetParam().host.code, Dtype::f32}, rng);
  const OnDevice device(p, GetParam().table());
  ASSERT_EQ(device.prepack(), Status::ok);
  const float infinity = std::numeric_limits<float>::infinity();
  const float pairs[][2] = {{infinity, 1}, {1, -infinity}};
  for (const auto& pair : pairs)
    for (const cuda::GemmKernel& kernel : device.table) {
      if (!computes(kernel, p.c.shape)) continue;
      const DeviceBytes y(p.y_bytes());
      ASSERT_EQ(kernel.run(p.c.shape, device.rows(), {device.panels.get()},
                           {y.get(), Dtype::f32, p.y_stride(), {nullptr, pair[0]}, {nullptr, pair[1]}},
                           device.workspace.get(), default_queue),
                Status::ok);
      for (const float value : y.values<float>()) ASSERT_TRUE(std::isnan(value)) << kernel.name;
    }
}

TEST_P(CudaGemm, StepSizesHaveAFloor) {
  BIE_NEEDS_GPU();
  if (GetParam().host.code == Dtype::bits) return;
  ReplayableRng rng;
  GemmProblem p = random_gemm(GetParam().host, {{33, 9, 40}, Dtype::f32, Dtype::s32}, rng);
  p.step = 0.25f;
  const std::vector<std::int32_t> sums = expected_sums(p);
  p.step = 0.01f;  // what the device reads; eps lifts it
  const OnDevice device(p, GetParam().table());
  ASSERT_EQ(device.prepack(), Status::ok);
  const DeviceBytes y(p.y_bytes());
  ASSERT_EQ(device.table.back().run(p.c.shape, device.rows(0.25f), {device.panels.get()}, device.output(y.get()),
                                    device.workspace.get(), default_queue),
            Status::ok);
  EXPECT_EQ(y.values<std::int32_t>(), sums);
}

// The same call replayed from a graph on other values in the same memory.
TEST_P(CudaGemm, CallsAreCapturedInAGraph) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const std::int64_t m : {2, 70}) {
    const GemmCase c{{m, 70, 90}, Dtype::f32, Dtype::s32};
    const GemmProblem first = random_gemm(GetParam().host, c, rng);
    GemmProblem second = random_gemm(GetParam().host, c, rng);
    second.step = first.step;
    second.weight = first.weight;
    const OnDevice device(first, GetParam().table());
    ASSERT_EQ(device.prepack(), Status::ok);
    const DeviceBytes y(first.y_bytes());
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    const auto& kernel = cuda::choose(device.table, c.shape, this_gpu());
    EXPECT_EQ(kernel.run(c.shape, device.rows(), {device.panels.get()}, device.output(y.get()), device.workspace.get(),
                         {stream, 0}),
              Status::ok);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (const GemmProblem* p : std::initializer_list<const GemmProblem*>{&first, &second}) {
      cudaMemcpy(device.x.get(), p->x.data(), p->x.size(), cudaMemcpyHostToDevice);
      ASSERT_TRUE(
          device_is_well());  // small copies from pageable memory return early, and this stream waits for no other
      ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      ASSERT_TRUE(device_is_well());
      EXPECT_EQ(y.values<std::int32_t>(), expected_sums(*p)) << kernel.name;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

TEST_P(CudaGemm, RefusesWhatTheContractRefuses) {
  const cuda::GemmTable table = GetParam().table();
  const std::int64_t deep = table.max_k + 1;
  for (const cuda::GemmKernel& kernel : table) {
    const auto run = [&](const GemmShape& shape, Dtype in, Dtype out) {
      return kernel.run(shape, {nullptr, in, 4 * shape.k, nullptr, {nullptr, 1}, 1}, {nullptr},
                        {nullptr, out, 4 * shape.n, {nullptr, 1}, {nullptr, 1}}, nullptr, default_queue);
    };
    EXPECT_EQ(run({-1, 1, 1}, Dtype::f32, Dtype::f32), Status::bad_shape) << kernel.name;
    EXPECT_EQ(run({1, 1, deep}, Dtype::f32, Dtype::f32), Status::too_deep) << kernel.name;
    EXPECT_EQ(run({1, 1, 1}, Dtype::s32, Dtype::f32), Status::bad_dtype) << kernel.name;
    EXPECT_EQ(run({1, 1, 1}, Dtype::f32, Dtype::s4), Status::bad_dtype) << kernel.name;
    const cuda::GemmOutput stepless = {nullptr, Dtype::s8, 1, {nullptr, 1}, {nullptr, 1}, nullptr, {nullptr, 0}, 0};
    EXPECT_EQ(kernel.run({1, 1, 1}, {nullptr, Dtype::f32, 4, nullptr, {nullptr, 1}, 1}, {nullptr}, stepless, nullptr,
                         default_queue),
              Status::bad_scale)
        << kernel.name;
    EXPECT_EQ(run({0, 5, 1}, Dtype::f32, Dtype::f32), Status::ok) << kernel.name;
  }
}

std::string width_name(const testing::TestParamInfo<CudaWidth>& info) { return info.param.host.name; }
INSTANTIATE_TEST_SUITE_P(Widths, CudaGemm, testing::ValuesIn(widths), width_name);

}  // namespace
}  // namespace bie::kernels::test
