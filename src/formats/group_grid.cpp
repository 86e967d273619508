#include "bie/formats/group_grid.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "bie/formats/error.h"
#include "formats/group_search.h"
#include "formats/half.h"

namespace bie::formats {
namespace {

float as_bfloat(float value) {  // to the nearest, of two the even one
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (!std::isfinite(value)) return value;
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}
float as_it_is(float value) { return value; }

using Held = float (*)(float);
constexpr Held held_as(GroupNumbers numbers) {
  return numbers == GroupNumbers::f16 ? as_half : numbers == GroupNumbers::bf16 ? as_bfloat : as_it_is;
}

constexpr int most_code(int bits) { return (1 << bits) - 1; }

float inverse_of(const GroupGrid& grid) { return grid.scale == 0 ? 0 : 1 / grid.scale; }
float code_of(const GroupGrid& grid, float inverse, float x, int most) {
  return nearest((x + grid.offset) * inverse, 0.0F, static_cast<float>(most));
}

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

/// The group and the weights of its errors.
class Group {
 public:
  Group(const GroupGrids& grids, const float* x, std::int64_t n, const float* weights)
      : x_(x),
        weights_(weights),
        n_(n),
        most_(most_code(grids.bits)),
        is_whole_(grids.is_whole),
        held_(held_as(grids.numbers)) {
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
  GroupGrid ends() const {
    if (most_ > 1) return stored({(largest_ - least_) / static_cast<float>(most_), -least_});
    float sum = 0;
    for (std::int64_t i = 0; i < n_; ++i) sum += std::fabs(x_[i]);
    const float mean = sum / static_cast<float>(n_);
    return stored({2 * mean, mean});
  }

  /// The best of several beginnings, each made better twice by least squares for the codes of its grid.
  GroupGrid search() const {
    GroupGrid best = ends();
    double least_error = looked_at(best).error;
    for (int step = 0; step <= steps(); ++step) {
      const float share = 1 - 0.05F * static_cast<float>(step), width = share * (largest_ - least_);
      GroupGrid grid = stored({width / static_cast<float>(most_), -(least_ + (largest_ - least_ - width) / 2)});
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

 private:
  /// The weighted error of a grid, and sums over its codes.
  struct Look {
    double error, q, qq, qx;
  };

  template <class Body>
  void each(const Body& body) const {
    std::int64_t i = 0;
    for (; i + Sum::lanes <= n_; i += Sum::lanes)
      for (int lane = 0; lane < Sum::lanes; ++lane) body(lane, x_[i + lane], weights_[i + lane]);
    for (int lane = 0; i + lane < n_; ++lane) body(lane, x_[i + lane], weights_[i + lane]);
  }

  /// Wide codes leave little to gain.
  int steps() const { return most_ > 15 ? 3 : most_ > 3 ? 9 : 14; }

  /// The grid in the numbers that are kept.
  GroupGrid stored(GroupGrid grid) const {
    grid.scale = held_(grid.scale);
    if (!is_whole_) {
      grid.offset = held_(grid.offset);
      return grid;
    }
    grid.whole = grid.scale == 0 ? 1 : nearest(grid.offset / grid.scale, 1, most_ + 1);
    grid.offset = grid.scale * static_cast<float>(grid.whole);
    return grid;
  }

  Look looked_at(const GroupGrid& grid) const {
    const float inverse = inverse_of(grid);
    Sum error, of_q, of_qq, of_qx;
    each([&](int lane, float x, float weight) {
      const float q = code_of(grid, inverse, x, most_), away = grid.scale * q - grid.offset - x, wq = weight * q;
      error[lane] += weight * (away * away);
      of_q[lane] += wq;
      of_qq[lane] += wq * q;
      of_qx[lane] += wq * x;
    });
    return {error.total(), of_q.total(), of_qq.total(), of_qx.total()};
  }

  /// Least squares for the codes of a grid; the grid itself where they do not tell a scale.
  GroupGrid fitted(const GroupGrid& grid, const Look& of) const {
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
  Held held_;
  float least_, largest_;
  double weight_sum_ = 0, x_sum_ = 0;
};

}  // namespace

std::vector<float> error_weights(const std::string& what, const float* importance, std::int64_t columns) {
  std::vector<float> weights;
  if (importance == nullptr) return weights;
  const auto is_wrong = [](float v) { return !(v >= 0 && std::isfinite(v)); };
  if (std::any_of(importance, importance + columns, is_wrong))
    throw Error(joined(what, ": the weights of errors hold NaN, infinity or a number below 0"));
  const double mean = std::accumulate(importance, importance + columns, 0.0) / static_cast<double>(columns);
  if (mean == 0) return weights;
  constexpr double least = 1e-6;  // of an input that hardly occurs
  for (std::int64_t i = 0; i < columns; ++i)
    weights.push_back(static_cast<float>(std::max(least, static_cast<double>(importance[i]) / mean)));
  return weights;
}

GroupGrid group_grid(const GroupGrids& grids, const float* x, std::int64_t count, const float* weights) {
  const Group group(grids, x, count, weights);
  return weights == nullptr ? group.ends() : group.search();
}

void nearest_codes(const GroupGrids& grids, const GroupGrid& grid, const float* x, std::int64_t count,
                   std::uint8_t* codes) {
  const float inverse = inverse_of(grid);
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::uint8_t>(code_of(grid, inverse, x[i], most_code(grids.bits)));
}

}  // namespace bie::formats
