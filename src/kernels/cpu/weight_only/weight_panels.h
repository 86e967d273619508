// Panels of a weight-only weight: what the CPU tiles read, derived from packed words. Plain code.
//
// The arrangement opens with a head, the groups and, where the rows are in another order than the activation's, the
// input feature of each row. A panel holds 64 outputs: for every group its 64 scales, its 64 zeros (floats of the
// scales' dtype, or bytes zero - 1) and its lines of 64 bytes. A line is 16 words, lane l of outputs l, 16 + l, 32 + l
// and 48 + l, and holds 8 / width rows of codes of 1, 2, 4 or 8 bits: that of row r and output 16 v + l lies in word l
// at bit width * (2 r + v % 2) + 16 * (v / 2). So a shift brings two codes at a time where a permutation reads its
// indices, the low bits of a word and of its upper half. Codes of other widths take the next wider place, moved so that
// the middle of the place stands for the code 2^(bits - 1).
//
// Integer activations have lines of their own (LineOrder::quads), for instructions that add products of four bytes: a
// set of four lines holds 32 / width rows, and the code of row r and output 16 v + l lies in word l of line v, in byte
// r % 4 at bit width * (r / 4). A group has whole sets: the rows that it lacks meet activations of 0.
//
// Quad panels keep scales of two levels (ScaleLevels): a super-block begins with 64 d and, with Offset::value, 64
// `least` as float16, and a group has 64 bytes a and, with Offset::value, 64 bytes b in the place of its scales
// and zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bie/kernels/weight_only_gemm.h"

namespace bie::kernels::cpu {

inline constexpr int panel_columns = 64;

/// How codes lie in lines: of two rows in a half of a word, or of four in its bytes.
enum class LineOrder : std::uint8_t { pairs, quads };

struct WeightGroup {
  std::int32_t rows, width;
  float middle;  ///< the code that stands for 0
  std::int32_t lines;

  std::int32_t quads() const { return lines * 2 / width; }  ///< of rows, in that order of lines
};

struct WeightHead {
  std::int64_t n, k, groups, panels, panel_bytes;
  std::int64_t inputs_at, panels_at;  ///< bytes from the head; inputs_at = 0: row i is input feature i
  std::int64_t quads;                 ///< of all groups
  Dtype scale;
  Offset offset;
  // Quad panels only, where D is the sum of u * (step * q - zero).
  std::uint8_t step = 1;             ///< 2 where the width is 1
  std::uint8_t zero = 0;             ///< of codes as they lie; 0: half of what a place holds
  std::uint8_t groups_of_super = 0;  ///< groups of a super-block; 0: scales have one level
  std::uint8_t rest[3] = {};         ///< 0: no byte of an arrangement is left to chance

  std::int32_t zero_of(const WeightGroup& group) const { return zero != 0 ? zero : 1 << (group.width - 1); }
};
static_assert(sizeof(WeightHead) == 72);

/// Bytes of 64 zeros.
constexpr std::int64_t zero_bytes(Offset offset, Dtype scale) {
  return offset == Offset::none ? 0 : offset == Offset::zero ? panel_columns : row_bytes(scale, panel_columns);
}

/// How the numbers of a panel's groups lie.
struct PanelNumbers {
  Dtype scale;
  Offset offset;
  int groups_of_super;

  constexpr std::int64_t group_bytes() const {
    if (groups_of_super == 0) return row_bytes(scale, panel_columns) + zero_bytes(offset, scale);
    return offset == Offset::none ? panel_columns : 2 * panel_columns;
  }
  constexpr std::int64_t super_bytes() const { return groups_of_super == 0 ? 0 : 2 * group_bytes(); }
  constexpr std::int64_t supers_of(std::int64_t groups) const {
    return groups_of_super == 0 ? 0 : (groups + groups_of_super - 1) / groups_of_super;
  }
};

/// Goes through the groups of a quad panel.
class PanelGroups {
 public:
  PanelGroups(const char* panel, const PanelNumbers& numbers)
      : at_(panel),
        group_bytes_(numbers.group_bytes()),
        super_bytes_(numbers.super_bytes()),
        groups_of_super_(numbers.groups_of_super) {
    begin_super();
  }
  /// Numbers of the group's super-block; null where scales have one level.
  const char* super() const { return super_; }
  const char* numbers() const { return at_; }
  const char* lines() const { return at_ + group_bytes_; }
  void pass(const WeightGroup& group) {
    at_ = lines() + 64 * group.lines;
    if (groups_of_super_ > 0 && ++passed_ == groups_of_super_) begin_super();
  }

 private:
  void begin_super() {
    if (groups_of_super_ == 0) return;
    super_ = at_;
    at_ += super_bytes_;
    passed_ = 0;
  }

  const char *at_, *super_ = nullptr;
  std::int64_t group_bytes_, super_bytes_;
  int groups_of_super_, passed_ = 0;
};

inline constexpr std::int64_t head_bytes = 128;
static_assert(sizeof(WeightHead) <= head_bytes);

inline const WeightHead& head_of(const void* packed) { return *static_cast<const WeightHead*>(packed); }
inline const WeightGroup* groups_of(const void* packed) {
  return reinterpret_cast<const WeightGroup*>(static_cast<const char*>(packed) + head_bytes);
}

std::size_t weight_panel_bytes(const PackedWeight& weight, LineOrder order);
void pack_weight_panels(const PackedWeight& weight, LineOrder order, void* packed, const Parallel& parallel);
std::size_t weight_panel_bytes(const WeightRows& weight, LineOrder order);
void pack_weight_panels(const WeightRows& weight, LineOrder order, void* packed, const Parallel& parallel);

/// One block of rows of the activation with one panel, or with the next ones too.
struct WeightOnlyArgs {
  const float* x;     ///< [k][rows], rows of k in the order of the panel
  const float* sums;  ///< [groups][rows], of x over each group; null where nothing is subtracted
  const WeightGroup* groups;
  std::int64_t group_count;
  const char* panel;
  std::int64_t panel_bytes;
  int panels;
  int rows;
  Dtype scale;
  Offset offset;
  float* y;               ///< [rows][64 * panels]
  std::int64_t y_stride;  ///< floats from one row to the next
};

struct WeightOnlyTile {
  int rows;    ///< at most
  int panels;  ///< of one row, at most; of more rows it takes one
  void (*run)(const WeightOnlyArgs&);
};

inline constexpr int q8_quad = 4;

/// One block of rows of integer activations with one panel, or with the next ones too.
struct WeightOnlyQ8Args {
  const std::int8_t* u;        ///< [pieces][rows][piece], rows of k in the order of the panel
  const std::int32_t* starts;  ///< [groups][rows], of D of codes as they lie: -zero * U
  const float* sums;           ///< [groups][rows]: U
  const float* steps;          ///< [groups][rows]: d
  const WeightGroup* groups;
  std::int64_t group_count;
  const char* panel;
  std::int64_t panel_bytes;
  int panels;
  int rows;
  PanelNumbers numbers;
  bool doubles;           ///< D is the start and twice the sum of codes, which have one bit
  float* y;               ///< [rows][64 * panels]
  std::int64_t y_stride;  ///< floats from one row to the next
};

/// Scales and offsets of a group, 64 of each; no offsets where there are no zeros.
struct alignas(64) Q8Numbers {
  float s[panel_columns], o[panel_columns];
};

/// One group of one row of the activation.
struct Q8CodesArgs {
  const float* x;
  std::int32_t count, quads;
  int rows;        ///< of the block: pieces lie piece * rows bytes apart
  std::int8_t* u;  ///< the last ones, beyond `count`, are 0
  int piece = q8_quad;
};

struct WeightOnlyQ8Tile {
  int rows, panels;  ///< as WeightOnlyTile has them
  /// Codes of a group (weight_only_q8.h). Returns d; `sum` is U.
  float (*codes)(const Q8CodesArgs&, std::int32_t* sum);
  void (*run)(const WeightOnlyQ8Args&);
  int piece = q8_quad;  ///< bytes of a row of codes that lie together; a group has whole ones
  int unit = 1;         ///< rows that a block has a multiple of, but for the last one; the tile may read as many
  // Null where a thread needs no state: before its first run and after its last one.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;
};

namespace plain {
extern const WeightOnlyTile weight_only_loops;
extern const WeightOnlyQ8Tile weight_only_q8_loops;
}  // namespace plain
namespace avx2 {
extern const WeightOnlyTile weight_only_tile, weight_only_loops;
extern const WeightOnlyQ8Tile weight_only_q8_tile, weight_only_q8_loops;
float weight_only_q8_codes(const Q8CodesArgs& args, std::int32_t* sum);
}  // namespace avx2
namespace avxvnni {
inline constexpr int weight_only_q8_rows = 5;
namespace vex {
void weight_only_q8(const WeightOnlyQ8Args& args);
}
namespace evex {
void weight_only_q8(const WeightOnlyQ8Args& args);
}
extern const WeightOnlyQ8Tile weight_only_q8_tile;
}  // namespace avxvnni
namespace avx512bw {
extern const WeightOnlyTile weight_only_tile;
}
namespace avx512 {
extern const WeightOnlyQ8Tile weight_only_q8_tile;
float weight_only_q8_codes(const Q8CodesArgs& args, std::int32_t* sum);
void weight_only_q8_numbers(const PanelNumbers& numbers, const WeightGroup& group, const PanelGroups& at,
                            Q8Numbers* to);
}  // namespace avx512
namespace amx {
extern const WeightOnlyQ8Tile weight_only_q8_tile;
}
namespace neon {
extern const WeightOnlyTile weight_only_tile;
extern const WeightOnlyQ8Tile weight_only_q8_tile;
float weight_only_q8_codes(const Q8CodesArgs& args, std::int32_t* sum);
}  // namespace neon
namespace dotprod {
inline constexpr int weight_only_q8_rows = 6;
extern const WeightOnlyQ8Tile weight_only_q8_tile;
}  // namespace dotprod

}  // namespace bie::kernels::cpu
