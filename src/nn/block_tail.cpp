#include "nn/block_tail.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/torch_parallel.h"
#include "ops/vector_clones.h"

namespace bie::nn {
namespace {

/// What is below 0 times `slope`, or 0: a slope of 0 would make infinity NaN.
struct Bend {
  float slope;
  bool cuts;
};

/// One channel's numbers for all elements: y = act(x * scale + shift + add); `add` may be null.
BIE_VECTOR_CLONES void pass_channel(const float* x, float scale, float shift, const float* add, Bend act,
                                    std::int64_t count, float* y) {
  if (add == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float v = x[i] * scale + shift, low = act.cuts ? 0.0f : v * act.slope;
      y[i] = v < 0 ? low : v;
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = x[i] * scale + shift + add[i], low = act.cuts ? 0.0f : v * act.slope;
    y[i] = v < 0 ? low : v;
  }
}

/// Numbers of its own for each element.
BIE_VECTOR_CLONES void pass_row(const float* x, const float* scale, const float* shift, const float* add, Bend act,
                                std::int64_t count, float* y) {
  if (add == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float v = x[i] * scale[i] + shift[i], low = act.cuts ? 0.0f : v * act.slope;
      y[i] = v < 0 ? low : v;
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = x[i] * scale[i] + shift[i] + add[i], low = act.cuts ? 0.0f : v * act.slope;
    y[i] = v < 0 ? low : v;
  }
}

/// The larger one of each pair, NaN where either is.
BIE_VECTOR_CLONES void keep_larger(const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i];
}

/// y[i] is the largest of `pool` neighbours.
BIE_VECTOR_CLONES void pool_line(const float* x, std::int64_t pool, std::int64_t count, float* y) {
  if (pool == 2) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      y[i] = b > a || b != b ? b : a;
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = x[pool * i];
    for (std::int64_t j = 1; j < pool; ++j) {
      const float v = x[pool * i + j];
      y[i] = v > y[i] || v != v ? v : y[i];
    }
  }
}

bool dense_float(const at::Tensor& t) {
  return !t.defined() || (t.is_cpu() && t.scalar_type() == at::kFloat && t.is_contiguous());
}

bool channels_last(const at::Tensor& x) {
  return x.dim() == 4 && !x.is_contiguous() && x.is_contiguous(at::MemoryFormat::ChannelsLast);
}

/// a and b of a * x + b.
void affine_of(const NormNumbers& norm, std::int64_t channels, std::vector<float>* scale, std::vector<float>* shift) {
  scale->assign(static_cast<std::size_t>(channels), 1);
  shift->assign(static_cast<std::size_t>(channels), 0);
  if (!norm.mean.defined()) return;
  const float *mean = norm.mean.const_data_ptr<float>(), *var = norm.var.const_data_ptr<float>();
  const float* weight = norm.weight.defined() ? norm.weight.const_data_ptr<float>() : nullptr;
  const float* bias = norm.bias.defined() ? norm.bias.const_data_ptr<float>() : nullptr;
  const auto eps = static_cast<float>(norm.eps);
  for (std::size_t c = 0; c < scale->size(); ++c) {
    const float a = 1 / std::sqrt(var[c] + eps) * (weight != nullptr ? weight[c] : 1);
    (*scale)[c] = a;
    (*shift)[c] = (bias != nullptr ? bias[c] : 0) - mean[c] * a;
  }
}

constexpr std::int64_t elements_a_task = 1 << 15;

std::int64_t grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, elements_a_task / std::max<std::int64_t>(1, elements));
}

struct Pass {
  const float *x, *add;
  const std::vector<float>&scale, &shift;
  Bend act;
  float* y;
};

/// [rows, channels].
void rows(const Pass& p, std::int64_t count, std::int64_t channels) {
  kernels::parallel_for(ops::torch_parallel(), count, grain(channels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      pass_row(p.x + r * channels, p.scale.data(), p.shift.data(), p.add == nullptr ? nullptr : p.add + r * channels,
               p.act, channels, p.y + r * channels);
  });
}

/// [images, height, width, channels], pooled.
void pooled_pixels(const Pass& p, const at::Tensor& x, std::int64_t pool) {
  const std::int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const std::int64_t out_h = height / pool, out_w = width / pool;
  kernels::parallel_for(ops::torch_parallel(), x.size(0) * out_h, grain(width * pool * channels),
                        [&](std::int64_t begin, std::int64_t end) {
                          std::vector<float> buffer(static_cast<std::size_t>(channels));
                          for (std::int64_t line = begin; line < end; ++line)
                            for (std::int64_t column = 0; column < out_w; ++column) {
                              float* const y = p.y + (line * out_w + column) * channels;
                              for (std::int64_t i = 0; i < pool; ++i)
                                for (std::int64_t j = 0; j < pool; ++j) {
                                  const std::int64_t row = line / out_h * height + line % out_h * pool + i;
                                  const std::int64_t at = (row * width + column * pool + j) * channels;
                                  const bool first = i == 0 && j == 0;
                                  float* const to = first ? y : buffer.data();
                                  pass_row(p.x + at, p.scale.data(), p.shift.data(),
                                           p.add == nullptr ? nullptr : p.add + at, p.act, channels, to);
                                  if (!first) keep_larger(buffer.data(), channels, y);
                                }
                            }
                        });
}

/// [images, channels, height, width], pooled or not.
void planes(const Pass& p, const at::Tensor& x, std::int64_t pool) {
  const std::int64_t channels = x.size(1), height = x.size(2), width = x.size(3), plane = height * width;
  const std::int64_t out_h = height / pool, out_w = width / pool;
  kernels::parallel_for(ops::torch_parallel(), x.size(0) * channels, grain(plane),
                        [&](std::int64_t begin, std::int64_t end) {
                          std::vector<float> buffer(static_cast<std::size_t>(2 * width));
                          float *const larger = buffer.data(), *const line = larger + width;
                          for (std::int64_t i = begin; i < end; ++i) {
                            const auto c = static_cast<std::size_t>(i % channels);
                            const float* const add = p.add == nullptr ? nullptr : p.add + i * plane;
                            const auto pass = [&](std::int64_t first, std::int64_t count, float* to) {
                              pass_channel(p.x + i * plane + first, p.scale[c], p.shift[c],
                                           add == nullptr ? nullptr : add + first, p.act, count, to);
                            };
                            if (pool == 1) {
                              pass(0, plane, p.y + i * plane);
                              continue;
                            }
                            for (std::int64_t row = 0; row < out_h; ++row) {
                              pass(row * pool * width, width, larger);
                              for (std::int64_t j = 1; j < pool; ++j) {
                                pass((row * pool + j) * width, width, line);
                                keep_larger(line, width, larger);
                              }
                              pool_line(larger, pool, out_w, p.y + (i * out_h + row) * out_w);
                            }
                          }
                        });
}

}  // namespace

bool has_block_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                    const TailActivation& act) {
  if (at::GradMode::is_enabled() || !x.is_cpu() || x.scalar_type() != at::kFloat) return false;
  if (x.dim() != 2 && x.dim() != 4) return false;
  if (!x.is_contiguous() && !channels_last(x)) return false;
  if (shortcut.defined() && (!shortcut.is_cpu() || shortcut.scalar_type() != at::kFloat ||
                             shortcut.sizes() != x.sizes() || shortcut.strides() != x.strides()))
    return false;
  return dense_float(norm.mean) && dense_float(norm.var) && dense_float(norm.weight) && dense_float(norm.bias) &&
         (act.kind != Activation::prelu || (dense_float(act.slope) && act.slope.numel() == 1));
}

at::Tensor block_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                      const TailActivation& act, std::int64_t pool) {
  RECORD_FUNCTION("bie::block_tail", {});
  std::vector<float> scale, shift;
  affine_of(norm, x.size(1), &scale, &shift);
  const bool last = channels_last(x);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  if (pool > 1) sizes[2] /= pool, sizes[3] /= pool;
  at::Tensor y = at::empty(sizes, x.options(), last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  const float slope = act.kind == Activation::prelu ? *act.slope.const_data_ptr<float>() : 1.0f;
  const Pass pass{x.const_data_ptr<float>(),
                  shortcut.defined() ? shortcut.const_data_ptr<float>() : nullptr,
                  scale,
                  shift,
                  {slope, act.kind == Activation::relu},
                  y.data_ptr<float>()};
  if (x.dim() == 2 || (last && pool == 1))
    rows(pass, x.dim() == 2 ? x.size(0) : x.size(0) * x.size(2) * x.size(3), x.size(1));
  else if (last)
    pooled_pixels(pass, x, pool);
  else
    planes(pass, x, pool);
  return y;
}

}  // namespace bie::nn
