// A dtype that is known when a kernel runs, as one that its compiler knows. Nothing of it is left of its own: it is
// part of the function that calls it, whatever the instruction set that one is compiled for.
#pragma once

#include "bie/kernels/dtype.h"

namespace bie::kernels::cpu {

template <Dtype dtype>
struct KnownDtype {
  static constexpr Dtype value = dtype;
};

/// of(KnownDtype) of bf16, f16 or `integer`; f32 for any other.
template <Dtype integer, class Of>
[[gnu::always_inline]] inline auto with_dtype(Dtype dtype, const Of& of) {
  switch (dtype) {
    case Dtype::bf16: return of(KnownDtype<Dtype::bf16>());
    case Dtype::f16: return of(KnownDtype<Dtype::f16>());
    case integer: return of(KnownDtype<integer>());
    default: return of(KnownDtype<Dtype::f32>());
  }
}

}  // namespace bie::kernels::cpu
