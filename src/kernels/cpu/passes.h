// Plain loops over elements, as the drivers beside this file call them. Each source of passes/ is compiled twice, for
// any CPU of the architecture (plain) and for AVX2 (avx2): the compiler makes the vectors, and nothing is fused, so
// both give the same bits. Nothing here is inline code, so no function compiled with AVX flags can be merged with a
// plain one.
#pragma once

#include <cstdint>

#include "bie/kernels/amax_codes.h"
#include "bie/kernels/block_tail.h"
#include "bie/kernels/diode_mix.h"
#include "bie/kernels/dtype.h"
#include "bie/kernels/planes.h"
#include "bie/kernels/weight_format.h"
#include "kernels/arithmetic/amax_factor.h"
#include "kernels/arithmetic/estimator.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu {

/// Elements whose sum is one term of a mean.
inline constexpr std::int64_t mean_block = 4096;

/// Sums of elements [first, first + count), of each block one; `first` begins a block.
struct MeanPasses {
  void (*magnitudes)(const void* x, Dtype dtype, std::int64_t first, std::int64_t count, double* sums);
  void (*elements)(const void* x, Dtype dtype, std::int64_t first, std::int64_t count, double* sums);
};

struct GradientPasses {
  void (*quantized_values)(const float* x, std::int64_t count, float step, float lo, float hi, float by, float* out);
  void (*code_values)(const std::int8_t* codes, std::int64_t count, float by, float* out);
  void (*mask_outside)(float* grad, const float* w, std::int64_t count, float low, float high);
  void (*sign_values)(const void* t, Dtype dtype, std::int64_t first, std::int64_t count, float by, float* out);
  void (*sign_codes)(const std::int8_t* t, std::int64_t count, std::int8_t* out);
  void (*accumulate)(std::int8_t* sum, const std::int8_t* grad, std::int64_t count);
};

/// `up` becomes the gradient; `terms` are the terms of the scale's gradient.
struct InputGradPasses {
  void (*sign)(const float* xs, float* up, float* terms, std::int64_t count, float gain, float bound);
  void (*quantizer)(const float* xs, float* up, float* terms, std::int64_t count, float gain,
                    const QuantizerEstimator& estimator);
};

/// Passes over the elements [first, first + count) of arrays of a float dtype.
struct AmaxCodesPasses {
  Extremes (*extremes)(const void* x, Dtype dtype, std::int64_t first, std::int64_t count, float gain);
  void (*amax_quantize)(const void* x, Dtype dtype, std::int64_t first, std::int64_t count, const AmaxFactor& factor,
                        float lo, float hi, void* q);
  void (*int8_grad)(const void* g, Dtype dtype, std::int64_t first, std::int64_t count, float gain,
                    const AmaxFactor& factor, std::int8_t* q);
  void (*binary_init)(const void* w, Dtype dtype, std::int64_t first, std::int64_t count, float centre,
                      const AmaxFactor& factor, std::int8_t* q);
};

/// Passes over the elements [first, first + count) of a parameter.
struct DiodeMixPasses {
  void (*floats)(const DiodeMixTensor&, std::int64_t first, std::int64_t count, Dtype param, Dtype moments,
                 const AdamNumbers&);
  void (*codes)(const DiodeMixTensor&, std::int64_t first, std::int64_t count, float scale, float next, Dtype grad,
                Dtype moments, const AdamNumbers&);
  void (*signs)(const DiodeMixTensor&, std::int64_t first, std::int64_t count, Dtype grad, Dtype moments,
                const SignNumbers&);
  std::int64_t (*magnitudes)(const std::int8_t* codes, std::int64_t count);
  void (*first_moment)(const std::int8_t* signs, std::int64_t first, std::int64_t count, std::uint64_t random,
                       void* moment, Dtype dtype);
};

/// v where v >= 0, else v * slope, or 0 where it cuts.
struct Bend {
  float slope;
  bool cuts;
};

/// y = act(x * scale + shift + add); `add` may be null.
struct BlockTailPasses {
  /// One scale and shift for all elements.
  void (*channel)(const float* x, float scale, float shift, const float* add, Bend act, std::int64_t count, float* y);
  /// One for each.
  void (*row)(const float* x, const float* scale, const float* shift, const float* add, Bend act, std::int64_t count,
              float* y);
  /// Writes the larger one of each pair to y; NaN if either is NaN.
  void (*keep_larger)(const float* x, std::int64_t count, float* y);
  /// y [rows, count] is the largest of each pool x pool square of x [rows * pool, width], which is written over: first
  /// of a column, then of neighbours; NaN where any is.
  void (*pool_rows)(float* x, std::int64_t pool, std::int64_t width, std::int64_t rows, std::int64_t count, float* y);
};

/// The codes and signs of a tail, and those of thresholds.
struct CodeTailPasses {
  /// clamp(rint((v + bias) / step), lo, hi); false where v + bias is not finite. `biases` of one each in place of
  /// `bias`, or null.
  bool (*codes)(const float* v, float bias, const float* biases, float step, float lo, float hi, std::int64_t count,
                std::int8_t* y);
  bool (*signs)(const float* v, float bias, const float* biases, std::int64_t count, std::int8_t* y);
  /// (acc >= t) != flip as 1 and -1; one t and flip for all, or one for each.
  void (*plane_signs)(const std::int32_t* acc, std::int32_t t, bool flip, std::int64_t count, std::int8_t* y);
  void (*row_signs)(const std::int32_t* acc, const std::int32_t* t, const std::uint8_t* flip, std::int64_t count,
                    std::int8_t* y);
  /// Writes the larger one of each pair to y.
  void (*keep_larger)(const std::int8_t* x, std::int64_t count, std::int8_t* y);
  /// y[i] is the larger one of each pair of neighbours.
  void (*pool_pairs)(const std::int8_t* x, std::int64_t count, std::int8_t* y);
  /// y[i] = max(x[i], y[i]) of floats: replaced only where x > y.
  void (*keep_above)(const float* x, std::int64_t count, float* y);
  /// Like Tile::tail.
  bool (*tail_rows)(const TailArgs& args);
};

/// Outputs of a convolution of floats whose windows begin side by side: lane j is that of element `from` + j. Those
/// whose bit is set are written one behind the other from element `to` of their plane on.
struct FloatBlock {
  std::int64_t from, to;
  std::uint32_t lanes;
};

/// Convolutions of floats: up to `most` rows of `a`, with one fused multiply-add a term.
struct FloatConvPasses {
  int most;  ///< at most 12
  /// y[r * y_stride + to of lane j] = sum over i of a[r * k + i] * from[offsets[i] + block.from + j], + bias[r] where
  /// bias is not null. All 16 elements of a block are read.
  void (*windows)(const float* a, int rows, const float* bias, const float* from, const std::int64_t* offsets,
                  std::int64_t k, const FloatBlock* blocks, std::int64_t count, float* y, std::int64_t y_stride);
  /// y[p * y_stride + j] = sum over i of from[offsets[i] + p] * panel[i][j], p < pixels. Up to three pixels more are
  /// read, and their results may be written.
  void (*pixels)(const float* from, const std::int64_t* offsets, std::int64_t pixels, const float* panel,
                 std::int64_t k, float* y, std::int64_t y_stride);
};

/// Passes before and after a tile of weight-only products.
struct WeightOnlyPasses {
  /// x as float32, times factor where that is not null.
  void (*floats)(const void* x, Dtype dtype, const float* factor, std::int64_t count, float* to);
  /// Sum of x: 16 partial sums (element i goes to i % 16), which are then added in halves.
  float (*sum)(const float* x, std::int64_t count);
  /// y + bias (null: y), rounded.
  void (*results)(const float* y, const float* bias, std::int64_t count, void* to, Dtype dtype);
};

/// Scales and zeros of a group, as floats; `zero` is not null.
struct GroupNumbers {
  const float *scale, *zero;
  float middle;
};

/// Passes over `count` outputs of one packed row. Their codes begin at `bit` of the words `low` and may continue in
/// `high` (else null). `first` is the index in W of the first output's element.
struct WeightValuesPasses {
  void (*codes)(const std::uint32_t* low, const std::uint32_t* high, int bit, int bits, std::int64_t count,
                std::int32_t* codes);
  void (*put)(const std::int32_t* codes, int bit, int bits, std::int64_t count, std::uint32_t* low,
              std::uint32_t* high);
  void (*values)(const std::int32_t* codes, Offset offset, const GroupNumbers& n, std::int64_t count, float* w);
  void (*positions)(const float* w, Offset offset, const GroupNumbers& n, std::int64_t count, float* v);
  void (*nearest)(const float* v, float top, std::int64_t count, std::int32_t* codes);
  void (*at_random)(const float* v, float lowest, float top, std::uint64_t random, std::int64_t first,
                    std::int64_t count, std::int32_t* codes);
  /// u, from the gradient and the moments, which move; from the gradient alone where l is null.
  void (*directions)(const void* grad, Dtype grad_dtype, void* l, void* s, Dtype moments, const AdamNumbers& numbers,
                     std::uint64_t random, std::int64_t first, std::int64_t count, float* u);
  void (*move)(float* w, const float* u, const std::uint16_t* rest, const AdamNumbers& numbers, float rate,
               std::int64_t count);
  void (*keep_rest)(const float* w, const float* coded, std::uint64_t random, std::int64_t first, std::int64_t count,
                    std::uint16_t* rest);
  void (*add)(const float* x, std::int64_t count, float* sum);
};

/// Passes of a step of codes (bie/kernels/code_step.h) over `count` outputs of one row, at most moment_block. `first`
/// is the index in W of the first one's element.
struct CodeStepPasses {
  void (*open_moments)(const std::int8_t* l8, const std::uint8_t* m8, float largest_l, float largest_m,
                       std::int64_t count, float* l, float* m);
  /// g becomes the gradient, and 0 where that is not finite.
  void (*move_moments)(const void* grad, Dtype grad_dtype, const AdamNumbers& numbers, std::int64_t first,
                       std::int64_t count, float* g, float* l, float* m);
  float (*largest)(const float* x, std::int64_t count);
  void (*keep_moments)(const float* l, const float* m, float largest_l, float largest_m, std::uint64_t random,
                       std::int64_t first, std::int64_t count, std::int8_t* l8, std::uint8_t* m8);
  /// sums += g (q - zero).
  void (*sum_scales)(const float* g, const std::int32_t* codes, const float* zero, std::int64_t count, float* sums);
  void (*move)(const float* l, const float* m, const AdamNumbers& numbers, float rate, const float* scale,
               const float* zero, int last, std::uint64_t random, std::int64_t first, std::int64_t count,
               std::int32_t* codes, std::int8_t* rest);
};

/// Passes over one row of signs, packed bits or bytes; `first` is the index in y, or in the moment, of the row's first
/// sign.
struct EmbeddingPasses {
  void (*lookup)(const std::uint8_t* row, bool is_packed, float scale, std::int64_t dim, void* y, Dtype dtype,
                 std::int64_t first);
  void (*step)(std::uint8_t* row, bool is_packed, const float* votes, std::int64_t dim, void* moment, Dtype dtype,
               std::int64_t first, float lr, float d2, std::uint64_t random);
};

/// Loops over planes of floats, as planes.h states them.
struct PlanePasses {
  void (*clip)(const float* x, std::int64_t count, float lo, float hi, float* y);
  /// `lo` and `hi` are distances from the zero.
  void (*round_to_steps)(const float* x, std::int64_t count, float step, float lo, float hi, float* y);
  void (*bend)(const float* x, std::int64_t count, float slope, float* y);
  void (*scale)(const float* x, std::int64_t count, float by, float* y);
  void (*multiply)(const float* x, const float* by, std::int64_t count, float* y);
  void (*choose)(Comparison comparison, float limit, const float* x, const float* yes, const float* no,
                 std::int64_t count, float* y);
};

/// As defined in sigmoid.h; y may be x.
struct SigmoidPasses {
  void (*sigmoid)(const float* x, std::int64_t count, float* y);
  void (*silu)(const float* x, std::int64_t count, float* y);
};

#define BIE_PASSES(set)                                 \
  namespace set {                                       \
  extern const MeanPasses mean_passes;                  \
  extern const GradientPasses gradient_passes;          \
  extern const InputGradPasses input_grad_passes;       \
  extern const AmaxCodesPasses amax_codes_passes;       \
  extern const DiodeMixPasses diode_mix_passes;         \
  extern const BlockTailPasses block_tail_passes;       \
  extern const CodeTailPasses code_tail_passes;         \
  extern const FloatConvPasses float_conv_passes;       \
  extern const WeightOnlyPasses weight_only_passes;     \
  extern const WeightValuesPasses weight_values_passes; \
  extern const CodeStepPasses code_step_passes;         \
  extern const EmbeddingPasses embedding_passes;        \
  extern const PlanePasses plane_passes;                \
  extern const SigmoidPasses sigmoid_passes;            \
  }
BIE_PASSES(plain)
BIE_PASSES(avx2)
namespace avx512bw {
extern const FloatConvPasses float_conv_passes;
extern const SigmoidPasses sigmoid_passes;
}  // namespace avx512bw
#undef BIE_PASSES

}  // namespace bie::kernels::cpu
