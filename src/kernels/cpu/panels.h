// Weight panels: the arrangement the CPU tiles read, derived from a checkpoint layout. Plain code.
//
// A panel holds `nr` outputs: nr start values (int32) and then, for every tap and unit, nr weight units side by side.
// A GEMM has one tap; a convolution has kernel_h * kernel_w, each with its group's channels padded to whole units, and
// its groups follow one another. Where channels are few the taps of a row are joined, [tap][channel], and padded
// together. Signs have no code for a zero beyond the image: where that is wanted a panel ends with
// nr sums of weights (int32) a tap, which undo the -1 that is read there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_gemm.h"
#include "bie/kernels/parallel.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu {

/// One width of codes: what lies in a checkpoint row and in an activation row that is already quantised.
struct Width {
  Dtype code;  ///< bits, s8 or s4
  int lo, hi;  ///< range of the activation quantiser; unused for bits
  std::int64_t max_k;
  std::int64_t task_work;  ///< products that make a task worth a thread
};

inline constexpr Width binary_width = {Dtype::bits, 0, 1, max_k_b1, std::int64_t{1} << 22};
inline constexpr Width int8_width = {Dtype::s8, -128, 127, max_k_s8, std::int64_t{1} << 22};
inline constexpr Width int4_width = {Dtype::s4, -8, 7, max_k_s4, std::int64_t{1} << 22};

/// Blocks of nearly equal numbers of rows, or of units of rows.
class RowBlocks {
 public:
  RowBlocks(std::int64_t m, int most, int unit)
      : m_(m), unit_(unit), units_((m + unit - 1) / unit), count_((m + most - 1) / most) {}

  std::int64_t count() const { return count_; }
  std::int64_t first(std::int64_t block) const { return std::min(m_, block * units_ / count_ * unit_); }
  int rows(std::int64_t block) const { return static_cast<int>(first(block + 1) - first(block)); }

 private:
  std::int64_t m_, unit_, units_, count_;
};

/// The order in which blocks of rows are multiplied with panels. Threads take neighbouring items: where there are few
/// blocks, of which the last may be small, they share the panels instead. At most `most` panels pass by all blocks
/// before the next ones.
class WorkOrder {
 public:
  WorkOrder(std::int64_t blocks, std::int64_t panels, std::int64_t threads,
            std::int64_t most = std::numeric_limits<std::int64_t>::max())
      : blocks_(blocks), panels_(panels) {
    const std::int64_t shares = blocks < 4 * threads && threads <= panels ? threads : 1;
    share_ = std::min(most, (panels + shares - 1) / shares);
  }
  std::int64_t count() const { return blocks_ * panels_; }

  struct Item {
    std::int64_t block, panel;
  };
  Item item(std::int64_t number) const {
    const std::int64_t first = number / (blocks_ * share_) * share_, inside = number - first * blocks_;
    const std::int64_t here = share_ < panels_ - first ? share_ : panels_ - first;
    return {inside / here, first + inside % here};
  }

 private:
  std::int64_t blocks_, panels_, share_;
};

struct PanelLayout {
  /// Taps that follow one another share units where `joined`, which divides their number, is more than 1.
  PanelLayout(const Tile& tile, std::int64_t outputs, std::int64_t channels, std::int64_t taps, std::int64_t joined = 1,
              bool tap_sums = false);

  std::int64_t units;  ///< weight units of joined taps
  std::int64_t panels;
  std::int64_t panel_bytes;  ///< start values included, a multiple of 64
  std::int64_t code_bytes;   ///< activation codes of joined taps, padded to whole units
  std::int64_t sums_offset;  ///< bytes from the panel's begin to its tap sums; 0 where it has none

  std::size_t bytes() const { return static_cast<std::size_t>(panels * panel_bytes); }
};

/// weight: rows of channels * taps codes in the order [channel][tap], in the layout of `width`.
void pack_panels(const Tile& tile, const Width& width, const void* weight, std::int64_t outputs, std::int64_t channels,
                 std::int64_t taps, std::int64_t joined, bool tap_sums, void* packed, const Parallel& parallel);

/// The byte (or int16) that stands for the code 0 in an activation row of `code`.
int zero_code(Code code);

/// Four bytes of an activation row that stand for codes `code`, which are 0, or of signs 0 or -1.
std::uint32_t outside_of(Code code, int outside);

/// Bytes of `count` activation codes; bits count whole bytes.
std::int64_t code_size(Code code, std::int64_t count);

/// Bytes of a result that caches near the core do not hold: its lines are fetched while a tile multiplies, because
/// stores would wait for them.
inline constexpr std::int64_t large_output = std::int64_t{1} << 19;
/// Bytes of a result that a tile may write past the caches.
inline constexpr std::int64_t huge_output = std::int64_t{1} << 21;
void prefetch_output(const char* out, std::int64_t rows, std::int64_t row_stride, std::int64_t row_bytes);

/// Bytes behind the last code that a tile may read.
inline constexpr std::int64_t code_slack = 64;

/// Purposes of the per-thread buffers; a caller may hold one buffer of each at the same time.
enum class Buffer { codes, tile, opened };
/// A buffer of this thread that lives until the thread ends: grows when needed, 64-byte aligned; null where there is no
/// memory. Contents are lost on the next call for the same purpose.
void* workspace(std::size_t bytes, Buffer purpose = Buffer::codes);

/// Brackets the use of a tile on a thread: calls Tile::enter now and Tile::leave at the end (AMX configures its tiles).
class TileState {
 public:
  explicit TileState(const Tile& tile) : leave_(tile.leave) {
    if (tile.enter != nullptr) tile.enter();
  }
  ~TileState() {
    if (leave_ != nullptr) leave_();
  }
  TileState(const TileState&) = delete;
  TileState& operator=(const TileState&) = delete;

 private:
  void (*leave_)();
};

/// The weights of a panel as a tile reads them. `units` are those of all taps.
class OpenedPanel {
 public:
  OpenedPanel(const Tile& tile, std::int64_t units)
      : tile_(tile),
        units_(units),
        memory_(
            tile.open == nullptr
                ? nullptr
                : workspace(static_cast<std::size_t>(units * tile.nr * tile.opened_unit_bytes + 64), Buffer::opened)) {}
  bool enough() const { return tile_.open == nullptr || memory_ != nullptr; }
  const void* open(const void* weights) const {
    if (tile_.open == nullptr) return weights;
    tile_.open(weights, units_, memory_);
    return memory_;
  }

 private:
  const Tile& tile_;
  std::int64_t units_;
  void* memory_;
};

}  // namespace bie::kernels::cpu
