#include "bie/kernels/cuda/training_tail.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {
namespace {

/// A block has a strip of channels and a range of items, which are pixels or pools of pixels: a thread takes four
/// channels of every 16th item.
constexpr int size = 4, strip_channels = 64, lanes = strip_channels / size, threads = 256;
constexpr int items_at_once = threads / lanes;
constexpr int at_once = 4;   ///< pixels that a thread reads in a turn
constexpr int resident = 4;  ///< blocks on a multiprocessor
constexpr std::int64_t most_blocks = 528;

/// The grid depends on the shape alone, and so does the order of every sum.
struct Grid {
  int strips, ranges, items, channels;

  __host__ __device__ std::int64_t blocks() const { return std::int64_t{strips} * ranges; }
};
Grid grid_of(const TrainingTail& t, std::int64_t items) {
  const auto strips = (t.channels + strip_channels - 1) / strip_channels;
  const std::int64_t most = (items + items_at_once - 1) / items_at_once;
  const std::int64_t ranges = std::clamp<std::int64_t>(most_blocks / strips, 1, std::max<std::int64_t>(most, 1));
  return {static_cast<int>(strips), static_cast<int>(ranges), static_cast<int>(items), static_cast<int>(t.channels)};
}

/// The part of the grid that one thread handles.
struct Place {
  int range, channel, begin, first, end;  ///< begin: of the range; first: of the thread's own items
  bool inside;

  __device__ explicit Place(const Grid& grid) {
    range = static_cast<int>(blockIdx.x) / grid.strips;
    const int strip = static_cast<int>(blockIdx.x) - range * grid.strips;
    channel = (strip * lanes + static_cast<int>(threadIdx.x) % lanes) * size;
    inside = channel < grid.channels;
    const auto bound = [&](int its) { return static_cast<int>(std::int64_t{grid.items} * its / grid.ranges); };
    begin = bound(range);
    end = bound(range + 1);
    first = begin + static_cast<int>(threadIdx.x) / lanes;
  }
};

template <class X>
__device__ Four<X> four_at(const void* data, int pixel, int channels, int channel) {
  return *reinterpret_cast<const Four<X>*>(static_cast<const X*>(data) + std::int64_t{pixel} * channels + channel);
}
template <class X>
__device__ void put_four(void* data, int pixel, int channels, int channel, const Four<X>& four) {
  *reinterpret_cast<Four<X>*>(static_cast<X*>(data) + std::int64_t{pixel} * channels + channel) = four;
}

/// The pixels of a turn. Without pools they are four items of the thread; with them those of one pool, line by line,
/// and its result. Pools at an edge that is cut off have no result.
template <int pool>
struct Turn {
  int pixel[at_once], result;
  bool valid[at_once], has_result;
};

struct Pools {
  int height, width, lines, columns;  ///< of the image, and its pools
  static Pools of(const TrainingTail& t, bool with_edges) {
    const auto cut = [&](std::int64_t size) {
      return static_cast<int>(with_edges ? (size + t.pool - 1) / t.pool : size / t.pool);
    };
    return {static_cast<int>(t.height), static_cast<int>(t.width), cut(t.height), cut(t.width)};
  }
  std::int64_t of_images(std::int64_t images) const { return images * lines * columns; }

  template <int pool>
  __device__ Turn<pool> turn(int item, int end) const {
    Turn<pool> turn;
    if constexpr (pool == 1) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        turn.pixel[i] = item + i * items_at_once;
        turn.valid[i] = turn.pixel[i] < end;
      }
      turn.result = item;
      turn.has_result = true;
    } else {
      const int line_of_all = item / columns, column = item - line_of_all * columns;
      const int image = line_of_all / lines, line = line_of_all - image * lines;
      const int corner = (image * height + 2 * line) * width + 2 * column;
      const bool below = 2 * line + 1 < height, right = 2 * column + 1 < width;
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        turn.pixel[i] = corner + i / 2 * width + i % 2;
        turn.valid[i] = (i < 2 || below) && (i % 2 == 0 || right);
      }
      turn.has_result = below && right;
      turn.result = (image * (height / 2) + line) * (width / 2) + column;
    }
    return turn;
  }
};
/// Items of a turn.
template <int pool>
constexpr int turn_items = pool == 1 ? at_once* items_at_once : items_at_once;

struct Activation {
  bool relu;
  float slope;

  __device__ explicit Activation(const TrainingTail& t)
      : relu(t.relu),
        slope(t.slope != nullptr ? *t.slope
              : t.relu           ? 0.0f
                                 : 1.0f) {}
  /// A product with 0 would make NaN of infinity.
  __device__ float operator()(float z) const { return !(z <= 0) ? z : relu ? 0.0f : slope * z; }
  __device__ float grad(float z, float up) const { return !(z <= 0) ? up : relu ? 0.0f : slope * up; }
};

/// z of the thread's channels.
template <class X>
struct Norm {
  float mean[size], gain[size], bias[size];

  __device__ Norm(const TrainingTail& t, int channel) {
#pragma unroll
    for (int j = 0; j < size; ++j) {
      mean[j] = t.mean[channel + j];
      gain[j] = t.rstd[channel + j] * (t.weight != nullptr ? t.weight[channel + j] : 1.0f);
      bias[j] = t.bias != nullptr ? t.bias[channel + j] : 0.0f;
    }
  }
  __device__ float centred(int j, X x) const { return widen(x) - mean[j]; }
  __device__ float operator()(int j, X x) const { return fmaf(centred(j, x), gain[j], bias[j]); }
};

/// The largest of a pool, as torch finds it: the first of several, and NaN before all.
struct Largest {
  float value = -INFINITY;
  int at = 0;
  __device__ void add(float v, int i) {
    if (v > value || v != v) {
      value = v;
      at = i;
    }
  }
};

/// Loaded x of a turn, and its shortcut.
template <class X, int pool, bool adds>
struct Read {
  Four<X> x[at_once], shortcut[adds ? at_once : 1];

  __device__ Read(const TrainingTail& t, const Turn<pool>& turn, int channels, int channel) {
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      x[i] = turn.valid[i] ? four_at<X>(t.x, turn.pixel[i], channels, channel) : Four<X>{};
      if constexpr (adds)
        shortcut[i] = turn.valid[i] ? four_at<X>(t.shortcut, turn.pixel[i], channels, channel) : Four<X>{};
    }
  }
  __device__ float z(const Norm<X>& norm, int i, int j) const {
    const float normed = norm(j, x[i].at[j]);
    if constexpr (adds) return normed + widen(shortcut[i].at[j]);
    return normed;
  }
};

/// The gradients of y that a turn gets.
template <class X, int pool>
struct Received {
  Four<X> of[pool == 1 ? at_once : 1];

  __device__ Received(const void* y, const Turn<pool>& turn, int channels, int channel) {
    if constexpr (pool == 1) {
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        of[i] = turn.valid[i] ? four_at<X>(y, turn.pixel[i], channels, channel) : Four<X>{};
    } else {
      of[0] = turn.has_result ? four_at<X>(y, turn.result, channels, channel) : Four<X>{};
    }
  }
};

/// Gradient that reaches the pixels of one turn in channel j: z of each pixel, and the gradient with respect to act(z).
template <class X, int pool, bool adds>
__device__ void send_back(const Read<X, pool, adds>& read, const Received<X, pool>& up, const Norm<X>& norm,
                          const Activation& act, const Turn<pool>& turn, int j, float (&z)[at_once],
                          float (&back)[at_once]) {
#pragma unroll
  for (int i = 0; i < at_once; ++i) z[i] = read.z(norm, i, j);
  if constexpr (pool == 1) {
#pragma unroll
    for (int i = 0; i < at_once; ++i) back[i] = widen(up.of[i].at[j]);
  } else {
    Largest largest;
#pragma unroll
    for (int i = 0; i < at_once; ++i) largest.add(act(z[i]), i);
    const float all = turn.has_result ? widen(up.of[0].at[j]) : 0.0f;
#pragma unroll
    for (int i = 0; i < at_once; ++i) back[i] = i == largest.at ? all : 0.0f;
  }
}

/// The total over the block's items of two sums of each channel, written by a thread for each channel of the strip.
__device__ void leave_sums(float (&first)[size], float (&second)[size], const Grid& grid, float2* to) {
  constexpr int warps = threads / 32;
  __shared__ float2 of_warps[warps][strip_channels];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int j = 0; j < size; ++j) {
#pragma unroll
    for (int mask = lanes; mask < 32; mask *= 2) {
      first[j] += __shfl_xor_sync(~0u, first[j], mask);
      second[j] += __shfl_xor_sync(~0u, second[j], mask);
    }
    if (lane < lanes) of_warps[warp][lane * size + j] = make_float2(first[j], second[j]);
  }
  __syncthreads();
  const int range = static_cast<int>(blockIdx.x) / grid.strips;
  const int channel =
      (static_cast<int>(blockIdx.x) - range * grid.strips) * strip_channels + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= strip_channels || channel >= grid.channels) return;
  float2 sum = of_warps[0][threadIdx.x];
  for (int i = 1; i < warps; ++i) {
    sum.x += of_warps[i][threadIdx.x].x;
    sum.y += of_warps[i][threadIdx.x].y;
  }
  to[std::int64_t{range} * grid.channels + channel] = sum;
}

/// Per range and channel: the sums of d and d * d, where d = x minus the first x of the range. Any x of the range lies
/// near the mean, so that cancellation loses little.
template <class X>
__global__ void __launch_bounds__(threads, resident)
    range_moments(const TrainingTail t, const Grid grid, float2* sums) {
  const Place place(grid);
  float sum[size]{}, squares[size]{};
  if (place.inside) {
    const Four<X> from = four_at<X>(t.x, place.begin, grid.channels, place.channel);
    for (int item = place.first; item < place.end; item += turn_items<1>) {
      const Turn<1> turn = Pools{}.turn<1>(item, place.end);
      Four<X> x[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        x[i] = turn.valid[i] ? four_at<X>(t.x, turn.pixel[i], grid.channels, place.channel) : from;
#pragma unroll
      for (int i = 0; i < at_once; ++i)
#pragma unroll
        for (int j = 0; j < size; ++j) {
          const float d = widen(x[i].at[j]) - widen(from.at[j]);
          sum[j] += d;
          squares[j] = fmaf(d, d, squares[j]);
        }
    }
  }
  leave_sums(sum, squares, grid, sums);
}

constexpr int finish_threads = 1024, finish_channels = 32, slices = finish_threads / finish_channels;

/// The total of the block's slices of a channel, in all of them.
__device__ double over_slices(double mine) {
  __shared__ double of_slices[slices][finish_channels];
  const int lane = threadIdx.x % finish_channels;
  __syncthreads();
  of_slices[threadIdx.x / finish_channels][lane] = mine;
  __syncthreads();
  double sum = 0;
  for (int i = 0; i < slices; ++i) sum += of_slices[i][lane];
  return sum;
}

template <class X>
__global__ void __launch_bounds__(finish_threads)
    finish_moments(const TrainingTail t, const RunningStatistics running, const Grid grid, const float2* sums) {
  const int channel = static_cast<int>(blockIdx.x) * finish_channels + static_cast<int>(threadIdx.x) % finish_channels;
  const bool inside = channel < grid.channels;
  const auto over_ranges = [&](const auto& term) {
    double mine = 0;
    for (int range = static_cast<int>(threadIdx.x) / finish_channels; inside && range < grid.ranges; range += slices) {
      const auto bound = [&](int its) { return static_cast<int>(std::int64_t{grid.items} * its / grid.ranges); };
      const std::int64_t begin = bound(range);
      const float2 its = sums[std::int64_t{range} * grid.channels + channel];
      mine += term(static_cast<double>(bound(range + 1) - begin),
                   widen(static_cast<const X*>(t.x)[begin * grid.channels + channel]), its.x, its.y);
    }
    return over_slices(mine);
  };
  const double count = grid.items;
  const double mean = over_ranges([](double n, double from, double sum, double) { return n * from + sum; }) / count;
  const double squares = over_ranges([&](double n, double from, double sum, double squared) {
    const double its = sum / n, away = from + its - mean;
    return squared - sum * its + n * away * away;
  });
  if (!inside || threadIdx.x >= finish_channels) return;
  t.mean[channel] = static_cast<float>(mean);
  t.rstd[channel] = static_cast<float>(1 / sqrt(squares / count + static_cast<double>(t.eps)));
  if (running.mean == nullptr) return;
  const auto move = [&](float& statistic, double to) {
    statistic = static_cast<float>(statistic + running.momentum * (to - statistic));
  };
  move(running.mean[channel], mean);
  move(running.var[channel], squares / (count - 1));
}

template <class X, int pool, bool adds>
__global__ void __launch_bounds__(threads, resident)
    tail(const TrainingTail t, const Pools pools, const Grid grid, void* y) {
  const Place place(grid);
  if (!place.inside) return;
  const Norm<X> norm(t, place.channel);
  const Activation act(t);
  for (int item = place.first; item < place.end; item += turn_items<pool>) {
    const Turn<pool> turn = pools.turn<pool>(item, place.end);
    const Read<X, pool, adds> read(t, turn, grid.channels, place.channel);
    Four<X> result[at_once];
#pragma unroll
    for (int j = 0; j < size; ++j) {
      Largest largest;
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const float value = act(read.z(norm, i, j));
        if constexpr (pool == 1) result[i].at[j] = narrow<X>(value);
        largest.add(value, i);
      }
      if constexpr (pool > 1) result[0].at[j] = narrow<X>(largest.value);
    }
    if constexpr (pool == 1) {
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (turn.valid[i]) put_four(y, turn.pixel[i], grid.channels, place.channel, result[i]);
    } else {
      put_four(y, turn.result, grid.channels, place.channel, result[0]);
    }
  }
}

/// Per range and channel: the sums of dz and dz * (x - mean). Per block: the partial sum of the slope's gradient.
template <class X, int pool, bool adds>
__global__ void __launch_bounds__(threads, adds ? resident - 1 : resident)
    range_sums(const TrainingTail t, const Pools pools, const Grid grid, const void* up, float2* sums, float* terms) {
  const Place place(grid);
  float sum[size]{}, product[size]{}, of_slope = 0;
  if (place.inside) {
    const Norm<X> norm(t, place.channel);
    const Activation act(t);
    for (int item = place.first; item < place.end; item += turn_items<pool>) {
      const Turn<pool> turn = pools.turn<pool>(item, place.end);
      const Read<X, pool, adds> read(t, turn, grid.channels, place.channel);
      const Received<X, pool> received(up, turn, grid.channels, place.channel);
#pragma unroll
      for (int j = 0; j < size; ++j) {
        float z[at_once], back[at_once];
        send_back(read, received, norm, act, turn, j, z, back);
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const float dz = act.grad(z[i], back[i]);
          sum[j] += dz;
          product[j] = fmaf(dz, norm.centred(j, read.x[i].at[j]), product[j]);
          if (z[i] <= 0) of_slope = fmaf(back[i], z[i], of_slope);
        }
      }
    }
  }
  leave_sums(sum, product, grid, sums);
  if (terms == nullptr) return;
  __shared__ float of_warps[threads / 32];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) of_slope += __shfl_xor_sync(~0u, of_slope, mask);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_slope;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < threads / 32; ++i) of_slope += of_warps[i];
  terms[blockIdx.x] = of_slope;
}

/// Blocks have 32 channels each; one more adds up the slope's gradient. means: those of dz and dz * (x - mean), the
/// second times rstd * rstd.
__global__ void __launch_bounds__(finish_threads)
    finish_sums(const TrainingTail t, const TrainingTailGrads grads, const Grid grid, const float2* sums,
                const float* terms, float2* means) {
  const int lane = static_cast<int>(threadIdx.x) % finish_channels;
  if (static_cast<int>(blockIdx.x) * finish_channels >= grid.channels) {
    double mine = 0;
    for (int i = static_cast<int>(threadIdx.x); i < grid.blocks(); i += finish_threads)
      mine += static_cast<double>(terms[i]);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) mine += __shfl_xor_sync(~0u, mine, mask);
    mine = over_slices(mine);
    if (threadIdx.x == 0) *grads.slope = static_cast<float>(mine);
    return;
  }
  const int channel = static_cast<int>(blockIdx.x) * finish_channels + lane;
  double sum = 0, product = 0;
  for (int range = static_cast<int>(threadIdx.x) / finish_channels; channel < grid.channels && range < grid.ranges;
       range += slices) {
    const float2 its = sums[std::int64_t{range} * grid.channels + channel];
    sum += static_cast<double>(its.x);
    product += static_cast<double>(its.y);
  }
  sum = over_slices(sum);
  product = over_slices(product);
  if (channel >= grid.channels || threadIdx.x >= finish_channels) return;
  const double count = static_cast<double>(t.images * t.height * t.width), rstd = static_cast<double>(t.rstd[channel]);
  if (grads.bias != nullptr) grads.bias[channel] = static_cast<float>(sum);
  if (grads.weight != nullptr) grads.weight[channel] = static_cast<float>(product * rstd);
  means[channel] = make_float2(static_cast<float>(sum / count), static_cast<float>(product * rstd * rstd / count));
}

template <class X, int pool, bool adds>
__global__ void __launch_bounds__(threads, adds ? resident - 1 : resident)
    tail_grads(const TrainingTail t, const TrainingTailGrads grads, const Pools pools, const Grid grid,
               const float2* means) {
  const Place place(grid);
  if (!place.inside) return;
  const Norm<X> norm(t, place.channel);
  const Activation act(t);
  float2 mean[size];
#pragma unroll
  for (int j = 0; j < size; ++j) mean[j] = means[place.channel + j];
  for (int item = place.first; item < place.end; item += turn_items<pool>) {
    const Turn<pool> turn = pools.turn<pool>(item, place.end);
    const Read<X, pool, adds> read(t, turn, grid.channels, place.channel);
    const Received<X, pool> received(grads.y, turn, grid.channels, place.channel);
    Four<X> grad[at_once], of_shortcut[at_once];
#pragma unroll
    for (int j = 0; j < size; ++j) {
      float z[at_once], back[at_once];
      send_back(read, received, norm, act, turn, j, z, back);
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const float dz = act.grad(z[i], back[i]);
        const float rest = fmaf(norm.centred(j, read.x[i].at[j]), mean[j].y, mean[j].x);
        grad[i].at[j] = narrow<X>(norm.gain[j] * (dz - rest));
        if constexpr (adds) of_shortcut[i].at[j] = narrow<X>(dz);
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (!turn.valid[i]) continue;
      put_four(grads.x, turn.pixel[i], grid.channels, place.channel, grad[i]);
      if constexpr (adds)
        if (grads.shortcut != nullptr)
          put_four(grads.shortcut, turn.pixel[i], grid.channels, place.channel, of_shortcut[i]);
    }
  }
}

struct Workspace {
  float2 *sums, *means;
  float* terms;
};
Workspace workspace_of(const Grid& grid, void* workspace) {
  const auto sums = static_cast<float2*>(workspace);
  float2* const means = sums + std::int64_t{grid.ranges} * grid.channels;
  return {sums, means, reinterpret_cast<float*>(means + grid.channels)};
}
std::int64_t bytes_of(const Grid& grid) {
  return (std::int64_t{grid.ranges} + 1) * grid.channels * static_cast<std::int64_t>(sizeof(float2)) +
         grid.blocks() * static_cast<std::int64_t>(sizeof(float));
}
std::int64_t pixels_of(const TrainingTail& t) { return t.images * t.height * t.width; }
std::int64_t finish_blocks(const Grid& grid) { return (grid.channels + finish_channels - 1) / finish_channels; }

/// body(element, pool, adds), the last two as std::integral_constant.
template <class Body>
Status with_kind(const TrainingTail& t, const Body& body) {
  return with_float(t.dtype, [&](auto element) {
    const auto of_pool = [&](auto pool) {
      return t.shortcut != nullptr ? body(element, pool, std::true_type{}) : body(element, pool, std::false_type{});
    };
    return t.pool == 1 ? of_pool(std::integral_constant<int, 1>{}) : of_pool(std::integral_constant<int, 2>{});
  });
}

}  // namespace

bool has_training_tail(const TrainingTail& t) {
  constexpr std::int64_t most = INT32_MAX / 2, multiple = size;
  if (t.images <= 0 || t.height <= 0 || t.width <= 0 || t.channels <= 0 || t.channels % multiple != 0) return false;
  if (t.pool != 1 && t.pool != 2) return false;
  for (const std::int64_t size : {t.images, t.height, t.width, t.channels})
    if (size > most) return false;
  return t.height * t.width <= most && pixels_of(t) <= most;
}

std::int64_t training_tail_bytes(const TrainingTail& t) {
  return std::max(bytes_of(grid_of(t, pixels_of(t))), bytes_of(grid_of(t, Pools::of(t, false).of_images(t.images))));
}

Status training_tail(const TrainingTail& t, const RunningStatistics& running, void* y, void* workspace,
                     const Queue& queue) {
  if (!has_training_tail(t)) return Status::bad_shape;
  const Grid pixels = grid_of(t, pixels_of(t));
  float2* const sums = workspace_of(pixels, workspace).sums;
  Status status = with_float(t.dtype, [&](auto element) {
    using X = decltype(element);
    const Status done = launch(range_moments<X>, pixels.blocks(), threads, 0, queue, t, pixels, sums);
    if (done != Status::ok) return done;
    return launch(finish_moments<X>, finish_blocks(pixels), finish_threads, 0, queue, t, running, pixels, sums);
  });
  if (status != Status::ok) return status;
  const Pools pools = Pools::of(t, /*with_edges=*/false);
  const Grid grid = grid_of(t, pools.of_images(t.images));
  if (grid.items == 0) return status;
  return with_kind(t, [&](auto element, auto pool, auto adds) {
    return launch(tail<decltype(element), pool.value, adds.value>, grid.blocks(), threads, 0, queue, t, pools, grid, y);
  });
}

Status training_tail_grads(const TrainingTail& t, const TrainingTailGrads& grads, void* workspace, const Queue& queue) {
  if (!has_training_tail(t)) return Status::bad_shape;
  const Pools whole = Pools::of(t, /*with_edges=*/false), every = Pools::of(t, /*with_edges=*/true);
  const Grid grid = grid_of(t, whole.of_images(t.images)), of_all = grid_of(t, every.of_images(t.images));
  const Workspace space = workspace_of(grid, workspace);
  return with_kind(t, [&](auto element, auto pool, auto adds) {
    using X = decltype(element);
    float* const terms = grads.slope != nullptr ? space.terms : nullptr;
    Status status = launch(range_sums<X, pool.value, adds.value>, grid.blocks(), threads, 0, queue, t, whole, grid,
                           grads.y, space.sums, terms);
    if (status != Status::ok) return status;
    status = launch(finish_sums, finish_blocks(grid) + (terms != nullptr ? 1 : 0), finish_threads, 0, queue, t, grads,
                    grid, space.sums, terms, space.means);
    if (status != Status::ok) return status;
    return launch(tail_grads<X, pool.value, adds.value>, of_all.blocks(), threads, 0, queue, t, grads, every, of_all,
                  space.means);
  });
}

}  // namespace bie::kernels::cuda
