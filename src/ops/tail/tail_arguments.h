// Checks and memory formats shared by the epilogue operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "bie/ops.h"
#include "ops/dispatcher.h"

namespace bie::ops {

/// Indexed by TailActivation::Kind.
constexpr std::array<std::string_view, 3> activation_names = {"none", "relu", "prelu"};
TailActivation activation_of(const char* op, std::string_view name, const OptTensor& slope);

/// Whether x is channels_last and not NCHW as well; with one pixel per image both formats fit, and NCHW is taken.
bool is_channels_last(const at::Tensor& x);
/// Memory format of the results.
at::MemoryFormat format_of(const at::Tensor& x);
at::Tensor empty_tail(const at::Tensor& x, std::int64_t pool);

/// Refuses unless x is [rows, channels] or [images, channels, height, width].
void check_tail_input(const char* op, const at::Tensor& x);
/// Refuses unless t is undefined or float32 [channels].
void check_channels(const char* op, const char* name, const at::Tensor& t, const at::Tensor& x);
void check_norm_eps(const char* op, double eps);
void check_activation(const char* op, const TailActivation& act);
void check_pool(const char* op, const at::Tensor& x, std::int64_t pool);
void check_float32(const char* op, const char* name, const at::Tensor& t);

}  // namespace bie::ops
