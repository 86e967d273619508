// The product on Hopper's warpgroup instructions (wgmma, sm_90a). One warp of a block keeps a ring of stages in shared
// memory filled by the TMA; each consumer warpgroup multiplies 64 rows of the left tile with the right tile and writes
// its part of the results, while the ring already fills for the next tile. Blocks stay and take tile after tile.
//
// Rows of activations are those of a matrix or the windows of a convolution, which the TMA reads from the image tap by
// tap. The left operand is the activation, or the weight where few rows of activations would leave most of its 64 rows
// empty and where 4-bit weights are opened in registers, which only the left operand may come from.
#pragma once

#include <algorithm>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tile_args.cuh"
#include "kernels/cuda/tiles.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/cuda/wgmma_boxes.cuh"

namespace bie::kernels::cuda {

/// The taps of windows; of a matrix one, the whole row.
struct Taps {
  int count, parts;  ///< parts: stages of a tap
  int bytes;         ///< of a tap in a panel row
  int kernel_w, dil_h, dil_w;
  int out_w, plane;  ///< plane: output pixels of an image
  int stride_h, stride_w, pad_h, pad_w;
};

struct WgmmaArgs {
  CUtensorMap left, right, out;
  Taps taps;
  int left_rows, right_rows, stages, k;
  const int *left_ones, *right_ones;  ///< 1-bit only
  Results y;
  bool boxes;  ///< results leave by TMA
  int m, n;
  Flags flags, panel_flags;
};

namespace wgmma {

constexpr int row_bytes = 128;  ///< per stage
constexpr int steps = row_bytes / 32;
static_assert(row_bytes == box_row_bytes);

template <class Product>
constexpr bool left_in_registers = Product::b_step == 16;

template <class Product, class Shape>
struct Layout {
  static constexpr int left_row = left_in_registers<Product> ? row_bytes / 2 : row_bytes;
  static constexpr int left_bytes = Shape::left * left_row, right_bytes = Shape::right * row_bytes;
  static constexpr int stage_bytes = left_bytes + right_bytes;
  static constexpr int box_bytes =
      (Shape::weight_left && Shape::right < box_rows ? Shape::right : box_rows) * row_bytes;
  static constexpr int boxes_bytes = Shape::consumers * 2 * box_bytes;
  static constexpr int ones_bytes = Product::counts ? Shape::consumers * Shape::right * 4 : 0;
  static constexpr int most = 227 * 1024 - 256 /* barriers */;
  static constexpr int fitting = (most - boxes_bytes - ones_bytes) / stage_bytes;
  static constexpr int most_stages = 16, stages = fitting < most_stages ? fitting : most_stages;
  static constexpr int boxes_at = stages * stage_bytes, ones_at = boxes_at + boxes_bytes;
  static constexpr int barriers_at = ones_at + ones_bytes, bytes = barriers_at + stages * 16;
  static_assert(stages >= 2 && Shape::left == 64 * Shape::consumers);
};

/// Tiles in bands of eight left ones, so that blocks at work together share what they read.
struct Place {
  int left, right;
};
__device__ inline Place place_of(int tile, int left_tiles, int right_tiles) {
  constexpr int band = 8;
  const int first = tile / (band * right_tiles) * band, inside = tile - first * right_tiles;
  const int height = min(band, left_tiles - first);
  return {first + inside % height, inside / height};
}

/// A place in the ring.
template <int stages>
struct Cursor {
  int stage = 0;
  unsigned parity = 0;
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Adds the products of a stage in shared memory.
template <class Product, int registers>
__device__ void multiply(int (&acc)[registers], std::uint64_t left, std::uint64_t right, int keep) {
  if constexpr (Product::counts)
    wgmma_b1(acc, left, right, keep);
  else
    wgmma_s8(acc, left, right, keep);
}

/// One block's work. Threads 0 ... 127 are the producer, of which one works; the others are consumers.
template <class Product, class Shape, class Source>
class Block {
  using L = Layout<Product, Shape>;
  static constexpr int columns_a_thread = Shape::right / 4;  ///< neighbours in pairs, two rows of each
  static constexpr bool windows = std::is_same_v<Source, WindowRows>;

 public:
  __device__ Block(const WgmmaArgs& p, char* shared) : p_(p) {
    base_ = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    ones_ = reinterpret_cast<int*>(shared + L::ones_at);
    left_tiles_ = (p.left_rows + Shape::left - 1) / Shape::left;
    right_tiles_ = (p.right_rows + Shape::right - 1) / Shape::right;
    if (threadIdx.x == 0) {
      for (int i = 0; i < L::stages; ++i) {
        hopper::init_barrier(full(i), 1);
        hopper::init_barrier(empty(i), 4 * Shape::consumers);  // a lane of each consumer warp
      }
      hopper::publish_barriers();
    }
    __syncthreads();
  }

  /// Producer loop: one thread keeps the ring full.
  __device__ void produce() {
    hopper::prefetch(p_.left);
    hopper::prefetch(p_.right);
    // The weight does not depend on the previous kernel; the activation does.
    const int early = min(L::stages, p_.stages);
    const Origin first = origin_of(first_tile());
    Depth depth;
    for (int i = 0; i < early; ++i, advance(&depth)) {
      hopper::arrive_expecting(full(i), L::stage_bytes);
      load_weight(first, depth, i);
    }
    wait_for_previous_kernel();
    let_next_start();
    depth = {};
    for (int tile = first_tile(); tile < tiles(); tile += tile_step(), depth = {}) {
      const Origin from = origin_of(tile);
      for (int i = 0; i < p_.stages; ++i, advance(&depth), at_.advance()) {
        if (tile != first_tile() || i >= early) {
          hopper::wait(empty(at_.stage), at_.parity ^ 1);
          hopper::arrive_expecting(full(at_.stage), L::stage_bytes);
          load_weight(from, depth, at_.stage);
        }
        load_activation(from, depth, at_.stage);
      }
    }
  }

  /// Consumer loop: a warpgroup multiplies and writes.
  __device__ void consume() {
    wait_for_previous_kernel();
    const float scale = scale_of(p_.y);
    const bool poisoned = hopper::any_of_warpgroup(barrier(), flagged());
    const Writer writer(p_.y, p_.n, scale, poisoned);
    const Quantiser quantiser = quantiser_of(p_.y);
    for (int tile = first_tile(); tile < tiles(); tile += tile_step()) {
      const Place place = place_of(tile, left_tiles_, right_tiles_);
      const int first_right = place.right * Shape::right;
      const int first_left = place.left * Shape::left + 64 * group();
      const Ones ones = ask_for_ones(first_left, first_right);
      int acc[2 * columns_a_thread];
      if (staggered() && tile == first_tile() && group() == 1) hopper::sync_block(stagger);
      multiply_stages(acc);
      if (staggered() && tile == first_tile() && group() == 0) hopper::arrive_block(stagger);
      share_ones(ones, first_right, writer);
      if (p_.boxes)
        write_boxes<Shape::weight_left, Shape::right>(p_.out, base_ + L::boxes_at + 2 * group() * L::box_bytes, &box_,
                                                      barrier(), p_.y.dtype, writer, first_left, first_right,
                                                      [&](int j, int half) { return results(acc, ones, j, half); });
      else
        write(acc, ones, writer, quantiser, first_left, first_right);
    }
    if (thread() == 0) hopper::wait_stores<0>();
  }

 private:
  static constexpr int asked = (Shape::right + 127) / 128;
  static constexpr int stagger = Shape::consumers + 1;  ///< behind the warpgroups' own barriers

  /// Where the ring holds all stages of a tile, the second warpgroup begins a tile behind the first, so that from then
  /// on one writes while the other multiplies.
  __device__ bool staggered() const { return Shape::consumers == 2 && p_.stages <= L::stages; }

  /// Popcounts of this thread's two left rows and of its share of the right rows.
  struct Ones {
    int left[2], right[asked];
  };

  static __device__ int thread() { return threadIdx.x % 128; }
  static __device__ int lane() { return threadIdx.x % 32; }
  static __device__ int warp() { return threadIdx.x % 128 / 32; }
  static __device__ int group() { return threadIdx.x / 128 - 1; }
  static __device__ int barrier() { return group() + 1; }
  static __device__ int first_tile() { return blockIdx.x; }
  static __device__ int tile_step() { return gridDim.x; }
  __device__ int tiles() const { return left_tiles_ * right_tiles_; }
  __device__ unsigned full(int stage) const { return base_ + L::barriers_at + 8 * stage; }
  __device__ unsigned empty(int stage) const { return full(L::stages + stage); }

  /// A stage's part of a row.
  struct Depth {
    int tap = 0, part = 0, i = 0, j = 0;  ///< tap = i * kernel_w + j
  };
  __device__ void advance(Depth* at) const {
    if (++at->part < p_.taps.parts) return;
    at->part = 0;
    ++at->tap;
    if (++at->j < p_.taps.kernel_w) return;
    at->j = 0;
    ++at->i;
  }
  /// A tile's first weight row, its first activation row, and of windows the place of that one.
  struct Origin {
    int weight, row, x, y, image;
  };
  __device__ Origin origin_of(int tile) const {
    const Place place = place_of(tile, left_tiles_, right_tiles_);
    const int left = place.left * Shape::left, right = place.right * Shape::right;
    Origin from{Shape::weight_left ? left : right, Shape::weight_left ? right : left, 0, 0, 0};
    if constexpr (windows) {
      const Taps& t = p_.taps;
      from.image = from.row / t.plane;
      const int pixel = from.row - from.image * t.plane, line = pixel / t.out_w;
      from.y = line * t.stride_h - t.pad_h;
      from.x = (pixel - line * t.out_w) * t.stride_w - t.pad_w;
    }
    return from;
  }
  __device__ void load_weight(const Origin& from, const Depth& at, int stage) const {
    constexpr int piece = Shape::weight_left ? L::left_row : row_bytes;
    hopper::load_box(base_ + stage * L::stage_bytes + (Shape::weight_left ? 0 : L::left_bytes),
                     Shape::weight_left ? p_.left : p_.right, at.tap * p_.taps.bytes + at.part * piece, from.weight,
                     full(stage));
  }
  __device__ void load_activation(const Origin& from, const Depth& at, int stage) const {
    const unsigned to = base_ + stage * L::stage_bytes + (Shape::weight_left ? L::left_bytes : 0);
    const CUtensorMap& map = Shape::weight_left ? p_.right : p_.left;
    if constexpr (windows)
      hopper::load_window(to, map, at.part * row_bytes, from.x, from.y, from.image, at.j * p_.taps.dil_w,
                          at.i * p_.taps.dil_h, full(stage));
    else
      hopper::load_box(to, map, at.part * row_bytes, from.row, full(stage));
  }
  __device__ void release(int stage) const {
    if (lane() == 0) hopper::arrive(empty(stage));
  }

  /// Whether this thread's share of the flags holds one. The flags of few blocks are loaded at once.
  __device__ bool flagged() const {
    const auto at = [](const Flags& flags, int i) { return i < flags.count ? flags.data[i] : 0; };
    int any = at(p_.flags, thread()) | at(p_.panel_flags, thread());
    for (int i = thread() + 128; i < p_.flags.count; i += 128) any |= p_.flags.data[i];
    for (int i = thread() + 128; i < p_.panel_flags.count; i += 128) any |= p_.panel_flags.data[i];
    return any != 0;
  }

  /// Loads the popcounts before the product; the epilogue needs them.
  __device__ Ones ask_for_ones(int first_left, int first_right) const {
    Ones ones{};
    if constexpr (Product::counts) {
      const auto of_row = [](const int* all, int row, int rows) { return row < rows ? all[row] : 0; };
      for (int half = 0; half < 2; ++half)
        ones.left[half] = of_row(p_.left_ones, first_left + 16 * warp() + 8 * half + lane() / 4, p_.left_rows);
#pragma unroll
      for (int i = 0; i < asked; ++i)
        ones.right[i] = of_row(p_.right_ones, first_right + thread() + 128 * i, p_.right_rows);
    }
    return ones;
  }
  /// Whether results of signs become signs: the right popcounts are then shared as the bounds that 4 acc - 2 ones of
  /// the left row is compared with.
  __device__ bool compares() const {
    return !windows && Product::counts && !Shape::weight_left && p_.y.dtype == Dtype::bits;
  }
  /// Stores each thread's right popcounts in shared memory for the warpgroup.
  __device__ void share_ones(const Ones& ones, int first_right, const Writer& writer) const {
    if constexpr (Product::counts) {
      hopper::sync_warpgroup(barrier());  // the last tile's have been read
#pragma unroll
      for (int i = 0; i < asked; ++i) {
        const int at = thread() + 128 * i;
        if (at >= Shape::right) continue;
        int shared = ones.right[i];
        if (compares()) shared = least_of_sign(p_.y, writer, first_right + at, p_.n, p_.k) - p_.k + 2 * shared;
        ones_[group() * Shape::right + at] = shared;
      }
      hopper::sync_warpgroup(barrier());
    }
  }

  /// acc = the tile's products: element 4 j + 2 half + c is row 16 warp + 8 half + lane / 4, column 8 j + lane % 4 * 2
  /// + c.
  __device__ void multiply_stages(int (&acc)[2 * columns_a_thread]) {
    int before = 0;  // the stage whose products may still be at work
    for (int i = 0; i < p_.stages; ++i, at_.advance()) {
      const unsigned left = base_ + at_.stage * L::stage_bytes, right = left + L::left_bytes;
      hopper::wait(full(at_.stage), at_.parity);
      if constexpr (left_in_registers<Product>) {
        unsigned words[steps][2], codes[steps][4];
        load_words(left, words);
        hopper::wait_products<0>();
        if (i > 0) release(before);
#pragma unroll
        for (int step = 0; step < steps; ++step)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            unsigned opened[2];
            Product::widen_word(words[step][half], opened);
            codes[step][half] = opened[0];
            codes[step][half + 2] = opened[1];
          }
        hopper::pin(codes);
        hopper::pin(acc);
        hopper::fence_products();
#pragma unroll
        for (int step = 0; step < steps; ++step)
          wgmma_s8(acc, codes[step], hopper::tile_descriptor(right) + 2 * step, i + step > 0);
        hopper::commit_products();
      } else {
        const std::uint64_t l = hopper::tile_descriptor(left + 64 * group() * row_bytes);
        const std::uint64_t r = hopper::tile_descriptor(right);
        hopper::fence_products();
#pragma unroll
        for (int step = 0; step < steps; ++step) multiply<Product>(acc, l + 2 * step, r + 2 * step, i + step > 0);
        hopper::commit_products();
        hopper::wait_products<1>();
        if (i > 0) release(before);
      }
      before = at_.stage;
    }
    hopper::wait_products<0>();
    release(before);
  }

  /// A stage's nibbles of this thread: of rows of 64 bytes, whose swizzle turns chunks by half the row's number.
  __device__ static void load_words(unsigned left, unsigned (&words)[steps][2]) {
    const unsigned from = left + (64 * group() + 16 * warp() + lane() / 4) * L::left_row + lane() % 4 * 4;
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(words[step][half])
                     : "r"(from + 8 * half * L::left_row + 16 * (step ^ lane() / 8)));
  }

  /// Two neighbouring results of a row.
  __device__ int2 results(const int (&acc)[2 * columns_a_thread], const Ones& ones, int j, int half) const {
    int2 right{};
    if constexpr (Product::counts)
      right = *reinterpret_cast<const int2*>(ones_ + group() * Shape::right + 8 * j + lane() % 4 * 2);
    return {Product::finish(acc[4 * j + 2 * half], p_.k, ones.left[half], right.x),
            Product::finish(acc[4 * j + 2 * half + 1], p_.k, ones.left[half], right.y)};
  }

  __device__ void write(const int (&acc)[2 * columns_a_thread], const Ones& ones, const Writer& writer,
                        const Quantiser& quantiser, int first_left, int first_right) const {
    if constexpr (windows) {
      if (p_.y.plane_run == 8) return write_planes<8>(acc, ones, writer, first_left, first_right);
      if (p_.y.plane_run == 2) return write_planes<2>(acc, ones, writer, first_left, first_right);
    }
    if constexpr (!windows) {
      if (compares()) return write_signs(acc, ones, writer, first_left, first_right);
      if (p_.y.codes())
        return write_codes(acc, ones, CodeWriter(p_.y, p_.n, writer, quantiser), first_left, first_right);
    }
    write_directly(acc, ones, writer, first_left, first_right);
  }

  /// Signs of the results of signs, 32 columns in a word.
  __device__ void write_signs(const int (&acc)[2 * columns_a_thread], const Ones& ones, const Writer& writer,
                              int first_left, int first_right) const {
    constexpr int words = Shape::right / 32;
    const unsigned flip = writer.falls() ? ~0u : 0;
    const int q = lane() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_left + 16 * warp() + 8 * half + lane() / 4, of_row = 2 * ones.left[half];
      unsigned mine = 0;
#pragma unroll
      for (int w = 0; w < words; ++w) {
        unsigned word = 0;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const int j = 4 * w + part;
          const int2 least = *reinterpret_cast<const int2*>(ones_ + group() * Shape::right + 8 * j + 2 * q);
          if (4 * acc[4 * j + 2 * half] - of_row >= least.x) word |= 1u << 8 * part;
          if (4 * acc[4 * j + 2 * half + 1] - of_row >= least.y) word |= 2u << 8 * part;
        }
        word <<= 2 * q;
        word |= __shfl_xor_sync(0xffffffffu, word, 1);
        word |= __shfl_xor_sync(0xffffffffu, word, 2);
        if (w % 4 == q) mine = word ^ flip;
        if (w % 4 == 3 && row < p_.m) put_word(writer.row(row), first_right + 32 * (w - 3 + q), mine);
      }
    }
  }
  /// Signs of 32 columns, 0 behind the last one.
  __device__ void put_word(char* row, int column, unsigned word) const {
    const int left = p_.n - column;
    if (left >= 32 && p_.y.eights) {
      *reinterpret_cast<unsigned*>(row + column / 8) = word;
      return;
    }
    if (left < 32) word &= (1u << max(left, 0)) - 1;
#pragma unroll
    for (int byte = 0; byte < 4; ++byte)
      if (8 * byte < left) row[column / 8 + byte] = static_cast<char>(word >> 8 * byte);
  }

  /// Codes of the next layer: a lane writes those of eight neighbouring columns of the result.
  __device__ void write_codes(const int (&acc)[2 * columns_a_thread], const Ones& ones, const CodeWriter& writer,
                              int first_left, int first_right) const {
    // Four matrices of eight by eight at a time: on the left the weight's two halves, on the right its four neighbours.
    const auto right_of = [](int m) { return Shape::weight_left ? m / 2 : m % 4 + m / 8 * 4; };
    const auto half_of = [](int m) { return Shape::weight_left ? m % 2 : m / 4 % 2; };
    const auto left_of = [&](int m) { return first_left + 16 * warp() + 8 * half_of(m); };
#pragma unroll
    for (int m = 0; m < Shape::right / 4; m += 4) {
      int sums[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int2 pair = results(acc, ones, right_of(m + i), half_of(m + i));
        sums[2 * i] = pair.x, sums[2 * i + 1] = pair.y;
      }
      unsigned pairs[4];
      const auto column_of = [&](int i) {
        return Shape::weight_left ? left_of(m + i / 2) + lane() / 4
                                  : first_right + 8 * right_of(m + i / 2) + lane() % 4 * 2 + i % 2;
      };
      writer.code_pairs(sums, column_of, pairs);
      if constexpr (Shape::weight_left) {
#pragma unroll
        for (unsigned& pair : pairs) pair = transposed(pair);
      }
      const uint4 eight = transposed_quad(pairs[0], pairs[1], pairs[2], pairs[3]);
      const int mine = m + lane() % 4, right = first_right + 8 * right_of(mine);
      const int row = (Shape::weight_left ? right : left_of(mine)) + lane() / 4;
      if (row < p_.m) writer.put_codes(writer.row(row), Shape::weight_left ? left_of(mine) : right, eight);
    }
  }

  /// Writes results of any dtype and layout.
  __device__ void write_directly(const int (&acc)[2 * columns_a_thread], const Ones& ones, const Writer& writer,
                                 int first_left, int first_right) const {
#pragma unroll
    for (int j = 0; j < Shape::right / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_left + 16 * warp() + 8 * half + lane() / 4;
        const int column = first_right + 8 * j + lane() % 4 * 2;
        const int2 pair = results(acc, ones, j, half);
        if constexpr (Shape::weight_left) {
          if (column < p_.m) writer.put(writer.row(column), row, pair.x);
          if (column + 1 < p_.m) writer.put(writer.row(column + 1), row, pair.y);
        } else if (row < p_.m) {
          writer.put_pair(writer.row(row), column, pair.x, pair.y);
        }
      }
  }

  /// 16-bit planes, of which `run` pixels, as Results::plane_run has it, can be written at once.
  template <int run>
  __device__ void write_planes(const int (&acc)[2 * columns_a_thread], const Ones& ones, const Writer& writer,
                               int first_left, int first_right) const {
    // Matrices of eight pixels by eight channels: where the weight is on the left, of both halves of its 16 rows in
    // turn.
    constexpr int matrices = Shape::right / 4;
    const auto pixel_of = [&](int m) {
      return Shape::weight_left ? first_right + 8 * (m % 4 + m / 8 * 4) : first_left + 16 * warp() + 8 * (m % 2);
    };
    const auto channel_of = [&](int m) {
      return (Shape::weight_left ? first_left + 16 * warp() + 8 * (m / 4 % 2) : first_right + 8 * (m / 2)) + lane() / 4;
    };
    const auto word_of = [&](int m) {
      const int j = Shape::weight_left ? m % 4 + m / 8 * 4 : m / 2, half = Shape::weight_left ? m / 4 % 2 : m % 2;
      const int2 pair = results(acc, ones, j, half);
      const unsigned word = writer.word(pair.x, pair.y);
      return Shape::weight_left ? word : transposed(word);
    };
    const int q = lane() % 4;
#pragma unroll
    for (int m = 0; m < matrices; m += 4) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = word_of(m + i);
      if constexpr (run == 8) {
        const uint4 pixels = transposed_quad(words[0], words[1], words[2], words[3]);
        const int pixel = pixel_of(m + q), channel = channel_of(m + q);
        if (pixel < p_.m && channel < p_.n) writer.put_pixels(writer.row(pixel), channel, pixels);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int pixel = pixel_of(m + i) + 2 * q, channel = channel_of(m + i);
          if (pixel < p_.m && channel < p_.n) writer.put_pixels(writer.row(pixel), channel, words[i]);
        }
      }
    }
  }

  const WgmmaArgs& p_;
  unsigned base_;
  int* ones_;
  int left_tiles_, right_tiles_;
  Cursor<L::stages> at_;
  int box_ = 0;
};

template <class Product, class Shape, class Source>
__global__ void __launch_bounds__(Shape::threads, 1) wgmma_kernel(const __grid_constant__ WgmmaArgs p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];  // the swizzle needs this alignment
  Block<Product, Shape, Source> block(p, shared);
  if (threadIdx.x < 128) {
    if constexpr (Shape::consumers > 1) hopper::give_registers<40>();
    if (threadIdx.x == 0) block.produce();
  } else {
    if constexpr (Shape::consumers > 1) hopper::take_registers<232>();
    block.consume();
  }
#endif
}

}  // namespace wgmma

/// The map of the activations, in boxes of so many rows, and their taps but for the bytes in a panel row.
inline Status map_activations(const MatrixRows& a, int m, int rows, CUtensorMap* map, Taps* taps) {
  const std::int64_t bytes = a.chunks * chunk_bytes;
  taps->count = taps->kernel_w = 1;
  taps->parts = static_cast<int>((bytes + wgmma::row_bytes - 1) / wgmma::row_bytes);
  return make_tensor_map(a.data, m, bytes, 1, a.stride, {wgmma::row_bytes, rows}, map);
}
inline Status map_activations(const WindowRows& a, int m, int rows, CUtensorMap* map, Taps* taps) {
  if (a.pixel_chunks == 0) return Status::bad_shape;
  const int count = a.chunks / a.pixel_chunks, plane = a.out_h * a.out_w,
            pixel_bytes = a.pixel_chunks * static_cast<int>(chunk_bytes);
  const WindowMap windows{m / plane,  a.in_h,     a.in_w,     pixel_bytes, count / a.kernel_w,
                          a.kernel_w, a.stride_h, a.stride_w, a.pad_h,     a.pad_w,
                          a.dil_h,    a.dil_w};
  if (!maps_windows(windows)) return Status::bad_shape;
  const int parts = (pixel_bytes + wgmma::row_bytes - 1) / wgmma::row_bytes;
  *taps = {count, parts, 0, a.kernel_w, a.dil_h, a.dil_w, a.out_w, plane, a.stride_h, a.stride_w, a.pad_h, a.pad_w};
  return make_window_map(a.data, windows, 1, {wgmma::row_bytes, rows}, map);
}

template <class Product, class Shape, class Source>
Status launch_wgmma(const TileArgs<Source>& args, const Queue& queue) {
  using L = wgmma::Layout<Product, Shape>;
  const Gpu* facts = nullptr;
  Status status = gpu(queue.device, &facts);
  if (status != Status::ok) return status;
  constexpr bool swap = Shape::weight_left;
  const std::int64_t b_bytes = args.panel_chunks * chunk_bytes;
  WgmmaArgs p{};
  CUtensorMap& a_map = swap ? p.right : p.left;
  CUtensorMap& b_map = swap ? p.left : p.right;
  status = map_activations(args.a, args.m, swap ? Shape::right : Shape::left, &a_map, &p.taps);
  if (status == Status::ok)
    status = make_tensor_map(args.panels, args.n, b_bytes, 1, args.panel_stride,
                             {swap ? L::left_row : wgmma::row_bytes, swap ? Shape::left : Shape::right}, &b_map);
  const std::int64_t element = row_bytes(args.y.dtype, 1);
  // The TMA writes whole pieces of 16 bytes.
  p.boxes = element == 2 && args.n % 8 == 0 && args.y.stride != 0 && args.y.stride % 16 == 0 &&
            reinterpret_cast<std::uintptr_t>(args.y.data) % 16 == 0;
  if (status == Status::ok && p.boxes)
    status = make_tensor_map(args.y.data, args.m, args.n, 2, args.y.stride,
                             {wgmma::row_bytes / 2, L::box_bytes / wgmma::row_bytes}, &p.out);
  if (status != Status::ok) return status;
  p.left_rows = swap ? args.n : args.m;
  p.right_rows = swap ? args.m : args.n;
  p.taps.bytes = static_cast<int>(b_bytes / p.taps.count);
  p.stages = p.taps.count * p.taps.parts;
  p.k = args.k;
  p.left_ones = swap ? args.panel_ones : args.ones;
  p.right_ones = swap ? args.ones : args.panel_ones;
  p.y = args.y;
  p.m = args.m;
  p.n = args.n;
  p.flags = args.flags;
  p.panel_flags = args.panel_flags;
  const std::int64_t tiles = (std::int64_t{p.left_rows} + Shape::left - 1) / Shape::left *
                             ((std::int64_t{p.right_rows} + Shape::right - 1) / Shape::right);
  if (tiles > INT32_MAX) return Status::bad_shape;
  const std::int64_t blocks = std::min<std::int64_t>(tiles, facts->multiprocessors);
  return launch_beside(wgmma::wgmma_kernel<Product, Shape, Source>, blocks, Shape::threads, L::bytes, queue, p);
}

}  // namespace bie::kernels::cuda
