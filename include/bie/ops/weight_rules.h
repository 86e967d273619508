// The rules of a layer's weight of signs (1 bit) or codes (4 and 8 bits) with one scale: how it is scaled, prepared for
// an integer optimizer, packed, and read from a file. The layers of C++ and of Python keep them by these functions,
// which are torch.ops.bie.* in Python; modules, their states and what is derived when belong to each language.
//
// A weight is [n, ...], its rows are flattened, k elements each. Bits are 1, 4 or 8; others are a c10::ValueError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bie/ops.h"

namespace bie::ops {

/// Divisor that turns a float weight into codes: mean|w| (signs), 2 * mean|w| / 11.269 (8 bits), max(2 * mean|w| /
/// 5.6345, eps) (4 bits). 0-dim float32.
/// Source: BITorch Engine 0.2.6 `init_weight`, `q8_quantization`, `q4_quantization`; docs/spec/quantizers.md.
BIE_API at::Tensor weight_scale(const at::Tensor& weight, std::int64_t bits, double eps = 1e-5);

/// A float weight as an integer optimizer trains it, and its scale: binary_init(w) at 1 bit; else
/// clamp(rint(w / max(scale, eps))) in int8, `scale` being weight_scale unless given.
/// @return (int8 of the weight's shape, 0-dim float32)
BIE_API std::tuple<at::Tensor, at::Tensor> prepare_weight(const at::Tensor& weight, std::int64_t bits,
                                                          const at::Tensor& scale = {}, double eps = 1e-5);

/// A weight as evaluation and files hold it, and its scale. A float weight is coded as by prepare_weight, but for
/// signs, which are those of w as it is; int8 codes or signs are packed as they are, with the `scale` given, or 1.
/// @return (packed_weight_shape(shape, bits): uint8 of signs, int8 of codes; the scale)
BIE_API std::tuple<at::Tensor, at::Tensor> pack_weight(const at::Tensor& weight, std::int64_t bits,
                                                       const at::Tensor& scale = {}, double eps = 1e-5);

/// The shape that pack_weight gives: [n, ceil(k * bits / 8)], and of filters [n, in, kh, kw] the label
/// [n, kh, kw, in * bits / 8] where those bytes are whole (8 bits: the filter's own shape).
BIE_API std::vector<std::int64_t> packed_weight_shape(at::IntArrayRef shape, std::int64_t bits);

/// A packed weight of a file in the layout of pack_weight. Filters may come as flat rows or flat bytes; signs of a
/// matrix also as the flat bytes of BITorch Engine's classes (signs_from_layout): without scales those of its CPU
/// class.
/// @throws c10::ValueError, one sentence that begins with `name`, for any other dtype, shape or layout.
BIE_API at::Tensor read_packed_weight(const at::Tensor& packed, at::IntArrayRef shape, std::int64_t bits,
                                      bool has_scales, std::string_view name);

/// weight[o] = scales[o] * split[o] with rows of one size: scales[o] = mean|weight[o]| / the mean of those means, 1 for
/// a row of zeros.
/// @return (split, of the weight's shape and dtype; scales [n] float32)
BIE_API std::tuple<at::Tensor, at::Tensor> split_channels(const at::Tensor& weight);

/// These functions check an entry of a state dict before a layer takes it, and throw a c10::ValueError that begins with
/// `name`. Values of tensors on the meta device are not looked at.
/// A float weight of this shape, finite in `dtype`, or int8 whose codes are in the range of the bits.
BIE_API void check_weight_entry(const at::Tensor& entry, at::IntArrayRef shape, std::int64_t bits, at::ScalarType dtype,
                                std::string_view name);
/// A tensor of this shape: of `dtype` where that is a type of integers, else of any float type and finite in `dtype`.
BIE_API void check_entry(const at::Tensor& entry, at::IntArrayRef shape, at::ScalarType dtype, std::string_view name);
/// One finite float of at least `least`.
/// @return it as 0-dim float32.
BIE_API at::Tensor check_scale_entry(const at::Tensor& entry, std::optional<double> least, std::string_view name);

/// Whether no element is NaN or infinite, in one pass on the CPU; true of tensors on the meta device.
BIE_API bool all_finite(const at::Tensor& tensor);
/// "int8", as Python calls it.
BIE_API std::string dtype_name(at::ScalarType type);

}  // namespace bie::ops
