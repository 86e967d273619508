// The tables of grouped convolutions on CUDA, best first: codes of all widths are bytes there, signs too.
#include "kernels/cuda/grouped_conv2d.cuh"

#include <iterator>

#include "bie/kernels/binary_conv2d.h"
#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "kernels/cuda/conv2d_kernels.cuh"
#include "kernels/cuda/encode_row.cuh"
#include "kernels/cuda/poison.cuh"

namespace bie::kernels::cuda {
namespace {

/// Traits of each code width: packed dtype, range and greatest depth.
struct Signs {
  static constexpr Dtype code = Dtype::bits;
  static constexpr Range range = range_s8;
  static constexpr std::int64_t max_k = max_k_b1;
};
struct Bytes {
  static constexpr Dtype code = Dtype::s8;
  static constexpr Range range = range_s8;
  static constexpr std::int64_t max_k = max_k_s8;
};
struct Nibbles {
  static constexpr Dtype code = Dtype::s4;
  static constexpr Range range = range_s4;
  static constexpr std::int64_t max_k = max_k_s4;
};

constexpr auto cut = cut_to_int;

template <class Width>
Status check(const Conv2dShape& s, const Image& x, const Conv2dOutput& y) {
  const Status checked = check_conv2d(s, {x.data, x.dtype, x.layout, x.bias, 1}, {y.data, y.dtype, y.layout, 1},
                                      Width::code == Dtype::bits ? Dtype::bits : Dtype::s8, Width::max_k);
  if (checked != Status::ok) return checked;
  for (const std::int64_t size :
       {s.batch, s.in_c, s.out_c, s.in_h, s.in_w, s.in_h * s.in_w, s.in_c * s.in_h * s.in_w, s.out_h() * s.out_w(),
        s.out_c * s.out_h() * s.out_w(), s.pad_h, s.pad_w, s.stride_h, s.stride_w, s.dil_h * s.kernel_h,
        s.dil_w * s.kernel_w, s.in_h + 2 * s.pad_h, s.in_w + 2 * s.pad_w, GroupWords(s).words(s)})
    if (size > INT32_MAX / 2) return Status::bad_shape;
  return Status::ok;
}

/// Fills the arguments that both kernels share.
template <class Width>
GroupArgs args_of(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y, int* flags) {
  const GroupWords g(s);
  GroupArgs p{};
  p.x = x.data, p.bias = x.bias, p.scale = x.scale, p.eps = x.eps;
  p.range = Width::range;
  p.signs = Width::code == Dtype::bits;
  p.pixels_first = x.layout == ImageLayout::nhwc;
  p.pad_code = s.pad_code;
  p.batch = cut(s.batch), p.in_c = cut(s.in_c), p.in_h = cut(s.in_h), p.in_w = cut(s.in_w);
  p.out_c = cut(s.out_c), p.out_h = cut(s.out_h()), p.out_w = cut(s.out_w()), p.kernel_h = cut(s.kernel_h);
  p.stride_h = cut(s.stride_h), p.stride_w = cut(s.stride_w), p.pad_h = cut(s.pad_h), p.pad_w = cut(s.pad_w);
  p.dil_h = cut(s.dil_h), p.dil_w = cut(s.dil_w);
  p.groups = cut(s.groups), p.group_in = cut(s.group_in());
  p.channel_bytes = g.channel_bytes, p.pixel_words = g.pixel_words, p.line_words = g.line_words;
  p.words = cut(g.words(s));
  p.panels = static_cast<const unsigned*>(panels.data);
  p.panel_flags = {panels.flags, panels.flag_count};
  p.flags = is_float(x.dtype) ? flags : nullptr;
  p.y = y.data, p.y_dtype = y.dtype, p.y_pixels_first = y.layout == ImageLayout::nhwc;
  p.scale_a = y.scale_a, p.scale_w = y.scale_w;
  return p;
}

std::int64_t results(const Conv2dShape& s) { return s.batch * s.out_c * s.out_h() * s.out_w(); }

Status poison_results(const GroupArgs& p, std::int64_t count, std::int64_t blocks, const Queue& queue) {
  if (p.flags == nullptr) return Status::ok;
  return poison(p.y, p.y_dtype, count, {p.flags, cut(blocks)}, queue);
}

/// Whether a tile of the convolution fits a block.
bool has_tile(const Conv2dShape& s) {
  constexpr std::int64_t any = 1;
  return s.in_c > 0 && (results(s) == 0 || cut_groups(s, any).shared > 0);
}

template <class Width>
Status run_tiles(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y, void* workspace,
                 const Queue& queue) {
  const Status checked = check<Width>(s, x, y);
  if (checked != Status::ok) return checked;
  if (results(s) == 0) return Status::ok;
  if (s.in_c == 0) return Status::bad_shape;
  const Gpu* facts = nullptr;
  const Status known = gpu(queue.device, &facts);
  if (known != Status::ok) return known;
  const GroupTile tile = cut_groups(s, facts->multiprocessors);
  const std::int64_t slab = slab_of(s), slabs = (s.groups + slab - 1) / slab;
  if (tile.shared == 0) return Status::bad_shape;
  const std::int64_t down = (s.out_h() + tile.h - 1) / tile.h, across = (s.out_w() + tile.w - 1) / tile.w;
  const std::int64_t tiles = s.batch * slabs * down * across;
  if (tiles > INT32_MAX / 2) return Status::bad_shape;
  const GroupWords g(s);
  const Stride stride = group_stride(s, g);
  const int outputs = stride == Stride::words && s.group_out() % 4 == 0 ? 4 : 1;
  const std::int64_t line = tile.class_words * tile.classes;
  GroupArgs p = args_of<Width>(s, x, panels, y, static_cast<int*>(workspace));
  p.channel_quads =
      p.pixels_first && g.channel_bytes == 4 && s.group_in() % 4 == 0 && aligned(x.data, 0, row_bytes(x.dtype, 4));
  p.tap_step = g.channel_bytes == 4 ? p.dil_w : 1;
  p.pixel_step = cut(s.stride_w * g.channel_bytes / 4);
  p.h = cut(tile.h), p.w = cut(tile.w);
  p.slab_groups = cut(slab);
  p.down = cut(down), p.across = cut(across), p.slabs = cut(slabs), p.tiles = cut(tiles);
  p.rounds = cut((tiles + most_flags - 1) / most_flags);
  p.image_words = cut(tile.image_words()), p.filter_words = cut(tile.filter_words);
  p.class_step = g.channel_bytes == 4 ? 1 : p.dil_w, p.class_words = cut(tile.class_words);
  p.word_pitch = p.y_pixels_first ? cut(tile.slots) : 1;
  p.slot_pitch = p.y_pixels_first ? 1 : cut(tile.halo_h * line);
  p.line_pitch = cut(p.y_pixels_first ? tile.line_pitch : line);
  p.image_at = cut((tile.filter_words + 3) / 4 * 4);
  p.slots = Divisor(cut(tile.slots)), p.line = Divisor(cut(line)), p.lines = Divisor(cut(tile.halo_h));
  p.classes = Divisor(cut(tile.class_words));
  p.parts = Divisor(cut(slab * s.group_out() / outputs)), p.quads = Divisor(cut(tile.w / 4));
  p.tile_lines = Divisor(cut(tile.h));
  p.group_out = Divisor(cut(s.group_out())), p.filter_outputs = Divisor(cut(slab * s.group_out()));
  const std::int64_t neighbours = p.y_pixels_first ? s.out_c : s.out_w();
  p.y_quads = neighbours % 4 == 0 && aligned(y.data, 0, row_bytes(y.dtype, 4));
  const Status status = with_reader<void>(
      x.dtype, [&](auto reader) { return launch_groups<decltype(reader)>(p, stride, outputs, tile.shared, queue); });
  return status != Status::ok ? status : poison_results(p, results(s), (tiles + p.rounds - 1) / p.rounds, queue);
}

/// One output per thread, which quantises the elements that its window reads.
template <class R>
__global__ void __launch_bounds__(group_threads) portable_kernel(const __grid_constant__ GroupArgs p, int kernel_w) {
  const Quantiser quantiser(R::quantises && !p.signs ? fmaxf(value_of(p.scale), p.eps) : 1, p.range);
  const float a = value_of(p.scale_a), w = value_of(p.scale_w);
  const bool poisoned = __syncthreads_or(own_flag(p.panel_flags)) != 0;
  const float scale = !poisoned && isfinite(a) && isfinite(w) ? __fmul_rn(a, w) : __int_as_float(0x7fc00000);
  const int plane = p.in_h * p.in_w, image_results = p.out_c * p.out_h * p.out_w, group_out = p.out_c / p.groups;
  const int step_blocks = gridDim.x * group_threads;
  bool finite = true;
  int i = blockIdx.x * group_threads + threadIdx.x, image = 0;  // a result of an image; threads go through all of them
  while (true) {
    for (; i >= image_results && image < p.batch; i -= image_results) ++image;
    if (image >= p.batch) break;
    const int outer = i / (p.y_pixels_first ? p.out_c : p.out_w), inner = i % (p.y_pixels_first ? p.out_c : p.out_w);
    const int o = p.y_pixels_first ? inner : outer / p.out_h;
    const int x = p.y_pixels_first ? outer % p.out_w : inner, y = p.y_pixels_first ? outer / p.out_w : outer % p.out_h;
    const int first = o / group_out * p.group_in;
    int sum = 0;
    for (int h = 0; h < p.kernel_h; ++h)
      for (int v = 0; v < kernel_w; ++v)
        for (int c = 0; c < p.group_in; ++c) {
          const int in_y = y * p.stride_h - p.pad_h + h * p.dil_h, in_x = x * p.stride_w - p.pad_w + v * p.dil_w;
          int value = p.pad_code;
          if (static_cast<unsigned>(in_y) < static_cast<unsigned>(p.in_h) &&
              static_cast<unsigned>(in_x) < static_cast<unsigned>(p.in_w)) {
            const int pixel = in_y * p.in_w + in_x;
            const std::int64_t at = std::int64_t{image} * p.in_c * plane +
                                    (p.pixels_first ? pixel * p.in_c + first + c : (first + c) * plane + pixel);
            float xs[8] = {R::get(p.x, at)};
            if (R::quantises && p.bias != nullptr) xs[0] = __fadd_rn(xs[0], p.bias[first + c]);
            if (R::quantises) finite = finite && isfinite(xs[0]);
            int codes[8];
            codes_of<R>(quantiser, xs, codes);
            value = p.signs ? (xs[0] >= 0 ? 1 : -1) : codes[0];
          }
          const int byte = v * p.channel_bytes + c % 4;  // of a line, whose words of one pixel count once
          const int word = (h * p.line_words + byte / 4) * p.pixel_words + c / 4;
          const auto* const codes = reinterpret_cast<const std::int8_t*>(p.panels + std::int64_t{word} * p.out_c + o);
          sum += value * codes[byte % 4];
        }
    const float scaled = __fmul_rn(static_cast<float>(sum), scale);
    const std::int64_t at = std::int64_t{image} * image_results + i;
    switch (p.y_dtype) {
      case Dtype::s32: static_cast<int*>(p.y)[at] = sum; break;
      case Dtype::bf16: static_cast<__nv_bfloat16*>(p.y)[at] = narrow<__nv_bfloat16>(scaled); break;
      case Dtype::f16: static_cast<__half*>(p.y)[at] = narrow<__half>(scaled); break;
      default: static_cast<float*>(p.y)[at] = scaled; break;
    }
    i += step_blocks;
  }
  const int bad = __syncthreads_or(!finite);
  if (threadIdx.x == 0 && p.flags != nullptr) p.flags[blockIdx.x] = bad;
}

template <class Width>
Status run_portable(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y, void* workspace,
                    const Queue& queue) {
  const Status checked = check<Width>(s, x, y);
  if (checked != Status::ok) return checked;
  if (results(s) == 0) return Status::ok;
  const GroupArgs p = args_of<Width>(s, x, panels, y, static_cast<int*>(workspace));
  const std::int64_t blocks = blocks_for(results(s), group_threads, most_flags);
  const Status status = with_reader<void>(x.dtype, [&](auto reader) {
    return launch(portable_kernel<decltype(reader)>, blocks, group_threads, 0, queue, p, cut(s.kernel_w));
  });
  return status != Status::ok ? status : poison_results(p, results(s), blocks, queue);
}

struct FilterArgs {
  const char* data;
  std::int64_t in_row;  ///< bytes of a packed row; 0: rows are dense
  Scalar scale;
  float eps;
  Range range;
  bool signs;
  int out_c, group_in, taps, kernel_w, channel_bytes, pixel_words, line_words;
  std::int64_t words;  ///< per output
  unsigned* out;
  int* flags;
};

template <class R>
__global__ void __launch_bounds__(group_threads) encode_filter_words(const FilterArgs a) {
  const float step = R::quantises && !a.signs ? fmaxf(value_of(a.scale), a.eps) : 1;
  bool finite = true;
  for (std::int64_t i = std::int64_t{blockIdx.x} * group_threads + threadIdx.x; i < a.words * a.out_c;
       i += std::int64_t{gridDim.x} * group_threads) {
    const std::int64_t word = i / a.out_c, o = i - word * a.out_c;
    const int q = static_cast<int>(word % a.pixel_words), t = static_cast<int>(word / a.pixel_words % a.line_words);
    const std::int64_t line = word / a.pixel_words / a.line_words;
    const std::int64_t dense = a.in_row == 0 ? o * a.group_in * a.taps : 0;
    int bytes[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int tap = (4 * t + b) / a.channel_bytes, c = 4 * q + b % a.channel_bytes;
      bytes[b] = 0;
      if (tap >= a.kernel_w || c >= a.group_in) continue;
      const float value =
          read<R>(a.data + o * a.in_row, dense + std::int64_t{c} * a.taps + line * a.kernel_w + tap, nullptr, &finite);
      bytes[b] = a.signs ? (value >= 0 ? 1 : -1) : code<R>(value, step, a.range);
    }
    a.out[i] = pack_bytes(bytes);
  }
  const int bad = __syncthreads_or(!finite);
  if (a.flags != nullptr && threadIdx.x == 0) a.flags[blockIdx.x] = bad;
  publish_weights();
}

template <class Width>
Status prepack(const Filter& weight, const Conv2dShape& s, void* panels, int* flags, int* flag_count,
               const Queue& queue) {
  using Packed = std::conditional_t<Width::code == Dtype::bits, PackedBits, PackedS4>;
  const GroupWords g(s);
  const FilterArgs a{static_cast<const char*>(weight.data),
                     weight.dtype == Dtype::s4 || weight.dtype == Dtype::bits ? row_bytes(weight.dtype, s.depth()) : 0,
                     weight.scale,
                     weight.eps,
                     Width::range,
                     Width::code == Dtype::bits,
                     cut(s.out_c),
                     cut(s.group_in()),
                     cut(s.taps()),
                     cut(s.kernel_w),
                     g.channel_bytes,
                     g.pixel_words,
                     g.line_words,
                     g.words(s),
                     static_cast<unsigned*>(panels),
                     flags};
  const std::int64_t blocks = blocks_for(a.words * s.out_c, group_threads, most_flags);
  *flag_count = cut(blocks);
  return with_reader<Packed>(weight.dtype, [&](auto reader) {
    return launch(encode_filter_words<decltype(reader)>, blocks, group_threads, 0, queue, a);
  });
}

std::int64_t panel_row(const Conv2dShape& s) { return 4 * GroupWords(s).words(s); }
std::int64_t workspace(const Conv2dShape&) { return flag_bytes; }

template <class Width>
Conv2dTable table_of(const Conv2dKernel (&best_first)[2]) {
  return {best_first, static_cast<int>(std::size(best_first)), Width::max_k, panel_row, workspace, prepack<Width>};
}

}  // namespace

Conv2dTable b1xb1_grouped_conv2d_table() {
  static const Conv2dKernel best_first[] = {
      {"b1xb1_grouped_conv2d_dp4a", 75, newest_sm, has_tile, nullptr, run_tiles<Signs>},
      {"b1xb1_grouped_conv2d_portable", 75, newest_sm, nullptr, nullptr, run_portable<Signs>},
  };
  return table_of<Signs>(best_first);
}

Conv2dTable s8xs8_grouped_conv2d_table() {
  static const Conv2dKernel best_first[] = {
      {"s8xs8_grouped_conv2d_dp4a", 75, newest_sm, has_tile, nullptr, run_tiles<Bytes>},
      {"s8xs8_grouped_conv2d_portable", 75, newest_sm, nullptr, nullptr, run_portable<Bytes>},
  };
  return table_of<Bytes>(best_first);
}

Conv2dTable s4xs4_grouped_conv2d_table() {
  static const Conv2dKernel best_first[] = {
      {"s4xs4_grouped_conv2d_dp4a", 75, newest_sm, has_tile, nullptr, run_tiles<Nibbles>},
      {"s4xs4_grouped_conv2d_portable", 75, newest_sm, nullptr, nullptr, run_portable<Nibbles>},
  };
  return table_of<Nibbles>(best_first);
}

}  // namespace bie::kernels::cuda
