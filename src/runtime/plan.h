// How a net runs: which nodes one kernel computes together, and how values lie in memory. The bits are those of the
// nodes one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "bie/formats/net_file.h"
#include "bie/kernels/conv2d.h"

namespace bie::runtime {

inline constexpr std::uint32_t no_value = ~0u;

/// One call of a kernel.
struct Work {
  enum class Kind {
    node,    ///< a node as it is
    tailed,  ///< a convolution and the tail that alone reads it, up to the tail's pool
    silu,    ///< a product of a value and its sigmoid, which nobody else reads
    pooled,  ///< the pool of a tail: of its codes, or of its floats, which become codes behind it
  } kind;
  std::size_t node;      ///< of the file; of `tailed` the convolution, of `pooled` the tail, of `silu` the product
  std::size_t tail = 0;  ///< of `tailed` the tail, of `silu` the sigmoid
  std::vector<std::uint32_t> reads;  ///< values: those of the node, then what the tail adds
  std::vector<std::uint32_t> writes;
  // `tailed` only: where floats and codes are written (no_value if not wanted), and how the codes are quantised.
  std::uint32_t floats = no_value, codes = no_value;
  const float* bias = nullptr;
  float step = 1;
  std::int64_t bits = 0;
};

struct Plan {
  std::vector<formats::NetValue> values;  ///< those of the file, then the plan's own
  std::vector<bool> last;                 ///< per value: whether its channels lie last, [height, width, channels]
  std::vector<Work> works;                ///< in order
  std::vector<bool> takes_tail;           ///< of each node: whether its kernel computes the tail behind it
};

/// Plans a checked net. `has_pixel_tiles`: convolutions of codes can have the pixels of planes as lanes, and do so for
/// small windows; such convolutions with few outputs then do not compute their tails.
Plan plan_of(const formats::NetFile& net, bool has_pixel_tiles = false);

}  // namespace bie::runtime
