#include "cli/support/build_info.h"

#include "bie/kernels/isa.h"
#include "bie/kernels/status.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

/// Why the instruction set is not the best of this CPU; empty where it is.
std::string isa_note() {
  const kernels::Host& host = kernels::host();
  if (host.status != kernels::Status::ok) return kernels::describe(host.status);
  if (host.isas != kernels::isas_of(kernels::detect_cpu()))
    return format("capped to %s by BIE_MAX_ISA", kernels::name(host.isas.best()));
  return {};
}

}  // namespace

Json build_info() {
  return {{"version", BIE_VERSION},
          {"torch", BIE_TORCH_VERSION},
          {"compiler", BIE_COMPILER},
          {"build", BIE_BUILD_TYPE},
          {"cuda", BIE_WITH_CUDA != 0 ? Json(BIE_CUDA_VERSION) : Json()},
          {"cpu", kernels::cpu_name()},
          {"isa", kernels::name(kernels::isas_of(kernels::detect_cpu()).best())},
          {"isa_note", isa_note()}};
}

std::string version_text() {
  const Json info = build_info();
  const auto text = [&](const char* key) { return info[key].get<std::string>(); };
  const std::string note = text("isa_note");
  return format("bie %s (torch %s)\nbuild: %s, %s\nCUDA kernels: %s\nCPU: %s%s%s", text("version").c_str(),
                text("torch").c_str(), text("build").c_str(), text("compiler").c_str(),
                info["cuda"].is_null() ? "none in this build" : ("built with CUDA " + text("cuda")).c_str(),
                text("isa").c_str(), note.empty() ? "" : ", ", note.c_str());
}

}  // namespace bie::cli
