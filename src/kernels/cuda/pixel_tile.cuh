// A convolution of one tap in one pass over the image (wgmma, sm_90a). A block keeps the panels of its output channels
// in shared memory. Each of its warpgroups takes tile after tile of 64 output pixels: lanes copy the pixels' channels,
// eight at a time, through a ring of their own in shared memory, quantise them and hand them to the products as
// operands in registers.
//
// A product of 32 bytes wants words of lane q of four neighbours from two places, 4 q and 16 + 4 q of bytes, 32 q and
// 128 + 32 q of bits. Which channels these are is free as long as the panels have the same order, so that a lane reads
// channels 8 q ... 8 q + 7 of every 32.
#pragma once

#include <algorithm>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/encode_row.cuh"
#include "kernels/cuda/half_quantiser.cuh"
#include "kernels/cuda/pixel_kernels.cuh"
#include "kernels/cuda/poison.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/cuda/wgmma_boxes.cuh"

namespace bie::kernels::cuda {
namespace pixels {

/// Byte q of words 0 ... 3 in word q.
__device__ inline uint4 turned(const uint4& w) {
  const unsigned a = __byte_perm(w.x, w.y, 0x5140), b = __byte_perm(w.z, w.w, 0x5140),
                 c = __byte_perm(w.x, w.y, 0x7362), d = __byte_perm(w.z, w.w, 0x7362);
  return make_uint4(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632), __byte_perm(c, d, 0x5410),
                    __byte_perm(c, d, 0x7632));
}

/// Panel rows to shared memory: [blocks][columns] rows of 128 bytes, as tile_descriptor() has them, 0 behind the last
/// channel.
template <class Product, class Tile>
__device__ void load_panels(const PixelArgs& p, int first_column, char* to) {
  constexpr int at_once = 8, whole = Product::b_step == 16 ? 1 : 2;  // chunks of a step
  const int row_steps = 4 * p.blocks, all = Tile::columns * row_steps;
  for (int first = threadIdx.x; first < all; first += at_once * blockDim.x) {
    uint4 from[at_once][whole];
#pragma unroll
    for (int b = 0; b < at_once; ++b) {
      const int i = first + b * blockDim.x, column = first_column + i / row_steps, chunk = i % row_steps * whole;
      const auto* const row = reinterpret_cast<const uint4*>(p.panels + column * p.panel_stride);
#pragma unroll
      for (int c = 0; c < whole; ++c)
        from[b][c] = i < all && column < p.n && chunk + c < p.panel_chunks ? __ldg(row + chunk + c) : uint4{};
    }
#pragma unroll
    for (int b = 0; b < at_once; ++b) {
      const int i = first + b * blockDim.x, column = i / row_steps, step = i % row_steps;
      if (i >= all) break;
      uint4 front, back;
      if constexpr (Product::counts) {
        front = turned(from[b][0]), back = turned(from[b][1]);
      } else {
        uint4 low = from[b][0], high = from[b][whole - 1];
        if constexpr (Product::b_step == 16) {
          const auto opened = [](unsigned word) {
            unsigned pair[2];
            Product::widen_word(word, pair);
            return make_uint2(pair[0], pair[1]);
          };
          const uint2 x = opened(low.x), y = opened(low.y), z = opened(low.z), w = opened(low.w);
          low = make_uint4(x.x, y.x, z.x, w.x), high = make_uint4(x.y, y.y, z.y, w.y);
        }
        front = make_uint4(low.x, low.z, high.x, high.z), back = make_uint4(low.y, low.w, high.y, high.w);
      }
      uint4* const row = reinterpret_cast<uint4*>(to + (step / 4 * Tile::columns + column) * 128);
      row[(step % 4 * 2) ^ column % 8] = front;
      row[(step % 4 * 2 + 1) ^ column % 8] = back;
    }
  }
}

constexpr int lane_stride = 128 * 16;  ///< from a lane's 16 bytes in shared memory to its next ones

__device__ inline int group_number() { return threadIdx.x / 128; }

/// The pixels of a warpgroup's tiles on their way: a lane copies its share of two rows through a ring of its own and
/// reads what it has copied itself. pieces: of 32 channels, in a stage.
template <int pieces>
class Ring {
  static constexpr int stage_bytes = 2 * pieces * lane_stride;

 public:
  /// Starts loading the first stages.
  __device__ Ring(const PixelArgs& p, unsigned rings, int first_tile, int tile_step)
      : p_(p), tile_(first_tile), tile_step_(tile_step) {
    at_ = rings + group_number() * p.stages * stage_bytes + threadIdx.x % 128 * 16;
    find_rows();
    for (int stage = 0; stage < p.stages; ++stage) refill();
  }
  /// Reads the oldest stage.
  __device__ void read(uint4 (&raw)[2][pieces]) const {
    switch (p_.stages) {
      case 1: wait_copies<0>(); break;
      case 2: wait_copies<1>(); break;
      case 3: wait_copies<2>(); break;
      default: wait_copies<3>(); break;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < pieces; ++i)
        raw[half][i] = load_chunk(at_ + stage_ * stage_bytes + (half * pieces + i) * lane_stride);
  }
  /// Starts loading the next chunk of the pixels in place of the oldest stage; zeros behind the last channel.
  __device__ void refill() {
    if (tile_ < p_.tiles) {
      const unsigned to = at_ + stage_ * stage_bytes;
#pragma unroll
      for (int i = 0; i < pieces; ++i) {
        const int piece = pieces * chunk_ + i;
        const bool inside = 32 * piece + 8 * (threadIdx.x % 4) < p_.in_c;
#pragma unroll
        for (int half = 0; half < 2; ++half)
          copy_chunk(to + (half * pieces + i) * lane_stride, rows_[half] + (inside ? 4 * piece : 0), inside);
      }
      if (++chunk_ == p_.chunks) {
        chunk_ = 0;
        tile_ += tile_step_;
        find_rows();
      }
    }
    if (++stage_ == p_.stages) stage_ = 0;
    commit_copies();
  }

 private:
  /// Where the pixels of this lane's two rows begin; rows that are not there are the last one.
  __device__ void find_rows() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row =
          min(tile_ * tile_rows + threadIdx.x % 128 / 32 * 16 + 8 * half + threadIdx.x % 32 / 4, p_.rows - 1);
      std::int64_t pixel = row;
      if (p_.stride_h != 1 || p_.stride_w != 1) {
        const int image = row / p_.plane, rest = row - image * p_.plane, y = rest / p_.out_w, x = rest - y * p_.out_w;
        pixel = (std::int64_t{image} * p_.in_h + y * p_.stride_h) * p_.in_w + x * p_.stride_w;
      }
      rows_[half] = reinterpret_cast<const uint4*>(p_.x + 2 * pixel * p_.in_c) + threadIdx.x % 4;
    }
  }

  const PixelArgs& p_;
  unsigned at_;
  const uint4* rows_[2];
  int tile_, tile_step_, chunk_ = 0, stage_ = 0;
};

/// One warpgroup's work. T: the elements of the image; simple: without a bias, and codes are a HalfQuantiser's.
template <class Product, class Tile, class T, int pieces, bool simple>
class Group {
  static constexpr bool bits = Product::counts;
  static constexpr int columns = Tile::columns;
  static constexpr int steps = bits ? 1 : pieces;  ///< whose operands are kept
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

 public:
  __device__ Group(const PixelArgs& p, unsigned panels) : p_(p), panels_(panels) {}

  /// Returns whether all that it read was finite. `ones`: of the panels of bits.
  template <class Codes>
  __device__ bool work(Ring<pieces>* pixels, int first_tile, int tile_step, int first_column, unsigned boxes,
                       const int* ones, float scale, const Codes& quantiser) {
    const Writer writer(p_.y, p_.n, scale, false);
    int turn = 0;
#pragma unroll 1
    for (int tile = first_tile; tile < p_.tiles; tile += tile_step) {
      int acc[columns / 2], row_ones[2] = {};
      unsigned a[steps][4];
#pragma unroll 1
      for (int chunk = 0; chunk < p_.chunks; ++chunk) {
        uint4 raw[2][pieces];
        pixels->read(raw);
        if (!bits || chunk % 2 == 0) hopper::wait_products<0>();
        encode(raw, chunk, quantiser, a, row_ones);
        hopper::pin(a);  // what was read is used
        pixels->refill();
        multiply(acc, a, chunk);
      }
      hopper::wait_products<0>();
      hopper::pin(acc);
      if constexpr (bits) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          for (int by = 1; by < 4; by *= 2) row_ones[half] += __shfl_xor_sync(0xffffffffu, row_ones[half], by);
      }
      wgmma::write_boxes<false, columns>(
          p_.out, boxes + group_number() * boxes_bytes, &turn, group_number() + 1, p_.y.dtype, writer, tile * tile_rows,
          first_column, [&](int j, int half) {
            int2 right{};
            if constexpr (bits) right = *reinterpret_cast<const int2*>(ones + 8 * j + lane() % 4 * 2);
            return make_int2(Product::finish(acc[4 * j + 2 * half], p_.in_c, row_ones[half], right.x),
                             Product::finish(acc[4 * j + 2 * half + 1], p_.in_c, row_ones[half], right.y));
          });
    }
    if (threadIdx.x % 128 == 0) hopper::wait_stores<0>();
    return finite_ && (zero_ & 0x7fff7fffu) == 0;
  }

 private:
  static __device__ int lane() { return threadIdx.x % 32; }

  /// The operands of a chunk; of bits one of the two halves of a step's.
  template <class Codes>
  __device__ void encode(const uint4 (&raw)[2][pieces], int chunk, const Codes& quantiser, unsigned (&a)[steps][4],
                         int (&row_ones)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned signs = 0;
#pragma unroll
      for (int i = 0; i < pieces; ++i) {
        const int channel = 32 * (pieces * chunk + i) + 8 * (lane() % 4);
        const unsigned words[4] = {raw[half][i].x, raw[half][i].y, raw[half][i].z, raw[half][i].w};
        float xs[simple ? 1 : 8];
        if constexpr (simple) {
          Pair& zero = reinterpret_cast<Pair&>(zero_);
#pragma unroll
          for (int w = 0; w < 4; ++w) zero = __hfma2(pair_of(words[w]), none(), zero);
        } else {
          open(words, channel, xs);
        }
        if constexpr (bits) {
          const unsigned byte = simple ? signs_of(words) : signs_of(xs);
          signs |= (channel < p_.in_c ? byte : 0) << 8 * i;
        } else if constexpr (simple) {
          a[i][half] = quantiser.bytes(words[0], words[1]);
          a[i][2 + half] = quantiser.bytes(words[2], words[3]);
        } else {
          unsigned codes[2];
          quantiser.bytes(xs, codes);
          a[i][half] = codes[0];
          a[i][2 + half] = codes[1];
        }
      }
      if constexpr (bits) {
        row_ones[half] += __popc(signs);
        if (chunk % 2 == 0) {
          a[0][half] = signs;
          a[0][2 + half] = 0;
        } else {
          a[0][2 + half] = signs;
        }
      }
    }
  }
  /// x + bias of eight channels.
  __device__ void open(const unsigned (&words)[4], int channel, float (&xs)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) xs[j] = widen(reinterpret_cast<const T*>(words)[j]);
    if (p_.bias != nullptr && channel < p_.in_c) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const float4 bias = __ldg(reinterpret_cast<const float4*>(p_.bias + channel) + part);
        const float add[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) xs[4 * part + j] = __fadd_rn(xs[4 * part + j], add[j]);
      }
    }
    finite_ = finite_ && all_finite(xs);
  }
  static __device__ unsigned signs_of(const unsigned (&words)[4]) {
    unsigned pairs = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) pairs |= __hge2_mask(pair_of(words[w]), none()) & 0x00020001u << 2 * w;
    return (pairs | pairs >> 16) & 255u;
  }
  template <int count>
  static __device__ unsigned signs_of(const float (&xs)[count]) {
    unsigned byte = 0;
#pragma unroll
    for (int j = 0; j < count; ++j) byte |= static_cast<unsigned>(xs[j] >= 0) << j;
    return byte;
  }

  __device__ void multiply(int (&acc)[columns / 2], unsigned (&a)[steps][4], int chunk) const {
    if constexpr (bits) {
      if (chunk % 2 == 0 && chunk + 1 < p_.chunks) return;
      const int step = chunk / 2;
      start(acc, a);
      wgmma_b1(acc, a[0], operand(step / 4) + 2 * (step % 4), step > 0);
    } else {
      start(acc, a);
#pragma unroll
      for (int i = 0; i < steps; ++i) wgmma_s8(acc, a[i], operand(chunk) + 2 * i, chunk + i > 0);
    }
    hopper::commit_products();
  }
  static __device__ void start(int (&acc)[columns / 2], unsigned (&a)[steps][4]) {
    hopper::pin(a);
    hopper::pin(acc);
    hopper::fence_products();
  }
  __device__ std::uint64_t operand(int block) const { return hopper::tile_descriptor(panels_ + block * columns * 128); }

  static __device__ Pair pair_of(unsigned word) { return reinterpret_cast<const Pair&>(word); }
  static __device__ Pair none() { return {T{0.0f}, T{0.0f}}; }

  const PixelArgs& p_;
  unsigned panels_;
  unsigned zero_ = 0;  ///< stays so unless an element is NaN or infinite
  bool finite_ = true;
};

template <class Product, class Tile, class T>
__global__ void __launch_bounds__(128 * Tile::groups, 1) kernel(const __grid_constant__ PixelArgs p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];
  let_next_start();
  // The grid is a multiple of the tiles across: a block keeps its columns.
  const int across = (p.n + Tile::columns - 1) / Tile::columns, down = gridDim.x / across;
  const int first_column = static_cast<int>(blockIdx.x) % across * Tile::columns;
  const int boxes_at = p.blocks * Tile::columns * 128, rings_at = boxes_at + p.groups * boxes_bytes;
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int first_tile = static_cast<int>(blockIdx.x) / across + group_number() * down, tile_step = down * p.groups;
  wait_for_previous_kernel();
  // Load all of them before the first use.
  const float step = Product::counts ? 1 : fmaxf(value_of(p.scale), p.eps), asked = scale_of(p.y);
  const bool flagged = own_flag(p.panel_flags);
  const auto work = [&](auto pieces) {
    Ring<pieces.value> pixels(p, base + rings_at, first_tile, tile_step);
    int* const ones = reinterpret_cast<int*>(shared + rings_at + p.groups * p.stages * pieces.value * 64 * 64);
    load_panels<Product, Tile>(p, first_column, shared);
    if constexpr (Product::counts) {
      for (int c = threadIdx.x; c < Tile::columns; c += blockDim.x)
        ones[c] = first_column + c < p.n ? p.panel_ones[first_column + c] : 0;
    }
    hopper::before_stores();  // products read shared memory as the TMA does
    const float scale = __syncthreads_or(flagged) != 0 ? __int_as_float(0x7fc00000) : asked;
    const auto with = [&](auto simple, const auto& quantiser) {
      Group<Product, Tile, T, pieces.value, simple.value> group(p, base);
      return group.work(&pixels, first_tile, tile_step, first_column, base + boxes_at, ones, scale, quantiser);
    };
    if constexpr (Product::counts) {
      return p.bias == nullptr ? with(std::true_type{}, nullptr) : with(std::false_type{}, nullptr);
    } else {
      const HalfQuantiser<T> quantiser(step, p.range);
      return p.bias == nullptr && quantiser.settled() ? with(std::true_type{}, quantiser)
                                                      : with(std::false_type{}, Quantiser(step, p.range));
    }
  };
  const bool finite =
      stage_pieces(p.in_c) == 2 ? work(std::integral_constant<int, 2>{}) : work(std::integral_constant<int, 4>{});
  const int bad = __syncthreads_or(!finite);
  if (threadIdx.x == 0) p.flags[blockIdx.x] = bad;
#endif
}

}  // namespace pixels

template <class Product, class Tile>
Status launch_pixels(PixelArgs p, int* flags, const Queue& queue) {
  const Gpu* facts = nullptr;
  Status status = gpu(queue.device, &facts);
  if (status != Status::ok) return status;
  status = make_tensor_map(p.y.data, p.rows, p.n, 2, std::int64_t{2} * p.n, {64, wgmma::box_rows}, &p.out);
  if (status != Status::ok) return status;
  // Keep as many stages in flight as shared memory has room for.
  for (int groups = Tile::groups; groups > 0; --groups)
    for (int stages = pixels::most_stages; stages >= pixels::least_stages; --stages)
      if (groups * stages > p.groups * p.stages &&
          pixels::shared_bytes<Product, Tile>(p.in_c, groups, stages) <= most_hopper_shared)
        p.groups = groups, p.stages = stages;
  const std::int64_t shared = pixels::shared_bytes<Product, Tile>(p.in_c, p.groups, p.stages);
  const std::int64_t across = (p.n + Tile::columns - 1) / Tile::columns;
  const std::int64_t most =
      std::max<std::int64_t>(1, std::min<std::int64_t>(most_flags, facts->multiprocessors) / across);
  const std::int64_t down = std::min<std::int64_t>(most, p.tiles);
  const std::int64_t blocks = down * across;
  p.flags = flags;
  const auto start = [&](auto element) {
    return launch_beside(pixels::kernel<Product, Tile, decltype(element)>, blocks, 128 * p.groups,
                         static_cast<std::size_t>(shared), queue, p);
  };
  status = p.y.dtype == Dtype::f16 ? start(__half{}) : start(__nv_bfloat16{});
  if (status != Status::ok) return status;
  return poison(p.y.data, p.y.dtype, std::int64_t{p.rows} * p.n, {flags, static_cast<int>(blocks)}, queue);
}

}  // namespace bie::kernels::cuda
