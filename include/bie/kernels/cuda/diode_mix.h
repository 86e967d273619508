// The steps of DiodeMix on CUDA (docs/spec/optimizer.md): one launch for up to diode_mix_tensors parameters, in the
// CPU's order of operations and with its random numbers, so that float32 results are the CPU's to the bit.
#pragma once

#include <cstdint>

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/cuda/quantize.h"
#include "bie/kernels/diode_mix.h"
#include "bie/kernels/dtype.h"

namespace bie::kernels::cuda {

/// Tensors per launch: as many as fit a kernel's parameters; a longer list takes more launches.
inline constexpr int diode_mix_tensors = 40;

/// One parameter of a step.
struct DiodeMixTensor : kernels::DiodeMixTensor {
  const std::int32_t* left_out;  ///< null, or not 0 where the step is left out (see mark_left_out)
  Scalar scale, next;            ///< codes: the scale that they have, and the one that they get
};

Status diode_mix_floats(const DiodeMixTensor*, int count, Dtype param, Dtype moments, const AdamNumbers&, const Queue&);
Status diode_mix_codes(const DiodeMixTensor*, int count, Dtype grad, Dtype moments, const AdamNumbers&, const Queue&);
Status diode_mix_signs(const DiodeMixTensor*, int count, Dtype grad, Dtype moments, const SignNumbers&, const Queue&);

/// Which steps of integer weights are left out, their gradient not being finite. grad f32: left_out[i], 0 before, is 1
/// where the gradient of tensor i holds NaN or infinity. grad s8: left_out[i], 1 before, is 0 where it holds anything
/// but zeros; int8_grad makes zeros of what is not finite.
Status mark_left_out(const DiodeMixTensor*, int count, Dtype grad, std::int32_t* left_out, const Queue&);

/// *next = the scale that codes of this mean would start with, or the scale they have where that is 0 or where the step
/// is left out.
/// @param workspace  reduction_bytes, from an 8-byte boundary on.
Status renewed_scale(const DiodeMixTensor& codes, double mean_to_step, float* next, void* workspace, const Queue&);

/// moment = -sgn(w) * U(0, 1) * 1e-3.
Status diode_mix_first_moment(const std::int8_t* signs, std::int64_t count, std::uint64_t random, void* moment,
                              Dtype dtype, const Queue&);

}  // namespace bie::kernels::cuda
