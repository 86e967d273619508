#include "kernels/cuda/grouped_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_groups<Reader<std::int8_t>>(const GroupArgs&, Stride, int, std::int64_t, const Queue&);

}  // namespace bie::kernels::cuda
