// Functions whose bits no C library decides: every operation is one of IEEE 754 and rounded once, so that all machines
// agree. Source: docs/spec/language-models.md#functions.
#pragma once

namespace bie::kernels {

/// e^x in float32, within 1 ulp: NaN for NaN, 0 below -87.33, infinity above 88.72; 1 for 0.
float exact_exp(float x);

/// tanh(x) in float32, within 3.3 ulps and at most 1 in size: NaN for NaN, 0 for 0, with its sign.
float exact_tanh(float x);

/// In double, within a few ulps, which float32 does not see. x finite: |x| < 700; x > 0; |x| < 2^31.
double exact_exp(double x);
double exact_log(double x);
double exact_sin(double x);
double exact_cos(double x);

}  // namespace bie::kernels
