// A thread has a column of a group of rows, a block 256 of them: the elements that share the largest of their moments.
// Rows are taken in batches, so that one exchange between the threads finds the largest of them all.
#include "bie/kernels/cuda/code_step.h"

#include "kernels/arithmetic/code_step.h"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {
namespace {

constexpr int threads = static_cast<int>(moment_block), warps = threads / 32;
constexpr int batch = 8;  // rows

/// Reads and writes the codes of a column one after the other; `begin` starts a word.
class Column {
 public:
  __device__ Column(const CodeStep& o, std::int64_t begin, std::int64_t column)
      : to_(o.words + begin * o.bits / 32 * o.n + column), from_(to_), n_(o.n), bits_(o.bits) {}

  __device__ int next() {
    if (held_ < bits_) {
      read_ |= std::uint64_t{*from_} << held_;
      from_ += n_;
      held_ += 32;
    }
    const int code = static_cast<int>(read_ & ((1u << bits_) - 1));
    read_ >>= bits_;
    held_ -= bits_;
    return code;
  }
  __device__ void put(int code) {
    written_ |= std::uint64_t{static_cast<std::uint32_t>(code)} << full_;
    full_ += bits_;
    if (full_ >= 32) flush();
  }
  /// Writes the last word, which rows may leave part of.
  __device__ void end() {
    if (full_ > 0) flush();
  }

 private:
  __device__ void flush() {
    *to_ = static_cast<std::uint32_t>(written_);
    to_ += n_;
    written_ >>= 32;
    full_ -= 32;
  }

  std::uint32_t* to_;
  const std::uint32_t* from_;
  std::int64_t n_;
  int bits_, held_ = 0, full_ = 0;
  std::uint64_t read_ = 0, written_ = 0;
};

/// The largest of `values` over the block's threads, for each of them. `shared` is not read again before the next
/// barrier.
template <int count>
__device__ void largest_of_block(float (&values)[count], float (&shared)[count][warps]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) values[i] = fmaxf(values[i], __shfl_xor_sync(~0u, values[i], step));
    if (threadIdx.x % 32 == 0) shared[i][threadIdx.x / 32] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < count; ++i) {
    values[i] = shared[i][0];
#pragma unroll
    for (int w = 1; w < warps; ++w) values[i] = fmaxf(values[i], shared[i][w]);
  }
  __syncthreads();
}

template <class G, bool small>
__global__ void __launch_bounds__(threads) step_kernel(const __grid_constant__ CodeStep o, int together) {
  __shared__ float shared[small ? 2 * batch : 1][warps];
  const std::int64_t blocks = moment_blocks(o.n), column_block = blockIdx.x % blocks;
  const std::int64_t column = column_block * moment_block + threadIdx.x;
  const bool is_mine = column < o.n;  // others take part in the exchanges
  const float unit = o.rest == nullptr ? 1.0f : 256.0f, top = static_cast<float>(o.top) * unit;
  const float low = o.rest == nullptr ? 0.0f : -128.0f, high = o.rest == nullptr ? top : top + 127;
  const std::int64_t first_group = blockIdx.x / blocks * together;
  Column codes(o, first_group * o.group, is_mine ? column : 0);
  for (std::int64_t group = first_group; group < first_group + together && group * o.group < o.k; ++group) {
    const std::int64_t at = group * o.n + column, begin = group * o.group;
    const std::int64_t end = o.k - begin < o.group ? o.k : begin + o.group;
    float s = 1, zero = 0, sum = 0;
    if (is_mine) {
      float z = 0;
      if (o.offset == Offset::value) z = load_float(o.zeros, o.scale_dtype, at);
      if (o.offset == Offset::zero) z = static_cast<float>(static_cast<const std::int32_t*>(o.zeros)[at]);
      s = load_float(o.scales, o.scale_dtype, at);
      zero = code_of_zero(o.offset, s, z, static_cast<float>(1 << (o.bits - 1)));
    }
    for (std::int64_t row = begin; row < end; row += batch) {
      float g[batch], l[batch], m[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        g[i] = l[i] = m[i] = 0;
        const std::int64_t element = (row + i) * o.n + column;
        if (!is_mine || row + i >= end) continue;
        g[i] = finite_or_zero(widen(static_cast<const G*>(o.grad)[element]));
        if constexpr (small) {
          const float* const largest = o.largest + (row + i) * blocks + column_block;
          l[i] = *largest * moment_share(static_cast<float>(static_cast<const std::int8_t*>(o.l)[element]), 127);
          m[i] = largest[o.k * blocks] *
                 moment_share(static_cast<float>(static_cast<const std::uint8_t*>(o.m)[element]), 255);
        } else {
          l[i] = static_cast<const float*>(o.l)[element];
          m[i] = static_cast<const float*>(o.m)[element];
        }
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const std::int64_t element = (row + i) * o.n + column;
        if (!is_mine || row + i >= end) continue;
        l[i] = o.adam.b1 * l[i] + o.adam.d1 * g[i];
        m[i] = o.adam.b2 * m[i] + o.adam.d2 * g[i] * g[i];
        const int code = codes.next();
        sum += g[i] * (static_cast<float>(code) - zero);
        const float u = l[i] / (sqrtf(m[i]) + o.adam.eps);
        const int place = o.rest == nullptr ? code : 256 * code + o.rest[element];
        const int moved = moved_place(place, o.rate * u / s, o.adam.decay, zero, unit, low, high,
                                      uniform(random_bits(o.random, element)));
        const int next = o.rest == nullptr ? moved : (moved + 128) >> 8;
        if (o.rest != nullptr) o.rest[element] = static_cast<std::int8_t>(moved - 256 * next);
        codes.put(next);
        if constexpr (!small) {
          static_cast<float*>(o.l)[element] = l[i];
          static_cast<float*>(o.m)[element] = m[i];
        }
      }
      if constexpr (small) {
        float largest[2 * batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
          largest[i] = fabsf(l[i]);
          largest[batch + i] = m[i];
        }
        largest_of_block(largest, shared);
#pragma unroll
        for (int i = 0; i < batch; ++i) {
          if (row + i >= end) continue;
          const std::int64_t element = (row + i) * o.n + column;
          float* const kept = o.largest + (row + i) * blocks + column_block;
          if (threadIdx.x == 0) {
            kept[0] = largest[i];
            kept[o.k * blocks] = largest[batch + i];
          }
          if (!is_mine) continue;
          const auto random = static_cast<std::uint32_t>(random_bits(o.random, element));
          const float first = moment_code(fabsf(l[i]), largest[i], 127, static_cast<float>(random & 0xffff) * 0x1p-16f);
          const float second = moment_code(m[i], largest[batch + i], 255, static_cast<float>(random >> 16) * 0x1p-16f);
          const float least = largest[batch + i] < least_moment ? 0.0f : 1.0f;
          static_cast<std::int8_t*>(o.l)[element] = static_cast<std::int8_t>(l[i] < 0 ? -first : first);
          static_cast<std::uint8_t*>(o.m)[element] = static_cast<std::uint8_t>(second < least ? least : second);
        }
      }
    }
    if (is_mine && o.scale_l != nullptr) step_scale(o, at, sum);
  }
  if (is_mine) codes.end();
}

}  // namespace

Status code_step(const CodeStep& o, const Queue& queue) {
  const Status checked = check_step(o);
  if (checked != Status::ok) return checked;
  if (o.k == 0 || o.n == 0) return Status::ok;
  const std::int64_t groups = (o.k - 1) / o.group + 1;
  const auto together = static_cast<int>(groups_of_whole_words(o));
  const std::int64_t blocks = (groups + together - 1) / together * moment_blocks(o.n);
  return with_float(o.grad_dtype, [&](auto type) {
    using G = decltype(type);
    return o.largest != nullptr ? launch(step_kernel<G, true>, blocks, threads, 0, queue, o, together)
                                : launch(step_kernel<G, false>, blocks, threads, 0, queue, o, together);
  });
}

}  // namespace bie::kernels::cuda
