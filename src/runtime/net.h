// A net that is ready to run: its graph, checked, and its weights as the kernels of this CPU want them.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bie/formats/net_file.h"
#include "bie/kernels/code_tail.h"
#include "bie/kernels/float_gemm.h"
#include "bie/kernels/gemm.h"
#include "bie/kernels/sigmoid.h"
#include "bie/kernels/sign_threshold.h"
#include "runtime/plan.h"

namespace bie::runtime {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
/// Bytes at a multiple of 64.
using Memory = std::unique_ptr<char, FreeMemory>;
/// Never null. @throws std::bad_alloc
Memory memory_of(std::int64_t bytes);

/// The kernel of a node, one of these, and its arranged weight.
struct Step {
  const kernels::GemmKernel* gemm = nullptr;
  const kernels::Conv2dKernel* conv2d = nullptr;
  const kernels::FloatGemmKernel* float_gemm = nullptr;
  const kernels::FloatConv2dKernel* float_conv2d = nullptr;
  const kernels::CodeTailKernel* tail = nullptr;
  const kernels::SignThresholdKernel* threshold = nullptr;
  const kernels::SigmoidKernel* sigmoid = nullptr;
  Memory panels = nullptr;

  const char* kernel_name() const;
};

class Net {
 public:
  /// @throws formats::Error, std::bad_alloc; std::runtime_error where BIE_MAX_ISA cannot be.
  explicit Net(formats::NetFile file);

  const formats::NetFile& file() const { return file_; }
  const std::vector<Step>& steps() const { return steps_; }  ///< one a node
  const Plan& plan() const { return plan_; }
  const std::string& summary() const { return summary_; }
  std::int64_t weight_bytes() const { return weight_bytes_; }

 private:
  Step step_of(const formats::NetNode& node);
  void arrange(Step& step, std::size_t bytes);
  void summarise();

  formats::NetFile file_;
  Plan plan_;
  std::vector<Step> steps_;
  std::string summary_;
  std::int64_t weight_bytes_ = 0;
};

}  // namespace bie::runtime
