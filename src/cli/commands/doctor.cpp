// bie doctor: what this machine has, which kernels it chooses, what is missing and how to get it.
#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "bie/kernels/cuda/registry.h"
#include "bie/kernels/registry.h"
#include "bie/train/device.h"
#include "cli/commands/commands.h"
#include "cli/support/build_info.h"
#include "cli/support/cpu_facts.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

struct Gpu {
  std::string description;
  std::vector<Kernel> kernels;
};

struct Gpus {
  std::vector<Gpu> found;
  std::string none;  ///< why there is none
};

Gpus gpus() {
  Gpus gpus;
#if BIE_WITH_CUDA
  namespace cuda = kernels::cuda;
  const cuda::Gpu* gpu = nullptr;
  kernels::Status status = kernels::Status::ok;
  for (int device = 0; (status = cuda::gpu(device, &gpu)) == kernels::Status::ok; ++device) {
    Gpu found{format("%s, sm_%d, %d multiprocessors, driver for CUDA %d.%d", gpu->name, gpu->sm, gpu->multiprocessors,
                     gpu->driver / 1000, gpu->driver % 1000 / 10),
              {}};
    cuda::for_each_table([&](const std::string&, const auto& table) {
      for (const auto& kernel : table)
        found.kernels.push_back(
            {kernel.name, format("sm_%d", kernel.min_sm),
             kernel.min_sm <= gpu->sm && gpu->sm <= kernel.max_sm ? "available" : "not on this GPU"});
    });
    gpus.found.push_back(std::move(found));
  }
  gpus.none = format("none (%s)", kernels::describe(status));
#else
  gpus.none = "this build has no CUDA kernels";
#endif
  return gpus;
}

/// Why torch cannot use a GPU; empty where it can.
std::string torch_fault() {
  try {
    train::device_of("cuda");
    return {};
  } catch (const train::MissingDevice& error) {
    return error.what_without_backtrace();
  }
}

/// Changes that would make this machine do more.
std::vector<std::string> advice(const std::string& fault) {
  std::vector<std::string> sentences;
  if (kernels::host().isas.best() <= kernels::Isa::portable)
    sentences.emplace_back(
        "The reference kernels run, which are slow: a CPU with AVX2 has fast ones, and BIE_MAX_ISA must not rule them "
        "out.");
  if (BIE_WITH_CUDA == 0)
    sentences.emplace_back(
        "For --device cuda: build where a CUDA toolkit of 12.0 or later is installed (nvcc on the PATH).");
  if (!fault.empty())
    sentences.emplace_back(
        "For --device cuda: an NVIDIA driver, and the torch wheel for CUDA (pip install torch from pypi.org has it).");
  return sentences;
}

void doctor_json(const std::vector<Kernel>& cpu, const Gpus& gpus, const std::string& fault) {
  Json found = Json::array();
  for (const Gpu& gpu : gpus.found)
    found.push_back({{"description", gpu.description}, {"kernels", kernels_json(gpu.kernels)}});
  print_json("doctor", {{"program", build_info()},
                        {"threads", at::get_num_threads()},
                        {"instruction_sets", instruction_sets_json()},
                        {"kernels", kernels_json(cpu)},
                        {"gpus", found},
                        {"torch_gpu_fault", fault.empty() ? Json() : Json(fault)},
                        {"advice", advice(fault)}});
}

void doctor_text(const std::vector<Kernel>& cpu, const Gpus& gpus, const std::string& fault) {
  const Json info = build_info();
  const auto text = [&](const char* key) { return info[key].get<std::string>(); };
  std::printf("%s\nprocessor: %s\n", version_text().c_str(), text("cpu").c_str());
  std::printf("%d threads\n", at::get_num_threads());
  print_instruction_sets();
  std::printf("kernels, best first (the first available that takes a shape runs):\n");
  print_kernels(cpu);
  for (std::size_t i = 0; i < gpus.found.size(); ++i) {
    std::printf("GPU %zu: %s\n", i, gpus.found[i].description.c_str());
    print_kernels(gpus.found[i].kernels);
  }
  if (gpus.found.empty()) std::printf("GPU: %s\n", gpus.none.c_str());
  std::printf("torch on a GPU: %s\n", fault.empty() ? "works" : fault.c_str());
  for (const std::string& sentence : advice(fault)) std::printf("%s\n", sentence.c_str());
}

}  // namespace

void add_doctor(CLI::App& app, const Global& global) {
  CLI::App* command = app.add_subcommand("doctor", "What this machine has, which kernels run on it, what is missing");
  command->footer("Examples:\n  bie doctor\n  BIE_MAX_ISA=avx2 bie doctor --json | jq '.kernels[] | .name'");
  command->callback([&global] {
    const std::string fault = torch_fault();
    if (global.json)
      doctor_json(cpu_kernels(), gpus(), fault);
    else
      doctor_text(cpu_kernels(), gpus(), fault);
  });
}

}  // namespace bie::cli
