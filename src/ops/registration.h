// Operators are declared once and run on every device: what differs between devices is behind backend/backend.h.
#pragma once

#include <torch/library.h>

#include <utility>

namespace bie::ops {

/// A list of operators with their functions, for the CPU or for CUDA. Where this build has no kernels for it they
/// refuse instead.
class Operators {
 public:
  Operators(torch::Library& library, bool of_cuda);

  template <class Function>
  void impl(const char* name, Function&& function) {
    if (refuses_)
      library_.impl(name, refusal());
    else
      library_.impl(name, std::forward<Function>(function));
  }

 private:
  static torch::CppFunction refusal();

  torch::Library& library_;
  bool refuses_;
};

}  // namespace bie::ops

/// Opens a block that registers operators, m.impl("name", function), for the CPU and for CUDA.
#define BIE_OPERATORS(m)                                       \
  static void bie_operators(bie::ops::Operators& m);           \
  TORCH_LIBRARY_IMPL(bie, CPU, library) {                      \
    bie::ops::Operators operators(library, /*of_cuda=*/false); \
    bie_operators(operators);                                  \
  }                                                            \
  TORCH_LIBRARY_IMPL(bie, CUDA, library) {                     \
    bie::ops::Operators operators(library, /*of_cuda=*/true);  \
    bie_operators(operators);                                  \
  }                                                            \
  static void bie_operators(bie::ops::Operators& m)
