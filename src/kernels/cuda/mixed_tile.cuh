// Products of 16-bit floats and int8 codes on Hopper's warpgroup instructions (sm_90a): out = grad . codes, transposed
// in the instruction. The codes are its left operand, opened in registers, where alone a number may change its type on
// the way; the floats are the right one, as they lie. One warp of a block keeps a ring of stages in shared memory
// filled by the TMA; two warpgroups multiply 64 columns of codes each with the same floats, or the same codes with half
// of the floats each. Blocks stay and take tile after tile.
//
// mixed_product.cu plans the launches. Matrices and windows differ only in what the TMA reads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/extremes.cuh"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/input_rules.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mixed_args.h"
#include "kernels/cuda/wgmma.cuh"

namespace bie::kernels::cuda::mixed {

constexpr int threads = 128 * (warpgroups + 1);

__device__ inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// A tile, as Choice has it, of floats that are the sum of `parts`.
template <class Float_, int rows_, int parts_, bool shared_, bool transposed_, bool signs_>
struct Shape {
  using Float = Float_;
  using Activation = std::conditional_t<parts_ == 1, Float, float>;  ///< of which such floats are the gradient
  static constexpr int rows = rows_, parts = parts_;
  static constexpr bool shared = shared_, transposed = transposed_, signs = signs_;
  static constexpr int units = units_of(shared), right = rows_of_warpgroup(rows, shared);
  static constexpr int part_bytes = rows * depth * 2, stage_bytes = units * unit_bytes + parts * part_bytes;
  static constexpr int most = 227 * 1024 - 256 /* barriers */,
                       stages = most / stage_bytes < 12 ? most / stage_bytes : 12;
  static constexpr int barriers_at = stages * stage_bytes, bytes = barriers_at + stages * 16;
  static_assert(stages >= 2);
};

/// The codes in bits 0 ... 7 and 16 ... 23 of a word as two floats.
template <class Float, bool signs>
__device__ unsigned opened(unsigned word) {
  constexpr bool bf16 = std::is_same_v<Float, __nv_bfloat16>;
  if constexpr (signs) {
    const unsigned nonzero = (((word & 0x007f007f) + 0x007f007f) | word) & 0x00800080;
    return nonzero * (bf16 ? 127 /* 0x3f80 */ : 120 /* 0x3c00 */) | (word & 0x00800080) << 8;
  } else if constexpr (bf16) {
    // A mantissa has seven bits: 128 + the low seven, less 128 or, of negative ones, 256.
    const unsigned low = (word & 0x007f007f) | 0x43004300, high = (word & 0x00800080) | 0x43004300;
    unsigned difference;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(low), "r"(high));
    return difference;
  } else {
    const unsigned biased = (word & 0x00ff00ff) ^ 0x64806480;  // 1024 + 128 + code
    unsigned difference;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(biased), "r"(0x64806480));
    return difference;
  }
}

template <class S, int registers>
__device__ void multiply(float (&acc)[registers], const unsigned (&left)[4], std::uint64_t right, int keep) {
  if constexpr (std::is_same_v<typename S::Float, __nv_bfloat16>)
    wgmma_bf16<S::transposed>(acc, left, right, keep);
  else
    wgmma_f16<S::transposed>(acc, left, right, keep);
}

template <class S>
class Block {
  static constexpr int steps = depth / 16;

 public:
  __device__ Block(const Args& p, char* shared) : p_(p) {
    base_ = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    if (threadIdx.x == 0) {
      for (int i = 0; i < S::stages; ++i) {
        hopper::init_barrier(full(i), 1);
        hopper::init_barrier(empty(i), consumer_warps);  // a lane of each consumer warp
      }
      hopper::publish_barriers();
    }
    __syncthreads();
  }

  /// Producer loop: one thread keeps the ring full.
  __device__ void produce() {
    hopper::prefetch(p_.codes);
    for (int i = 0; i < S::parts; ++i) hopper::prefetch(p_.parts[i]);
    for (int tile = blockIdx.x; tile < tiles(); tile += gridDim.x) {
      const Place place = place_of(tile);
      const Pixel row = pixel_of(place.row);
      Columns columns[S::units];
#pragma unroll
      for (int i = 0; i < S::units; ++i) columns[i] = columns_of(place.unit + i);
      Tap tap = tap_of(place.first_stage / p_.tap_stages);
      int part = place.first_stage % p_.tap_stages;
      for (int stage = place.first_stage; stage < place.end_stage; ++stage, advance()) {
        const Pixel pixel = p_.reads == Reads::code_windows ? pixel_of(stage * depth) : Pixel{};
        hopper::wait(empty(at_), parity_ ^ 1);
        hopper::arrive_expecting(full(at_), S::stage_bytes);
#pragma unroll
        for (int i = 0; i < S::units; ++i)
          if (i == 0 || !p_.wide) load_codes(codes_at(at_) + i * unit_bytes, columns[i], tap.number, part, pixel);
        for (int i = 0; i < S::parts; ++i) load_floats(floats_at(at_, i), p_.parts[i], place.row, row, tap, part);
        if (++part == p_.tap_stages) {
          part = 0;
          tap = tap_of(tap.number + 1);
        }
      }
    }
  }

  /// Consumer loop: a warpgroup multiplies and writes.
  __device__ void consume() {
    if constexpr (!S::transposed) {
      if (p_.pass.x != nullptr) {
        consume_into_gradients();
        return;
      }
    }
    const float gain = value_of(p_.gain);
    Extremes total = Extremes::none();
    for (int tile = blockIdx.x; tile < tiles(); tile += gridDim.x) {
      const Place place = place_of(tile);
      float acc[S::right / 2];
      multiply_stages(acc, place.end_stage - place.first_stage);
      write(acc, gain, place, total);
    }
    if (p_.totals == nullptr) return;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
      total.add({__shfl_xor_sync(~0u, total.min, mask), __shfl_xor_sync(~0u, total.max, mask),
                 __shfl_xor_sync(~0u, total.all_finite, mask)});
    if (lane() == 0) p_.totals[blockIdx.x * consumer_warps + 4 * group() + warp()] = total;
  }

 private:
  static __device__ int lane() { return threadIdx.x % 32; }
  static __device__ int warp() { return threadIdx.x % 128 / 32; }
  static __device__ int group() { return threadIdx.x / 128 - 1; }
  // Derived from the arguments on each use: the accumulators leave few registers to keep them in.
  __device__ int tap_units() const { return ceil_div(p_.tap_columns, unit); }
  __device__ int units() const { return p_.column_taps * tap_units(); }
  __device__ int column_tiles() const { return ceil_div(units(), S::units); }
  __device__ int row_tiles() const { return ceil_div(p_.rows, S::rows); }
  __device__ int tiles() const { return row_tiles() * column_tiles() * p_.splits; }
  __device__ unsigned full(int stage) const { return base_ + S::barriers_at + 8 * stage; }
  __device__ unsigned empty(int stage) const { return full(S::stages + stage); }
  __device__ unsigned floats_at(int stage, int part) const {
    return base_ + stage * S::stage_bytes + part * S::part_bytes;
  }
  __device__ unsigned codes_at(int stage) const { return floats_at(stage, S::parts); }
  __device__ void advance() {
    if (++at_ == S::stages) {
      at_ = 0;
      parity_ ^= 1;
    }
  }

  struct Place {
    int unit, row, split, first_stage, end_stage;
  };
  /// Tiles in bands of eight, so that blocks at work together share what they read: of columns or, where rows of memory
  /// are the depth, of rows, so that the end of a weight's gradient is what was written last.
  __device__ Place place_of(int tile) const {
    constexpr int band = 8;
    const int of_split = row_tiles() * column_tiles(), split = tile / of_split;
    tile -= split * of_split;
    const int across = S::transposed ? row_tiles() : column_tiles(),
              along = S::transposed ? column_tiles() : row_tiles();
    const int first = tile / (band * along) * band, inside = tile - first * along;
    const int height = min(band, across - first);
    const int in_band = first + inside % height, beside = inside / height;
    const auto stage_of = [&](int its_split) {
      return static_cast<int>(std::int64_t{p_.depth_taps * p_.tap_stages} * its_split / p_.splits);
    };
    return {(S::transposed ? beside : in_band) * S::units, (S::transposed ? in_band : beside) * S::rows, split,
            stage_of(split), stage_of(split + 1)};
  }

  /// Where the window of a row begins.
  struct Pixel {
    int x, y, image;
  };
  __device__ Pixel pixel_of(int row) const {
    const Windows& w = p_.windows;
    if (p_.reads == Reads::matrices) return {};
    const int image = row / w.plane, pixel = row - image * w.plane, line = pixel / w.out_w;
    return {(pixel - line * w.out_w) * w.stride_w - w.pad_w, line * w.stride_h - w.pad_h, image};
  }
  /// Where a tap of a window lies.
  struct Tap {
    int number, right, below;
  };
  __device__ Tap tap_of(int number) const {
    const Windows& w = p_.windows;
    if (p_.reads == Reads::matrices) return {number, 0, 0};
    const int line = number / w.kernel_w;
    return {number, (number - line * w.kernel_w) * w.dil_w, line * w.dil_h};
  }
  /// Columns of the result.
  struct Columns {
    Tap tap;
    int first;  ///< of its tap
  };
  __device__ Columns columns_of(int its_unit) const {
    const int tap = its_unit / tap_units();
    return {tap_of(tap), (its_unit - tap * tap_units()) * unit};
  }
  __device__ void load_codes(unsigned to, const Columns& columns, int tap, int part, const Pixel& pixel) const {
    if (p_.reads == Reads::code_windows)
      hopper::load_window(to, p_.codes, columns.first, pixel.x, pixel.y, pixel.image, columns.tap.right,
                          columns.tap.below, full(at_));
    else  // a weight's taps lie in the order in which an output reads them; an input is read by them in the other
      hopper::load_box(to, p_.codes, (p_.depth_taps - 1 - tap) * p_.tap_columns + columns.first, part * depth,
                       full(at_));
  }
  __device__ void load_floats(unsigned to, const CUtensorMap& map, int row, const Pixel& pixel, const Tap& tap,
                              int part) const {
    if constexpr (S::transposed) {
      for (int i = 0; i < S::rows; i += unit)
        hopper::load_box(to + i * depth * 2, map, row + i, part * depth, full(at_));
    } else if (p_.reads == Reads::float_windows) {
      hopper::load_window(to, map, part * depth, pixel.x, pixel.y, pixel.image, tap.right, tap.below, full(at_));
    } else {
      hopper::load_box(to, map, part * depth, row, full(at_));
    }
  }

  /// The warpgroup's rows of a part, from the depth's 16 `step` on.
  __device__ std::uint64_t floats_of(int part, int step) const {
    const unsigned from = floats_at(at_, part) + (S::shared ? group() * S::right * depth * 2 : 0);
    if constexpr (S::transposed)
      return hopper::transposed_tile_descriptor(from, unit * depth * 2) + step * (16 * 128 >> 4);
    else
      return hopper::tile_descriptor(from) + 2 * step;
  }

  using Left = unsigned[steps][4];  ///< codes of a stage, as floats

  /// acc = the tile's products: element 4 j + 2 half + e is column 16 warp + 2 (lane / 4) + half of the warpgroup's
  /// unit, row 8 j + lane % 4 * 2 + e of its floats. The codes of a stage are opened while those before are multiplied.
  __device__ void multiply_stages(float (&acc)[S::right / 2], int count) {
    Left even, odd;
    open_stage(even);
    for (int i = 0; i < count; i += 2) {
      multiply_stage(acc, even, odd, i, count);
      if (i + 1 < count) multiply_stage(acc, odd, even, i + 1, count);
    }
  }
  /// Multiplies the opened codes of stage i of `count`, and opens the next.
  __device__ void multiply_stage(float (&acc)[S::right / 2], Left& left, Left& next, int i, int count) {
    const int stage = at_;
    hopper::fence_products();
#pragma unroll
    for (int part = 0; part < S::parts; ++part)
#pragma unroll
      for (int step = 0; step < steps; ++step) multiply<S>(acc, left[step], floats_of(part, step), i + part + step > 0);
    hopper::commit_products();
    advance();
    if (i + 1 < count) open_stage(next);
    hopper::wait_products<0>();
    release(stage);
  }
  __device__ void open_stage(Left& left) const {
    unsigned words[steps][2];
    hopper::wait(full(at_), parity_);
    load_words(words);
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        left[step][2 * half] = opened<typename S::Float, S::signs>(words[step][half]);
        left[step][2 * half + 1] = opened<typename S::Float, S::signs>(words[step][half] >> 8);
      }
    hopper::pin(left);
  }

  /// Per step of 16 rows of codes: one word for the first eight rows and one for the last eight, each holding two
  /// neighbouring columns of two neighbouring rows.
  __device__ void load_words(unsigned (&words)[steps][2]) const {
    // Rows of 64 bytes, whose swizzle turns chunks by half the row's number, or of 128, where by the number.
    const int chunk = S::shared ? warp() : 4 * group() + warp();
    const int row_bytes = p_.wide ? 2 * unit : unit;
    const unsigned from =
        p_.wide ? codes_at(at_) + lane() * row_bytes + 16 * (chunk ^ lane() % 8)
                : codes_at(at_) + chunk / 4 * unit_bytes + lane() * row_bytes + 16 * (chunk % 4 ^ lane() / 2 % 4);
#pragma unroll
    for (int pair = 0; pair < steps / 2; ++pair) {
      unsigned(&to)[2] = words[2 * pair], (&next)[2] = words[2 * pair + 1];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(next[0]), "=r"(next[1])
                   : "r"(from + pair * 32 * row_bytes));
    }
  }
  __device__ void release(int stage) const {
    if (lane() == 0) hopper::arrive(empty(stage));
  }

  /// The lane's first element of a tile's result.
  struct Corner {
    int row, tap, column;  ///< column: of its tap
    bool inside;           ///< the same for all lanes of a warp
  };
  __device__ Corner corner_of(const Place& place) const {
    const int its_unit = place.unit + (S::shared ? 0 : group()), tap = its_unit / tap_units();
    const int column = (its_unit - tap * tap_units()) * unit + 16 * warp() + lane() / 4 * 2;
    return {place.row + (S::shared ? group() * S::right : 0) + lane() % 4 * 2, tap, column,
            its_unit < units() && column < p_.tap_columns};
  }

  __device__ void write(const float (&acc)[S::right / 2], float gain, const Place& place, Extremes& total) const {
    const Corner corner = corner_of(place);
    if (!corner.inside) return;
    float* const out = p_.out + place.split * p_.split_stride + corner.tap * p_.tap_columns + corner.column;
#pragma unroll
    for (int j = 0; j < S::right / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = corner.row + 8 * j + e;
        if (row >= p_.rows) continue;
        const float2 pair = make_float2(acc[4 * j + e] * gain, acc[4 * j + 2 + e] * gain);
        *reinterpret_cast<float2*>(out + row * p_.stride) = pair;
        total.add(Extremes::of(pair.x));
        total.add(Extremes::of(pair.y));
      }
  }

  /// Consumer loop whose epilogue computes an activation's gradients.
  __device__ void consume_into_gradients() {
    const float gain = value_of(p_.gain);
    double terms = 0;
    for (int tile = blockIdx.x; tile < tiles(); tile += gridDim.x) {
      float acc[S::right / 2];
      multiply_stages(acc, begin_tile(tile));
      forget_place(tile);
      if (const Corner corner = corner_of(place_of(tile)); corner.inside) {
        Two<float> sums{};
        with_estimator(p_.rule, value_of(p_.scale_a),
                       [&](const auto& estimator) { write_gradients(acc, gain, corner, estimator, terms, sums); });
        forget_place(tile);
        if (p_.pass.grad_bias != nullptr) write_sums(sums, place_of(tile));
      }
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) terms += __shfl_xor_sync(~0u, terms, mask);
    if (lane() == 0) p_.terms[blockIdx.x * consumer_warps + 4 * group() + warp()] = terms;
  }

  /// Hides from the compiler that the number stays the same, so that it makes the tile's place of it again: products
  /// and gradients leave no registers to keep the place in.
  static __device__ void forget_place(int& tile) { asm volatile("" : "+r"(tile)); }

  /// Returns the number of the tile's stages. Prefetches what the gradients read of the activation.
  __device__ int begin_tile(int tile) const {
    const Place place = place_of(tile);
    prefetch_activation(place);
    return place.end_stage - place.first_stage;
  }

  /// Prefetches the activation under this warpgroup's part of the tile into L2; the epilogue reads it after the
  /// product.
  __device__ void prefetch_activation(const Place& place) const {
    using X = typename S::Activation;
    constexpr int line = 128 / sizeof(X);
    const int column = (place.unit + (S::shared ? 0 : group())) * unit;
    const int row = place.row + (S::shared ? group() * S::right : 0) + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < S::right; i += 128)
#pragma unroll
      for (int j = 0; j < unit; j += line)
        if (threadIdx.x % 128 + i < S::right && row + i < p_.rows && column + j < p_.tap_columns)
          asm volatile(
              "prefetch.global.L2 [%0];" ::"l"(static_cast<const X*>(p_.pass.x) + (row + i) * p_.stride + column + j));
  }

  static constexpr int pairs = 4;  ///< of rows that a lane takes in a turn: 8 j and 8 j + 1
  static constexpr int turn_rows = 8 * pairs, turn_elements = 4 * pairs;

  /// The lane's columns of the rows of a turn, of which `left` are inside.
  template <class X>
  __device__ void read_turn(Two<X> (&to)[pairs][2], const X* from, int left) const {
#pragma unroll
    for (int j = 0; j < pairs; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        to[j][e] = 8 * j + e < left ? *reinterpret_cast<const Two<X>*>(from + (8 * j + e) * p_.stride) : Two<X>{};
  }

  /// Consumes `acc`: the rows of a step of the loop, whose turns are written out, are its first ones. Rows behind the
  /// end are products of zeros, whose gradients and terms are 0. `sums` are of the lane's columns.
  template <class Estimator>
  __device__ void write_gradients(float (&acc)[S::right / 2], float gain, const Corner& corner,
                                  const Estimator& estimator, double& terms, Two<float>& sums) const {
    using X = typename S::Activation;
    constexpr int turns = 2, step = turns * turn_elements;
    static_assert(S::right % (turns * turn_rows) == 0);
    Two<float> bias{};
    if (p_.pass.bias != nullptr) bias = *reinterpret_cast<const Two<float>*>(p_.pass.bias + corner.column);
    std::int64_t at = corner.row * p_.stride + corner.column;
    const X* const x = static_cast<const X*>(p_.pass.x);
    const bool wants_codes = p_.pass.codes != nullptr;
    int left = p_.rows - corner.row;
    Two<X> next[pairs][2];
    read_turn(next, x + at, left);
#pragma unroll 1
    for (int i = 0; i < S::right / (turns * turn_rows); ++i) {
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        Two<X> xs[pairs][2];
#pragma unroll
        for (int j = 0; j < pairs; ++j) xs[j][0] = next[j][0], xs[j][1] = next[j][1];
        const bool last = turn + 1 == turns && i + 1 == S::right / (turns * turn_rows);
        read_turn(next, x + at + turn_rows * p_.stride, last ? 0 : left - turn_rows);
#pragma unroll
        for (int j = 0; j < pairs; ++j) {
          float term = 0;
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            Two<float> grad;
            Two<std::int8_t> codes;
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const float up = acc[turn_elements * turn + 4 * j + 2 * c + e] * gain;
              const Estimate estimate = estimator(widen(xs[j][e].at[c]) + bias.at[c], up);
              sums.at[c] += estimate.grad;
              term += estimate.term;
              grad.at[c] = estimate.grad;
              codes.at[c] = narrow<std::int8_t>(estimate.code);
            }
            const std::int64_t here = at + (8 * j + e) * p_.stride;
            const bool inside = 8 * j + e < left;
            if (inside) *reinterpret_cast<Two<X>*>(static_cast<X*>(p_.pass.grad_x) + here) = narrow_two<X>(grad);
            if (inside & wants_codes) *reinterpret_cast<Two<std::int8_t>*>(p_.pass.codes + here) = codes;
          }
          terms += term;
        }
        at += turn_rows * p_.stride;
        left -= turn_rows;
      }
#pragma unroll
      for (int j = step; j < S::right / 2; ++j) acc[j - step] = acc[j];
    }
  }

  /// The bias's gradients, of the warpgroup's rows of a tile.
  __device__ void write_sums(Two<float> sums, const Place& place) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int mask = 1; mask < 4; mask *= 2) sums.at[i] += __shfl_xor_sync(~0u, sums.at[i], mask);
    const int range = place.row / S::right + (S::shared ? group() : 0);
    if (lane() % 4 == 0) *reinterpret_cast<Two<float>*>(p_.sums + range * p_.stride + corner_of(place).column) = sums;
  }

  const Args& p_;
  unsigned base_;
  int at_ = 0;  ///< the place in the ring
  unsigned parity_ = 0;
};

template <class S>
__global__ void __launch_bounds__(threads, 1) mixed_kernel(const __grid_constant__ Args p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];  // the swizzle needs this alignment
  Block<S> block(p, shared);
  if (threadIdx.x < 128) {
    hopper::give_registers<40>();
    if (threadIdx.x == 0) block.produce();
  } else {
    hopper::take_registers<232>();
    block.consume();
  }
#endif
}

template <class S>
Status launch_shape(const Args& args, std::int64_t blocks, const Queue& queue) {
  return launch(mixed_kernel<S>, blocks, threads, S::bytes, queue, args);
}

template <class Float, int parts, int rows>
Status launch_rows(const Choice& choice, const Args& args, std::int64_t blocks, const Queue& queue) {
  if constexpr (rows * parts >= 256)
    if (choice.shared)
      return choice.signs ? launch_shape<Shape<Float, rows, parts, true, false, true>>(args, blocks, queue)
                          : launch_shape<Shape<Float, rows, parts, true, false, false>>(args, blocks, queue);
  if (choice.transposed) return launch_shape<Shape<Float, rows, parts, false, true, false>>(args, blocks, queue);
  return choice.signs ? launch_shape<Shape<Float, rows, parts, false, false, true>>(args, blocks, queue)
                      : launch_shape<Shape<Float, rows, parts, false, false, false>>(args, blocks, queue);
}

template <class Float, int parts>
Status launch_choice(const Choice& choice, const Args& args, std::int64_t blocks, const Queue& queue) {
  if constexpr (parts == 1)
    if (choice.rows == 256) return launch_rows<Float, parts, 256>(choice, args, blocks, queue);
  return choice.rows == 128 ? launch_rows<Float, parts, 128>(choice, args, blocks, queue)
                            : launch_rows<Float, parts, 64>(choice, args, blocks, queue);
}

}  // namespace bie::kernels::cuda::mixed
