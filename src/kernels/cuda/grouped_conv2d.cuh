// Convolutions of groups computed directly, all codes as bytes: how a group's windows become words of four bytes, and
// how an image is cut into tiles.
//
// A word is four neighbouring pixels of the one channel of a group, two pixels of its two channels, or up to four
// channels of one pixel, so that dp4a multiplies a word of the image by one of the filter. A filter's words lie side by
// side for all outputs: word e = (i * line_words + t) * pixel_words + q of output o is word e * out_c + o of the
// panels.
#pragma once

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/quantiser.cuh"
#include "kernels/cuda/tile_args.cuh"

namespace bie::kernels::cuda {

/// Layout of a filter's words. Depends on in_c, out_c, groups and the kernel size alone, because prepack knows nothing
/// else.
struct GroupWords {
  int channel_bytes;  ///< bytes of a word from one pixel to the next: 1, 2 or 4
  int pixel_words;    ///< words of a pixel: of channel_bytes 4 as many as its channels fill, else 1
  int line_words;     ///< of a line of a filter, those of one pixel counted once

  explicit GroupWords(const Conv2dShape& s) {
    const std::int64_t channels = s.group_in();
    channel_bytes = channels == 1 ? 1 : channels == 2 ? 2 : 4;
    pixel_words = channel_bytes < 4 ? 1 : static_cast<int>((channels + 3) / 4);
    line_words = static_cast<int>((s.kernel_w * channel_bytes + 3) / 4);
  }
  std::int64_t words(const Conv2dShape& s) const { return s.kernel_h * line_words * pixel_words; }
};

/// Division of numbers below 2^16 by one of them.
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(int by) : by_(by), factor_(by == 1 ? 0 : static_cast<unsigned>((std::uint64_t{1} << 32) / by + 1)) {}
  __device__ int quotient(int of) const {
    return factor_ == 0 ? of : static_cast<int>(__umulhi(static_cast<unsigned>(of), factor_));
  }
  __host__ __device__ int by() const { return by_; }

 private:
  int by_ = 1;
  unsigned factor_ = 0;
};

/// How an output's window moves through the words of a line: by one or two bytes per pixel, by whole words, or any way.
enum class Stride { byte, two_bytes, words, any };

struct GroupArgs {
  const void* x;
  const float* bias;
  Scalar scale;
  float eps;
  Range range;
  bool signs;          ///< codes are +1 and -1
  bool pixels_first;   ///< channels of the image are neighbours
  bool channel_quads;  ///< and the four of a word can be read at once
  int pad_code;
  int batch, in_c, in_h, in_w, out_c, out_h, out_w, kernel_h;
  int stride_h, stride_w, pad_h, pad_w, dil_h, dil_w;
  int groups, group_in, channel_bytes, pixel_words, line_words, words;
  int tap_step;     ///< words of the image from one of a filter's line to the next
  int pixel_step;   ///< where windows move by whole words: so many
  int h, w;         ///< of a tile of outputs
  int slab_groups;  ///< groups of a block
  int down, across, slabs;
  int tiles, rounds;  ///< in all, and of a block
  int image_words, filter_words;
  int class_step;   ///< pixels from one to the next of a word, whose line has as many classes of pixels
  int class_words;  ///< words of a class
  int word_pitch, slot_pitch, line_pitch, image_at;  ///< of the image in shared memory, in words
  Divisor slots, line, lines, classes;               ///< of that image: its slots, words of a line, lines, class_words
  Divisor parts, quads, tile_lines;   ///< threads' parts: outputs of a slab, four pixels of a line, lines
  Divisor group_out, filter_outputs;  ///< outputs of a group, and of a slab
  const unsigned* panels;
  Flags panel_flags;
  int* flags;  ///< one per block, or null where nobody asks
  void* y;
  Dtype y_dtype;
  bool y_pixels_first;
  bool y_quads;  ///< four neighbours, the first a multiple of four, can be written at once
  Scalar scale_a, scale_w;
};

constexpr int group_threads = 256;
constexpr std::int64_t group_shared = 48 << 10;

/// Defined in grouped_tile.cuh, instantiated for one dtype per file in instances/.
template <class R>
Status launch_groups(const GroupArgs& args, Stride stride, int outputs, std::int64_t shared, const Queue& queue);

inline Stride group_stride(const Conv2dShape& s, const GroupWords& words) {
  if (words.channel_bytes == 4) return Stride::words;
  if (s.dil_w > 1) return Stride::any;
  const std::int64_t bytes = s.stride_w * words.channel_bytes;
  return bytes == 1 ? Stride::byte : bytes == 2 ? Stride::two_bytes : bytes % 4 == 0 ? Stride::words : Stride::any;
}

/// A tile of h x w outputs of `slab_groups` groups: the words of its image and of its filter.
struct GroupTile {
  std::int64_t h = 0, w = 0, halo_h = 0, class_words = 0, classes = 1, slots = 0, line_pitch = 0;
  std::int64_t filter_words = 0, shared = 0;

  GroupTile() = default;
  GroupTile(const Conv2dShape& s, const GroupWords& g, std::int64_t slab_groups, std::int64_t h, std::int64_t w)
      : h(h), w(w) {
    halo_h = (h - 1) * s.stride_h + (s.kernel_h - 1) * s.dil_h + 1;
    if (g.channel_bytes == 4) {
      class_words = (w - 1) * s.stride_w + (s.kernel_w - 1) * s.dil_w + 1;
    } else {
      classes = s.dil_w;
      class_words = (w - 1) * s.stride_w / s.dil_w * g.channel_bytes / 4 + g.line_words + 1;
    }
    slots = slab_groups * g.pixel_words;
    line_pitch = class_words * classes * slots;
    filter_words = g.words(s) * slab_groups * s.group_out();
    shared = 4 * ((filter_words + 3) / 4 * 4 + halo_h * line_pitch);
  }
  std::int64_t image_words() const { return halo_h * line_pitch; }
};

/// Groups of a block: as many as have 32 outputs, or inputs that are fetched together.
inline std::int64_t slab_of(const Conv2dShape& s) {
  const std::int64_t largest = std::max<std::int64_t>({s.group_in(), s.group_out(), 1});
  return std::clamp<std::int64_t>(32 / largest, 1, s.groups);
}

/// The cheapest tile on so many multiprocessors; `shared` is 0 if none fits.
inline GroupTile cut_groups(const Conv2dShape& s, std::int64_t multiprocessors) {
  const GroupWords g(s);
  const std::int64_t slab = slab_of(s), slabs = (s.groups + slab - 1) / slab;
  constexpr std::int64_t most_items = 1 << 15;  // what a Divisor divides
  GroupTile best;
  double least = 0;
  for (std::int64_t w = 4; w < s.out_w() + 4 && w <= 64; w += 4)
    for (std::int64_t h = 1; h <= s.out_h() && h <= 64; ++h) {
      const GroupTile tile(s, g, slab, h, w);
      if (tile.shared > group_shared || tile.image_words() > most_items || tile.filter_words > most_items) continue;
      if (h * w / 4 * slab * s.group_out() > most_items) continue;
      const double tiles = static_cast<double>(slabs * s.batch * ((s.out_h() + h - 1) / h) * ((s.out_w() + w - 1) / w));
      // Instructions per tile: some dozens per word of the image, and about one per output and word of the filter.
      const double outputs = static_cast<double>(h * w * slab * s.group_out());
      const double cost = 40.0 * static_cast<double>(tile.image_words()) +
                          outputs * (10 + static_cast<double>(g.words(s))) +
                          4.0 * static_cast<double>(tile.filter_words);
      const double waves = std::max(1.0, tiles / (2.0 * static_cast<double>(multiprocessors)));
      if (best.shared != 0 && waves * cost >= least) continue;
      best = tile;
      least = waves * cost;
    }
  return best;
}

}  // namespace bie::kernels::cuda
