#include "formats/group_blocks.h"

#include <algorithm>
#include <cmath>

#include "bie/formats/error.h"
#include "bie/formats/group_types.h"
#include "formats/group_search.h"

namespace bie::formats {
namespace {

using Byte = std::uint8_t;

/// Codes q of a group stand for s * q - z.
struct Grid {
  float scale = 0, offset = 0;
  int whole = 1;  ///< of whole zeros: offset = scale * whole
};

/// Sums over a group: element i goes to the sum i mod 8, and these are added pairwise, in float32.
class Sum {
 public:
  static constexpr int lanes = 8;
  float& operator[](int lane) { return parts_[lane]; }
  double total() const {
    const float a = (parts_[0] + parts_[4]) + (parts_[2] + parts_[6]),
                b = (parts_[1] + parts_[5]) + (parts_[3] + parts_[7]);
    return static_cast<double>(a + b);
  }

 private:
  float parts_[lanes] = {};
};

/// The group, its weights and the codes of one grid.
class Group {
 public:
  Group(const GgufType& type, const float* x, const float* weights)
      : x_(x),
        weights_(weights),
        n_(type.group),
        most_((1 << type.bits) - 1),
        is_whole_(zero_of(type) == GroupZero::whole) {
    const auto [least, largest] = std::minmax_element(x, x + n_);
    least_ = *least;
    largest_ = *largest;
    if (is_whole_) {  // whole zeros are among the codes, or one behind them
      least_ = std::min(least_, 0.0F);
      largest_ = std::max(largest_, 0.0F);
    }
    if (weights == nullptr) return;
    Sum all, of_x;
    each([&](int lane, float value, float weight) {
      all[lane] += weight;
      of_x[lane] += weight * value;
    });
    weight_sum_ = all.total();
    x_sum_ = of_x.total();
  }

  /// From the least number to the largest, or, of one bit, the mean size with both signs.
  Grid ends() const {
    if (most_ > 1) return stored({(largest_ - least_) / static_cast<float>(most_), -least_});
    float sum = 0;
    for (std::int64_t i = 0; i < n_; ++i) sum += std::fabs(x_[i]);
    const float mean = sum / static_cast<float>(n_);
    return stored({2 * mean, mean});
  }

  /// The best of several beginnings, each made better twice by least squares for the codes of its grid.
  Grid search() const {
    Grid best = ends();
    double least_error = looked_at(best).error;
    for (int step = 0; step <= steps(); ++step) {
      const float share = 1 - 0.05F * static_cast<float>(step), width = share * (largest_ - least_);
      Grid grid = stored({width / static_cast<float>(most_), -(least_ + (largest_ - least_ - width) / 2)});
      for (int round = 0; round < 3; ++round) {
        const Look look = looked_at(grid);
        if (look.error < least_error) {
          least_error = look.error;
          best = grid;
        }
        grid = fitted(grid, look);
      }
    }
    return best;
  }

  /// Puts the codes of a grid.
  void code(const Grid& grid, Byte* codes) const {
    const float inverse = inverse_of(grid);
    for (std::int64_t i = 0; i < n_; ++i) codes[i] = static_cast<Byte>(code_of(grid, inverse, x_[i]));
  }

 private:
  /// The weighted error of a grid, and sums over its codes.
  struct Look {
    double error, q, qq, qx;
  };

  template <class Body>
  void each(const Body& body) const {
    for (std::int64_t i = 0; i < n_; i += Sum::lanes)
      for (int lane = 0; lane < Sum::lanes; ++lane) body(lane, x_[i + lane], weights_[i + lane]);
  }

  /// Wide codes leave little to gain.
  int steps() const { return most_ > 15 ? 3 : most_ > 3 ? 9 : 14; }

  static float inverse_of(const Grid& grid) { return grid.scale == 0 ? 0 : 1 / grid.scale; }
  float code_of(const Grid& grid, float inverse, float x) const {
    return nearest((x + grid.offset) * inverse, 0.0F, static_cast<float>(most_));
  }

  /// The grid in the numbers of a block.
  Grid stored(Grid grid) const {
    grid.scale = as_half(grid.scale);
    if (!is_whole_) {
      grid.offset = as_half(grid.offset);
      return grid;
    }
    grid.whole = grid.scale == 0 ? 1 : nearest(grid.offset / grid.scale, 1, most_ + 1);
    grid.offset = grid.scale * static_cast<float>(grid.whole);
    return grid;
  }

  Look looked_at(const Grid& grid) const {
    const float inverse = inverse_of(grid);
    Sum error, of_q, of_qq, of_qx;
    each([&](int lane, float x, float weight) {
      const float q = code_of(grid, inverse, x), away = grid.scale * q - grid.offset - x, wq = weight * q;
      error[lane] += weight * (away * away);
      of_q[lane] += wq;
      of_qq[lane] += wq * q;
      of_qx[lane] += wq * x;
    });
    return {error.total(), of_q.total(), of_qq.total(), of_qx.total()};
  }

  /// Least squares for the codes of a grid; the grid itself where they do not tell a scale.
  Grid fitted(const Grid& grid, const Look& of) const {
    if (is_whole_) {  // the codes less the zero, times a scale
      const double z = grid.whole, zz = of.qq - 2 * z * of.q + z * z * weight_sum_;
      if (!(zz > 0)) return grid;
      const auto scale = static_cast<float>((of.qx - z * x_sum_) / zz);
      return stored({scale, scale * static_cast<float>(grid.whole)});
    }
    const double divisor = weight_sum_ * of.qq - of.q * of.q;
    if (!(divisor > 0)) return grid;
    const double scale = (weight_sum_ * of.qx - x_sum_ * of.q) / divisor;
    return stored({static_cast<float>(scale), static_cast<float>((scale * of.q - x_sum_) / weight_sum_)});
  }

  const float* x_;
  const float* weights_;
  std::int64_t n_;
  int most_;
  bool is_whole_;
  float least_, largest_;
  double weight_sum_ = 0, x_sum_ = 0;
};

void put_number(int value, Byte* to) {
  to[0] = static_cast<Byte>(value);
  to[1] = static_cast<Byte>(value >> 8);
}

}  // namespace

int whole_zero_at(const Byte* block) { return block[2] | block[3] << 8; }

void open_groups(const GgufType& type, const Byte* blocks, std::int64_t columns, Byte* codes, float* scales,
                 float* zeros) {
  const bool is_whole = zero_of(type) == GroupZero::whole;
  const unsigned mask = (1U << type.bits) - 1;
  for (std::int64_t c = 0; c < columns; c += type.group, blocks += type.bytes, codes += type.group) {
    *scales = half_at(blocks);
    *zeros++ = is_whole ? *scales * static_cast<float>(whole_zero_at(blocks)) : half_at(blocks + 2);
    ++scales;
    const Byte* const from = blocks + group_head_bytes;
    for (std::int64_t i = 0, bit = 0; i < type.group; ++i, bit += type.bits) {
      unsigned pair = from[bit / 8];
      if (bit % 8 + type.bits > 8) pair |= static_cast<unsigned>(from[bit / 8 + 1]) << 8;
      codes[i] = static_cast<Byte>(pair >> (bit % 8) & mask);
    }
  }
}

void put_group_codes(const GgufType& type, const Byte* codes, Byte* block) {
  Byte* const to = block + group_head_bytes;
  std::fill_n(to, type.bytes - group_head_bytes, Byte{0});
  for (std::int64_t i = 0, bit = 0; i < type.group; ++i, bit += type.bits) {
    const unsigned pair = static_cast<unsigned>(codes[i]) << (bit % 8);
    to[bit / 8] = static_cast<Byte>(to[bit / 8] | pair);
    if (bit % 8 + type.bits > 8) to[bit / 8 + 1] = static_cast<Byte>(pair >> 8);
  }
}

void round_group(const std::string& what, const GgufType& type, const float* x, const float* weights, Byte* block) {
  const Group group(type, x, weights);
  const Grid grid = weights == nullptr ? group.ends() : group.search();
  if (!std::isfinite(grid.scale) || !std::isfinite(grid.offset))
    throw Error(joined(what, ": a group's scale or offset is beyond 16-bit floats"));
  Byte codes[most_group];
  group.code(grid, codes);
  put_half(grid.scale, block);
  if (zero_of(type) == GroupZero::whole)
    put_number(grid.whole, block + 2);
  else
    put_half(grid.offset, block + 2);
  put_group_codes(type, codes, block);
}

}  // namespace bie::formats
