// Lines through groups of numbers, for types whose codes have a scale and an offset.
// Source: make_qkx2_quants of ggml's ggml-quants.c; docs/spec/files.md#writing.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "formats/group_search.h"

namespace bie::formats {

/// A group stands for x = scale * q - offset.
struct Line {
  float scale = 0, offset = 0;
};

/// How a line through a group is looked for.
struct Search {
  int most;      ///< the largest code
  float first;   ///< of the widths, which are those of most + first, most + first + 0.1, ...
  int steps;     ///< widths after the first one
  bool by_size;  ///< errors count by their size, else by their square
};

/// Lines of as many groups of n numbers as there are lanes, one behind the other, each the line of the least weighted
/// error among those that least squares give for the codes of several widths; the line from the least number to the
/// largest is the one to beat. Offsets are at least 0. Lanes take the same steps in the same order as one group alone,
/// so that a compiler makes vectors of them and no bit changes.
template <int n, int lanes>
class LineFit {
 public:
  LineFit(const float* x, const float* weights, const Search& search) : search_(search) {
    for (int lane = 0; lane < lanes; ++lane)
      for (int i = 0; i < n; ++i) {
        x_[i][lane] = x[lane * n + i];
        weights_[i][lane] = weights[lane * n + i];
      }
    run();
  }

  void take(std::uint8_t* codes, Line* lines) const {
    each_lane([&](int lane) {
      lines[lane] = {scale_[lane], -least_[lane]};
      const float inverse = codes_inverse_[lane], from = codes_from_[lane];
      for (int i = 0; i < n; ++i)
        codes[lane * n + i] = static_cast<std::uint8_t>(nearest(inverse * (x_[i][lane] - from), 0, search_.most));
    });
  }

 private:
  using Lane = float[lanes];

  /// GCC would take the lanes apart before it looks for vectors.
  template <class Body>
  static void each_lane(const Body& body) {
#pragma GCC unroll 1
    for (int lane = 0; lane < lanes; ++lane) body(lane);
  }

  void run() {
    const auto most = static_cast<float>(search_.most);
    Lane range, flat;
    each_lane([&](int lane) {
      least_[lane] = largest_[lane] = x_[0][lane];
      sum_w_[lane] = weights_[0][lane];
      sum_x_[lane] = weights_[0][lane] * x_[0][lane];
    });
    for (int i = 1; i < n; ++i)
      each_lane([&](int lane) {
        const float x = x_[i][lane];
        least_[lane] = x < least_[lane] ? x : least_[lane];
        largest_[lane] = x > largest_[lane] ? x : largest_[lane];
        sum_w_[lane] += weights_[i][lane];
        sum_x_[lane] += weights_[i][lane] * x;
      });
    each_lane([&](int lane) {
      least_[lane] = 0.0F < least_[lane] ? 0.0F : least_[lane];
      range[lane] = largest_[lane] - least_[lane];
      flat[lane] = range[lane] == 0 ? 1.0F : 0.0F;  // one number: its codes are 0
      range[lane] = range[lane] == 0 ? 1.0F : range[lane];
      codes_inverse_[lane] = flat[lane] != 0 ? 0.0F : most / range[lane];
      scale_[lane] = flat[lane] != 0 ? 0.0F : 1 / codes_inverse_[lane];
      codes_from_[lane] = least_[lane];
    });
    code(codes_inverse_);
    Lane best, error;
    error_of(scale_, least_, best);
    // No error is below -1, so that a flat group keeps its line.
    each_lane([&](int lane) { best[lane] = flat[lane] != 0 ? -1.0F : best[lane]; });
    for (int step = 0; step <= search_.steps; ++step) {
      const float width = search_.first + 0.1F * static_cast<float>(step) + most;
      Lane inverse, scale, begin;
      each_lane([&](int lane) { inverse[lane] = width / (largest_[lane] - least_[lane]); });
      code(inverse);
      fit(scale, begin);
      error_of(scale, begin, error);
      each_lane([&](int lane) {
        const bool is_better = error[lane] < best[lane];  // false where there is no line
        codes_inverse_[lane] = is_better ? inverse[lane] : codes_inverse_[lane];
        codes_from_[lane] = is_better ? least_[lane] : codes_from_[lane];
        best[lane] = is_better ? error[lane] : best[lane];
        scale_[lane] = is_better ? scale[lane] : scale_[lane];
        least_[lane] = is_better ? begin[lane] : least_[lane];
      });
    }
  }

  /// From the beginning of the best lines so far.
  void code(const Lane& inverse) {
    const auto most = static_cast<float>(search_.most);
    for (int i = 0; i < n; ++i)
      each_lane([&](int lane) { q_[i][lane] = nearest(inverse[lane] * (x_[i][lane] - least_[lane]), 0.0F, most); });
  }

  /// Least squares for the codes; NaN where they tell no line.
  void fit(Lane& scale, Lane& begin) const {
    Lane sum_q = {}, sum_qq = {}, sum_qx = {};
    for (int i = 0; i < n; ++i)
      each_lane([&](int lane) {
        const float q = q_[i][lane], wq = weights_[i][lane] * q;
        sum_q[lane] += wq;
        sum_qq[lane] += wq * q;
        sum_qx[lane] += wq * x_[i][lane];
      });
    each_lane([&](int lane) {
      const float divisor = sum_w_[lane] * sum_qq[lane] - sum_q[lane] * sum_q[lane];
      const float of_line = (sum_w_[lane] * sum_qx[lane] - sum_x_[lane] * sum_q[lane]) / divisor;
      const float first = (sum_qq[lane] * sum_x_[lane] - sum_q[lane] * sum_qx[lane]) / divisor;
      const float through_zero = sum_qx[lane] / sum_qq[lane];
      begin[lane] = first > 0 ? 0.0F : first;
      scale[lane] = first > 0 ? through_zero : of_line;
      scale[lane] = divisor > 0 ? scale[lane] : std::numeric_limits<float>::quiet_NaN();
    });
  }

  void error_of(const Lane& scale, const Lane& begin, Lane& error) const {
    each_lane([&](int lane) { error[lane] = 0; });
    for (int i = 0; i < n; ++i)
      each_lane([&](int lane) {
        const float away = scale[lane] * q_[i][lane] + begin[lane] - x_[i][lane];
        error[lane] += weights_[i][lane] * (search_.by_size ? std::fabs(away) : away * away);
      });
  }

  const Search& search_;
  Lane x_[n], weights_[n], q_[n];
  Lane least_, largest_, sum_w_, sum_x_, scale_;
  Lane codes_inverse_, codes_from_;  ///< what the best line's codes are made with
};

}  // namespace bie::formats
