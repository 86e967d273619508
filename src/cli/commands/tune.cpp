// bie tune: times the GEMM kernels of a GPU or of this CPU for given shapes and remembers the fastest.
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bie/kernels/cuda/device.h"
#include "bie/layers/linear.h"
#include "bie/models/model_file.h"
#include "bie/ops.h"
#include "bie/train/device.h"
#include "cli/commands/commands.h"
#include "cli/support/result.h"
#include "cli/support/session.h"

namespace bie::cli {
namespace {

struct Gemm {
  std::int64_t bits, m, n, k;
};

/// "8,64,4096,1024"
Gemm gemm_of(const std::string& text) {
  long long bits = 0, m = 0, n = 0, k = 0;
  int used = 0;
  TORCH_CHECK_VALUE(std::sscanf(text.c_str(), "%lld,%lld,%lld,%lld%n", &bits, &m, &n, &k, &used) == 4 &&
                        static_cast<std::size_t>(used) == text.size(),
                    "--gemm: expected BITS,M,N,K, such as 8,64,4096,4096, got ", text);
  return {bits, m, n, k};
}

/// The linear layers of a saved model at this batch.
std::vector<Gemm> gemms_of(const std::string& path, std::int64_t batch) {
  std::vector<Gemm> gemms;
  const auto model = models::load_classifier(path);
  for (const auto& layer : model->quant_layers())
    if (const auto shape = layer->weight_shape(); shape.size() == 2)
      gemms.push_back({layer->weight_bits(), batch, shape[0], shape[1]});
  return gemms;
}

/// The GPU where there is one, else the CPU.
std::string default_device() {
#if BIE_WITH_CUDA
  const kernels::cuda::Gpu* gpu = nullptr;
  if (kernels::cuda::gpu(0, &gpu) == kernels::Status::ok) return "cuda";
#endif
  return "cpu";
}

}  // namespace

void add_tune(CLI::App& app, const Global& global) {
  struct Arguments {
    std::string device, model;
    std::vector<std::string> gemms;
    std::int64_t batch = 64;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("tune", "Time the GEMM kernels and remember the fastest");
  command->add_option("--device", arguments->device,
                      "cpu, cuda or cuda:N (default: the GPU if there is one, else cpu)");
  command->add_option("--gemm", arguments->gemms, "BITS,M,N,K: M rows, N outputs, K inputs; may be repeated");
  takes_file(command->add_option("--model", arguments->model, "the linear layers of a model written by bie train"));
  const CLI::Option* batch = command->add_option("--batch", arguments->batch, "rows for --model")
                                 ->check(CLI::PositiveNumber)
                                 ->capture_default_str();
  command->footer(
      "Choices go to gemm_tuning.tsv in $BIE_CACHE_DIR, else $XDG_CACHE_HOME/bie, else ~/.cache/bie.\n"
      "A GPU's are for M up to the same power of two; a CPU's for weights of that N and K at every M.\n"
      "Examples:\n  bie tune --gemm 8,64,4096,4096 --gemm 1,1,4096,4096\n"
      "  bie tune --model mnist4.safetensors --batch 64");
  command->callback([arguments, batch, &global] {
    if (batch->count() > 0 && arguments->model.empty())
      throw CLI::ValidationError("--batch", "is for --model, each --gemm has rows of its own");
    std::vector<Gemm> gemms;
    for (const std::string& text : arguments->gemms) gemms.push_back(gemm_of(text));
    if (!arguments->model.empty())
      for (const Gemm& gemm : gemms_of(arguments->model, arguments->batch)) gemms.push_back(gemm);
    TORCH_CHECK_VALUE(!gemms.empty(), "expected --gemm or a --model with quantised linear layers, got nothing to tune");
    const at::Device device = train::device_of(arguments->device.empty() ? default_device() : arguments->device);
    Json choices = Json::array();
    for (const Gemm& g : gemms) {
      const std::string kernel = ops::tune_gemm(g.bits, g.m, g.n, g.k, device);
      choices.push_back({{"bits", g.bits}, {"m", g.m}, {"n", g.n}, {"k", g.k}, {"kernel", kernel}});
      if (!global.json)
        std::printf("%lld bit, m %lld, n %lld, k %lld: %s\n", static_cast<long long>(g.bits),
                    static_cast<long long>(g.m), static_cast<long long>(g.n), static_cast<long long>(g.k),
                    kernel.c_str());
    }
    if (global.json) print_json("tune", {{"device", device.str()}, {"choices", choices}});
  });
}

}  // namespace bie::cli
