// The operators of the engine as differentiable functions on tensors. The same operators are torch.ops.bie.* in Python.
//
// Notation: m rows of activations (any leading shape), k input features, n output features; xs = float(x) + bias_a;
// S = fl(scale_a * scale_w). Sums are exact int32; y = fl(float(acc) * S), then one conversion to x's dtype
// (float32 where x is already packed or quantised). Activations are float32, bfloat16 or float16.
// scale_a and scale_w hold one floating-point element. Every refusal is a c10::Error with one sentence
// (ValueError or TypeError in Python) that names the tensor, its shape and the shape wanted.
//
// A scale_a of 0 is not initialised (init_scale_). It stays 0 while every x is all zeros or empty (a dead ReLU); a
// backward pass then takes an xs of 0 as inside its range and all else as outside, so that grad_x and grad_bias_a pass
// (but for the factor scale_a of GradMode::reference) and the gradients of the weight and of scale_a are 0. With any
// other x it is a ValueError.
//
// Integer weights never require grad. To train one, pass an `anchor`: an empty float tensor that requires grad. The
// backward pass then writes weight.grad itself: int8 by the rule of int8_grad, saturating when it accumulates, or the
// unquantised float sum where weight.grad_dtype is a float type. Double backward is refused.
//
// On CUDA an operator queues its work on the current stream, reads nothing back and can be captured in a graph. Where
// the CPU refuses the value of an element, CUDA returns NaN: a layer's output, the scale of a quantiser (its codes then
// mean nothing) and all of amax_quantize. Means may differ from the CPU's in the last bit of a float32; for equal
// scales all integers are equal. Steps of DiodeMix leave out an integer weight whose float gradient is not finite. All
// tensors are on one device; a scale that is only read may be a 0-dimensional tensor on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#define BIE_API __attribute__((visibility("default")))

namespace bie::ops {

/// How q8 and q4 layers differentiate their activation quantiser.
enum class GradMode {
  exact,      ///< learned step size quantization (Esser et al. 2020)
  reference,  ///< what BITorch Engine 0.2.6 computes
};

struct BinaryLinearOptions {
  std::optional<std::int64_t> in_features;  ///< k, where neither x nor the weight tells it (both packed); else checked
  at::Tensor anchor;                        ///< see above
  at::Tensor panels;           ///< from binary_prepack(weight); read in place of a packed weight that is as it was then
  std::int64_t kernel_id = 0;  ///< see select_binary_kernel; ignored with panels, which bring their kernel
};

/// y = S * (k - 2 * popcount(bit(xs) XOR bit(w))), bit(v) = v >= 0.
/// @param x        [..., k] float, or packed signs [..., ceil(k/8)] uint8 of xs (bias_a is then ignored).
/// @param weight   [n, k] float or int8, or packed signs [n, ceil(k/8)] uint8.
/// @param bias_a   [k] float, or undefined.
/// @return [..., n]
/// Backward: grad_xs = (g . sgn(w)) * scale_w inside |xs / scale_a| <= 1, else 0; grad_w = g^T . (sgn(xs) * scale_a);
/// grad_scale_a = sum(grad_xs * sgn(xs)) / sqrt(numel(xs)).
/// Source: BITorch Engine 0.2.6 `BinaryLinearForward`.
BIE_API at::Tensor binary_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                                 const at::Tensor& scale_w, const at::Tensor& bias_a = {},
                                 const BinaryLinearOptions& options = {});

/// tune_gemm(1, m, n, k, device) on this machine's CPU or the device given.
/// @return the row as a number, as BITorch Engine's API names kernels.
/// Ids in general: 0 ... 99 = automatic (BITorch Engine's 0 ... 9 mean nothing here), 100 + i = row i of this build's
/// CPU table, 200 + i of its CUDA table. An id that names no kernel for a shape and machine is automatic, with one
/// warning. Never store an id: the next build may order its rows otherwise.
BIE_API std::int64_t select_binary_kernel(std::int64_t m, std::int64_t n, std::int64_t k,
                                          std::optional<at::Device> device = std::nullopt);

/// Times the rows of a GEMM (bits 1, 4 or 8) for this shape, in about 0.1 s, and remembers the fastest, in this process
/// and for the next: the file gemm_tuning.tsv in $BIE_CACHE_DIR, else $XDG_CACHE_HOME/bie, else ~/.cache/bie. Without
/// it kernels are chosen by shape and instruction set. On a GPU the choice is for every m up to the same power of two
/// on such a GPU and driver; on a CPU, where each kernel arranges the weight its own way, for weights of this n and k
/// at every m, with the instruction sets that are allowed now, timed on zeros and on a cut of a large shape.
/// @return the kernel's name, "s8xs8_gemm_avx512". On CUDA the call waits for the device: never inside a CUDA graph's
/// capture.
BIE_API std::string tune_gemm(std::int64_t bits, std::int64_t m, std::int64_t n, std::int64_t k, at::Device device);

struct QLinearOptions {
  std::optional<std::int64_t> in_features;  ///< as in BinaryLinearOptions
  double eps = 1e-5;                        ///< smallest step size
  GradMode grad_mode = GradMode::exact;
  at::Tensor anchor;
  at::Tensor
      panels;  ///< from the prepack operator; read in place of an int8 weight that is as it was then and has no anchor
};

/// y = (q8(xs, scale_a) . q_w^T) * S, q8(v, s) = clamp(rint(v / max(s, eps)), -128, 127).
/// @param x        [..., k] float, or int8 codes used as they are.
/// @param weight   [n, k] float, quantised in this call with scale_w; or int8 codes.
/// @param scale_w  undefined with a float weight: 2 * mean|w| / 11.269; required with codes.
/// Backward (exact): v = xs / scale_a, up = g . (q_w * scale_w); grad_xs = up inside -128 <= v <= 127, else 0;
/// grad_scale_a = sum(term(v) * up) / sqrt(numel(xs) * 127), term = the bound outside, rint(v) - v inside;
/// grad_w = g^T . (q_a * scale_a), zero where a float weight's quantiser clips; of codes it is the gradient of
/// w = q * scale_w.
BIE_API at::Tensor q8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                             const at::Tensor& scale_w, const at::Tensor& bias_a = {},
                             const QLinearOptions& options = {});

/// Like q8_linear with codes in [-8, 7] and 5.6345 for 11.269.
/// @param x        [..., k] float, or packed codes [..., ceil(k/2)] int8.
/// @param weight   [n, k] float, or int8: packed codes [n, ceil(k/2)], or plain codes [n, k], one per byte. An anchored
///                 weight is plain; without an anchor it is packed where that form fits (at k = 1 both do).
BIE_API at::Tensor q4_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                             const at::Tensor& scale_w, const at::Tensor& bias_a = {},
                             const QLinearOptions& options = {});

struct BinaryConv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;                                 ///< divides in_c and out_c
  std::int64_t padding_value = -1;                         ///< what lies outside the image: -1, or 0 for nothing
  std::optional<std::array<std::int64_t, 2>> kernel_size;  ///< needed for a flat packed weight; else checked
  at::Tensor anchor;
  at::Tensor panels;  ///< from binary_conv2d_prepack(weight); read in place of a packed weight that is as it was then
};

/// Cross-correlation of signs, y = S * sum of bit(xs) and bit(w) as +1 and -1, bit(v) = v >= 0; groups as torch's.
/// @param x        [batch, in_c, h, w] float (contiguous or channels_last, neither is copied).
/// @param weight   [out_c, in_c/groups, kh, kw] float or int8, or packed signs uint8: rows in the order [in][kh][kw],
///                 labelled [out_c, kh, kw, in_c/groups/8] or flat [out_c, ceil(in_c/groups*kh*kw/8)] (then kernel_size
///                 is needed).
/// @param bias_a   [in_c] or undefined; it is not added to the padding.
/// @return [batch, out_c, h', w'] in x's memory format. Backward: grad_xs = conv2d_input(sgn(w), g) * scale_w inside
/// |xs / scale_a| <= 1, else 0; grad_w = conv2d_weight(sgn(xs), g) * scale_a with the padding of the forward pass;
/// grad_scale_a as binary_linear. Source: BITorch Engine 0.2.6 `BinaryConv2dForward` (which returns no convolution;
/// this is the true one).
BIE_API at::Tensor binary_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                                 const at::Tensor& scale_w, const at::Tensor& bias_a = {},
                                 const BinaryConv2dOptions& options = {});

struct QConv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;                                 ///< divides in_c and out_c
  std::optional<std::array<std::int64_t, 2>> kernel_size;  ///< needed for a flat packed weight; else checked
  double eps = 1e-5;
  GradMode grad_mode = GradMode::exact;
  at::Tensor anchor;
  at::Tensor panels;
};

/// Cross-correlation of the quantised values with zero padding; scales and gradients as q8_linear, groups as torch's.
/// @param x        [batch, in_c, h, w] float (contiguous or channels_last, neither is copied), or int8 codes.
/// @param weight   [out_c, in_c/groups, kh, kw] float or int8 codes.
/// @param bias_a   [in_c] or undefined; padding is the code 0, bias_a is not added there.
/// @return [batch, out_c, h', w'] in x's memory format.
BIE_API at::Tensor q8_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                             const at::Tensor& scale_w, const at::Tensor& bias_a = {},
                             const QConv2dOptions& options = {});

/// Like q8_conv2d with 4-bit codes.
/// @param weight   [out_c, in_c/groups, kh, kw] float, or int8: packed rows in the order [in][kh][kw], labelled
///                 [out_c, kh, kw, in_c/groups/2] or flat [out_c, ceil(in_c/groups*kh*kw/2)] (then kernel_size is
///                 needed), or plain codes of the float's shape, one per byte. An anchored weight is plain; without an
///                 anchor it is packed where that form fits. With kernel_size only one form fits; pass it.
BIE_API at::Tensor q4_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                             const at::Tensor& scale_w, const at::Tensor& bias_a = {},
                             const QConv2dOptions& options = {});

/// out[..., i, j] = fl(x_clip * y_clip) * (k - 2 * popcount(bit(x[..., i, :]) XOR bit(y[..., j, :]))): the product of
/// two activations, neither of which is prepared beforehand.
/// @param x        [..., m, k] float; batch axes broadcast against those of y as torch.matmul's do.
/// @param y        [..., n, k] of x's dtype.
/// @param x_clip   one element, the scale of x: learned, init_scale_(x_clip, x, 2); y_clip likewise. 0 as scale_a.
/// @return [..., m, n] in x's dtype. @throws x or y of fewer than three axes, or with k = 0.
/// On CUDA NaN in x or y makes the products that read them NaN.
/// Backward, for each side v with the other side u: grad_v = (g . sgn(u)) * u_clip inside |v / v_clip| <= 1, else 0;
/// grad_v_clip = sum(grad_v * sgn(v)) / sqrt(numel(v)).
/// Source: BITorch Engine 0.2.6 `BinaryMatMul` (which counts padding and scales twice; this is exact).
BIE_API at::Tensor binary_matmul(const at::Tensor& x, const at::Tensor& y, const at::Tensor& x_clip,
                                 const at::Tensor& y_clip);

struct QMatMulOptions {
  double eps = 1e-5;  ///< smallest step size
  GradMode grad_mode = GradMode::exact;
};

/// out = (q8(x, x_clip) . q8(y, y_clip)^T) * fl(x_clip * y_clip); shapes as binary_matmul, q8 and the gradients of each
/// side as those of x in q8_linear, the other side being the weight.
BIE_API at::Tensor q8_matmul(const at::Tensor& x, const at::Tensor& y, const at::Tensor& x_clip,
                             const at::Tensor& y_clip, const QMatMulOptions& options = {});

/// Like q8_matmul with codes in [-8, 7]. Source: BITorch Engine 0.2.6 `Q4MatMul` (which takes y_clip from x, clips the
/// gradient at 8 bits and quantises it).
BIE_API at::Tensor q4_matmul(const at::Tensor& x, const at::Tensor& y, const at::Tensor& x_clip,
                             const at::Tensor& y_clip, const QMatMulOptions& options = {});

/// The arrangement of a weight that the fastest kernel of this machine reads: derived, never stored. A packed weight
/// ([n, ceil(k/8)] uint8, [n, k] int8, [n, ceil(k/2)] int8) goes in, an opaque 1-d uint8 tensor comes out.
BIE_API at::Tensor binary_prepack(const at::Tensor& weight, std::int64_t in_features, std::int64_t kernel_id = 0);
BIE_API at::Tensor q8_prepack(const at::Tensor& weight);
BIE_API at::Tensor q4_prepack(const at::Tensor& weight, std::int64_t in_features);
BIE_API at::Tensor binary_conv2d_prepack(const at::Tensor& weight, std::int64_t in_channels,
                                         std::array<std::int64_t, 2> kernel_size, std::int64_t groups = 1,
                                         std::int64_t padding_value = -1);
BIE_API at::Tensor q8_conv2d_prepack(const at::Tensor& weight, std::int64_t groups = 1);
BIE_API at::Tensor q4_conv2d_prepack(const at::Tensor& weight, std::int64_t in_channels,
                                     std::array<std::int64_t, 2> kernel_size, std::int64_t groups = 1);

/// Signs of [..., k] float or int8 (after adding bias [k] to a float) as [..., ceil(k/8)] uint8; NaN packs as 0.
BIE_API at::Tensor pack_signs(const at::Tensor& x, const at::Tensor& bias = {});
/// [..., ceil(k/8)] uint8 to [..., k] int8 of +1 and -1.
BIE_API at::Tensor unpack_signs(const at::Tensor& packed, std::int64_t k);
/// [..., k] int8 codes in [-8, 7] to [..., ceil(k/2)] int8, even elements in the high nibble.
BIE_API at::Tensor pack_int4(const at::Tensor& codes);
BIE_API at::Tensor unpack_int4(const at::Tensor& packed, std::int64_t k);

/// Packed signs [n, k/8] uint8 from the bytes of a binary weight in a checkpoint of BITorch Engine.
/// @param bytes   flat uint8.
/// @param layout  "btc": `BinaryLinearCuda`, [n/8][k/128][8][16], most significant bit first; n % 8 = 0, k % 128 = 0.
///                "bstc": `BinaryLinearCuda` otherwise, [k/32][n rounded up to 32][4], most significant bit first;
///                k % 32 = 0. Where n % 32 != 0 BITorch Engine saved k*n/8 bytes of it, which is an error that says so.
///                "columns": `BinaryLinearCPP`, [k/8][n], least significant bit first; k % 8 = 0.
BIE_API at::Tensor signs_from_layout(const at::Tensor& bytes, std::int64_t n, std::int64_t k, std::string_view layout);
/// The inverse of signs_from_layout; rows that a layout adds are zeros.
BIE_API at::Tensor signs_to_layout(const at::Tensor& packed, std::int64_t k, std::string_view layout);

/// (q, scale): s = max(scale, eps), q = clamp(rint(x / s), -128, 127) int8; scale = 2 * mean|x| / 11.269 if not given.
BIE_API std::tuple<at::Tensor, at::Tensor> q8_quantize(const at::Tensor& x, const at::Tensor& scale = {},
                                                       double eps = 1e-5);
/// Like q8_quantize with 5.6345 and [-8, 7]; codes are not packed.
BIE_API std::tuple<at::Tensor, at::Tensor> q4_quantize(const at::Tensor& x, const at::Tensor& scale = {},
                                                       double eps = 1e-5);
/// (q, scale): bound = 2^(num_bits - 1 + is_unsigned) - 1, scale = bound / amax, q = clamp(rint(x * scale), lo, bound)
/// in x's dtype; amax = max(x) if not given (the signed maximum). Source: BITorch Engine `nv_tensor_quant`.
BIE_API std::tuple<at::Tensor, at::Tensor> amax_quantize(const at::Tensor& x, const at::Tensor& amax = {},
                                                         std::int64_t num_bits = 8, bool is_unsigned = false,
                                                         bool narrow_range = true);
/// The integer gradient of a weight: amax_quantize with amax = max(g) if positive, else max|g|; zeros for all-zero g
/// and where any element is NaN or infinite.
BIE_API at::Tensor int8_grad(const at::Tensor& g);
/// (q, scale_w) of a binary weight for training: scale_w = mean|w|; q = int8 of w - mean(w), never 0.
BIE_API std::tuple<at::Tensor, at::Tensor> binary_init(const at::Tensor& weight);
/// Where scale_a is 0: scale_a = c * mean|x|, in place and without grad.
BIE_API void init_scale_(const at::Tensor& scale_a, const at::Tensor& x, double c);

/// The statistics [channels] of a BatchNorm in evaluation and, where it learns any, its numbers; undefined mean and
/// var: there is none. float32.
struct NormNumbers {
  at::Tensor mean, var, weight, bias;
  double eps = 1e-5;
};

/// v where v >= 0; below none: v, relu: 0, prelu: slope * v, one slope for all channels.
struct TailActivation {
  enum Kind { none, relu, prelu };
  Kind kind = none;
  at::Tensor slope;  ///< of prelu, one float32
};

/// Evaluation epilogue of a product, in one pass over its results: y = pool(act(x * a + b + shortcut)) with a = weight
/// / sqrt(var + eps) and b = bias - mean * a, as torch computes it in float32. No derivative.
/// @param x         [rows, channels] or [images, channels, height, width] float32, in either memory format.
/// @param shortcut  like x, or undefined.
/// @param pool      keep the maximum of each pool x pool square, leaving out the rest at the edges; 1: no pooling.
/// @return          [rows, channels] or [images, channels, height / pool, width / pool] in x's memory format.
/// On CUDA torch's operators compute it one after the other.
BIE_API at::Tensor block_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut = {},
                              const TailActivation& act = {}, std::int64_t pool = 1);
/// Whether that is one pass as things are: everything dense float32 on a device that has such a pass
/// (the CPU), with no gradient wanted.
BIE_API bool has_block_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                            const TailActivation& act);

/// Training epilogue of a product: y = pool(act((x - mean) / sqrt(var + eps) * weight + bias + shortcut)) with the
/// batch's own mean and var of each channel, computed in float32 and rounded once. Like torch's BatchNorm, activation
/// and max_pool2d, except that a pool takes its maximum before rounding. Differentiable with respect to x, weight,
/// bias, shortcut and slope.
/// @param x         [rows, channels] or [images, channels, height, width]: float32, bfloat16 or float16; more than one
///                  element per channel.
/// @param norm      mean and var: the running statistics, which `momentum` updates, or undefined.
/// @param shortcut  like x, or undefined.
/// @return          [rows, channels] or [images, channels, height / pool, width / pool] like x, in its memory format.
BIE_API at::Tensor training_tail(const at::Tensor& x, const NormNumbers& norm, double momentum,
                                 const at::Tensor& shortcut = {}, const TailActivation& act = {},
                                 std::int64_t pool = 1);
/// Whether that is a few passes of kernels instead of torch's operators one after the other: on CUDA, dense rows or
/// channels_last, channels a multiple of 4, a pool of 1 or 2.
BIE_API bool has_training_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                               const TailActivation& act, std::int64_t pool);

/// The numbers of one step of DiodeMix on one parameter.
struct DiodeMixStep {
  std::int64_t step = 1;  ///< of this parameter, from 1
  double lr = 1e-4, beta1 = 0.99, beta2 = 0.9999, eps = 1e-6, weight_decay = 0;
  bool correct_bias = true;
  /// Random numbers are a function of seed, stream (the parameter's number), step and element.
  std::int64_t seed = 0, stream = 0;
};

/// One step of DiodeMix in place, in one pass over the parameter, its gradient and its moments; optim/diode_mix.h has
/// the formulas. All are dense, of one shape and one order of memory (the gradient may have another). Moments are
/// float32 or bfloat16, rounded stochastically; the gradient of codes and signs is int8 or float.
/// @param param  float32 | bfloat16 | float16.
BIE_API void diode_mix_float_(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                              const at::Tensor& exp_avg_s, const DiodeMixStep& step);
/// @param codes        int8 of 8 or 4 `bits`; the weight is codes * scale_w.
/// @param renew_scale  gives scale_w the value that weights of this mean would start with, and rescales the codes.
BIE_API void diode_mix_codes_(const at::Tensor& codes, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                              const at::Tensor& exp_avg_s, const at::Tensor& scale_w, std::int64_t bits,
                              bool renew_scale, const DiodeMixStep& step);
/// @param signs  int8; eps, weight_decay and correct_bias have no meaning here.
BIE_API void diode_mix_signs_(const at::Tensor& signs, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                              const at::Tensor& exp_avg_s, const DiodeMixStep& step);

/// One parameter in a list of them.
struct DiodeMixItem {
  at::Tensor param, grad, exp_avg_l, exp_avg_s;
  std::int64_t step = 1, stream = 0;
  at::Tensor scale_w = {};  ///< these three of codes alone
  std::int64_t bits = 8;
  bool renew_scale = false;
};

/// These step many parameters on one device, none of them twice, with the results of single calls; on CUDA up to 40 in
/// one launch. The numbers' own step and stream have no meaning. Nothing is changed where one of them is refused for
/// its shape or dtype.
BIE_API void diode_mix_float_many_(const std::vector<DiodeMixItem>& items, const DiodeMixStep& numbers);
BIE_API void diode_mix_codes_many_(const std::vector<DiodeMixItem>& items, const DiodeMixStep& numbers);
BIE_API void diode_mix_signs_many_(const std::vector<DiodeMixItem>& items, const DiodeMixStep& numbers);

/// Initial exp_avg_s of signs: -sgn(w) * U(0, 1) * 1e-3. All other moments start as zeros.
BIE_API at::Tensor diode_mix_first_moment(const at::Tensor& signs, at::ScalarType dtype, std::int64_t seed,
                                          std::int64_t stream);

}  // namespace bie::ops

#include "bie/ops/weight_only.h"  // the same for weights of packed codes
