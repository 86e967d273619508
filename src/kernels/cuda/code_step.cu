// A thread has a column of a group of rows, or of one of its two slices; 256 columns, those of a block, share the
// largest of their moments. Rows are taken in batches, so that one exchange between the threads finds the largest of
// them all.
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

/// The largest of `values` over the threads of the block that share a slice, for each of them. `shared` is the slice's,
/// and is not read again before the next barrier.
template <int count>
__device__ void largest_of_slice(float (&values)[count], float (&shared)[count][warps]) {
  const int warp = static_cast<int>(threadIdx.x) % threads / 32;
#pragma unroll
  for (int i = 0; i < count; ++i) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) values[i] = fmaxf(values[i], __shfl_xor_sync(~0u, values[i], step));
    if (threadIdx.x % 32 == 0) shared[i][warp] = values[i];
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

/// The numbers that the rows of a group share.
struct GroupNumbers {
  float s = 1, zero = 0;
  __device__ GroupNumbers(const CodeStep& o, std::int64_t at) {
    float z = 0;
    if (o.offset == Offset::value) z = load_float(o.zeros, o.scale_dtype, at);
    if (o.offset == Offset::zero) z = static_cast<float>(static_cast<const std::int32_t*>(o.zeros)[at]);
    s = load_float(o.scales, o.scale_dtype, at);
    zero = code_of_zero(o.offset, s, z, static_cast<float>(1 << (o.bits - 1)));
  }
  GroupNumbers() = default;
};

/// Steps rows [row, end) of a column, `batch` of them at most, and adds their terms of the scale's gradient to `sum`.
/// Everything is read before anything is written, so that the reads do not wait for each other.
template <class G, bool small>
__device__ void step_rows(const CodeStep& o, const GroupNumbers& group, std::int64_t row, std::int64_t end,
                          std::int64_t column, Column& codes, float& sum,
                          float (&shared)[small ? 2 * batch : 1][warps]) {
  const bool is_mine = column < o.n;  // others take part in the exchanges
  const float unit = o.rest == nullptr ? 1.0f : 256.0f, top = static_cast<float>(o.top) * unit;
  const float low = o.rest == nullptr ? 0.0f : -128.0f, high = o.rest == nullptr ? top : top + 127;
  const std::int64_t blocks = moment_blocks(o.n), column_block = column / moment_block;
  float g[batch], l[batch], m[batch];
  int code[batch], rest[batch];
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    g[i] = l[i] = m[i] = 0;
    code[i] = rest[i] = 0;
    const std::int64_t element = (row + i) * o.n + column;
    if (!is_mine || row + i >= end) continue;
    g[i] = widen(static_cast<const G*>(o.grad)[element]);
    code[i] = codes.next();
    if (o.rest != nullptr) rest[i] = o.rest[element];
    if constexpr (small) {
      const float* const largest = o.largest + (row + i) * blocks + column_block;
      l[i] = *largest * moment_share(static_cast<float>(static_cast<const std::int8_t*>(o.l)[element]), 127);
      m[i] =
          largest[o.k * blocks] * moment_share(static_cast<float>(static_cast<const std::uint8_t*>(o.m)[element]), 255);
    } else {
      l[i] = static_cast<const float*>(o.l)[element];
      m[i] = static_cast<const float*>(o.m)[element];
    }
  }
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    const std::int64_t element = (row + i) * o.n + column;
    if (!is_mine || row + i >= end) continue;
    const float finite = finite_or_zero(g[i]);
    l[i] = o.adam.b1 * l[i] + o.adam.d1 * finite;
    m[i] = o.adam.b2 * m[i] + o.adam.d2 * finite * finite;
    sum += finite * (static_cast<float>(code[i]) - group.zero);
    const float u = l[i] / (sqrtf(m[i]) + o.adam.eps);
    const int place = o.rest == nullptr ? code[i] : 256 * code[i] + rest[i];
    const int moved = moved_place(place, o.rate * u / group.s, o.adam.decay, group.zero, unit, low, high,
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
    largest_of_slice(largest, shared);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (row + i >= end) continue;
      const std::int64_t element = (row + i) * o.n + column;
      float* const kept = o.largest + (row + i) * blocks + column_block;
      if (threadIdx.x % threads == 0) {
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

/// The weights of one launch. Weight i has the blocks from first_block[i] to first_block[i + 1].
struct Batch {
  static constexpr int most = 16;
  CodeStep step[most];
  int together[most];  ///< groups of a block
  int first_block[most + 1];
  int count;
};
static_assert(sizeof(Batch) <= 4096, "a kernel has 4 KiB of parameters");

template <class G, bool small, int slices>
__global__ void __launch_bounds__(slices* threads) step_kernel(const __grid_constant__ Batch weights) {
  __shared__ float shared[slices][small ? 2 * batch : 1][warps], pieces[slices][threads];
  int index = 0;
  while (index + 1 < weights.count && weights.first_block[index + 1] <= static_cast<int>(blockIdx.x)) ++index;
  const CodeStep& o = weights.step[index];
  const int block = static_cast<int>(blockIdx.x) - weights.first_block[index];
  const int slice = static_cast<int>(threadIdx.x) / threads, lane = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t blocks = moment_blocks(o.n), column = block % blocks * moment_block + lane;
  const bool is_mine = column < o.n;
  const std::int64_t first_group = block / blocks * weights.together[index];
  const std::int64_t last_group = first_group + weights.together[index];
  Column codes(o, first_group * o.group, is_mine ? column : 0);
  for (std::int64_t group = first_group; group < last_group && group * o.group < o.k; ++group) {
    const std::int64_t at = group * o.n + column, begin = group * o.group;
    const std::int64_t end = o.k - begin < o.group ? o.k : begin + o.group;
    const GroupNumbers numbers = is_mine ? GroupNumbers(o, at) : GroupNumbers();
    float sum = 0;
    for (std::int64_t round = begin; round < end; round += slices * sum_rows) {
      const std::int64_t row = round + slice * sum_rows, stop = end - row < sum_rows ? end : row + sum_rows;
      if (slices > 1) codes = Column(o, row, is_mine ? column : 0);
      float piece = 0;
      for (int i = 0; i < sum_rows && round + i < end; i += batch)
        step_rows<G, small>(o, numbers, row + i, stop, column, codes, piece, shared[slice]);
      if (slices == 1) {
        sum += piece;
        continue;
      }
      if (is_mine) codes.end();
      pieces[slice][lane] = piece;
      __syncthreads();
      if (slice == 0)
        for (int i = 0; i < slices; ++i) sum += pieces[i][lane];
      __syncthreads();
    }
    if (slice == 0 && is_mine && o.scale_l != nullptr) step_scale(o, at, sum);
  }
  if (slices == 1 && is_mine) codes.end();
}

/// Which kernel steps a weight.
struct Form {
  Dtype grad;
  bool small, has_slices;

  explicit Form(const CodeStep& o)
      : grad(o.grad_dtype),
        small(o.largest != nullptr),
        has_slices(groups_of_whole_words(o) == 1 && o.k > sum_rows && o.group > sum_rows) {}
  bool operator==(const Form& b) const { return grad == b.grad && small == b.small && has_slices == b.has_slices; }
};

template <class G, bool small>
Status launch_batch(const Batch& weights, bool has_slices, const Queue& queue) {
  const int blocks = weights.first_block[weights.count];
  return has_slices ? launch(step_kernel<G, small, 2>, blocks, 2 * threads, 0, queue, weights)
                    : launch(step_kernel<G, small, 1>, blocks, threads, 0, queue, weights);
}

}  // namespace

Status code_steps(const CodeStep* steps, int count, const Queue& queue) {
  for (int i = 0; i < count; ++i)
    if (const Status checked = check_step(steps[i]); checked != Status::ok) return checked;
  for (int done = 0; done < count;) {
    Form form(steps[done]);
    Batch weights;
    std::int64_t blocks = 0;
    for (weights.count = 0; done < count && weights.count < Batch::most; ++done) {
      const CodeStep& o = steps[done];
      if (o.k == 0 || o.n == 0) continue;
      const std::int64_t together = groups_of_whole_words(o), groups = (o.k - 1) / o.group + 1;
      const std::int64_t more = (groups + together - 1) / together * moment_blocks(o.n);
      if (more > INT32_MAX) return Status::bad_shape;
      if (weights.count == 0) form = Form(o);
      if (weights.count > 0 && (blocks + more > INT32_MAX || !(Form(o) == form))) break;
      weights.step[weights.count] = o;
      weights.together[weights.count] = static_cast<int>(together);
      weights.first_block[weights.count++] = static_cast<int>(blocks);
      blocks += more;
    }
    weights.first_block[weights.count] = static_cast<int>(blocks);
    if (weights.count == 0) return Status::ok;
    const Status status = with_float(form.grad, [&](auto type) {
      using G = decltype(type);
      return form.small ? launch_batch<G, true>(weights, form.has_slices, queue)
                        : launch_batch<G, false>(weights, form.has_slices, queue);
    });
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

}  // namespace bie::kernels::cuda
