#include "kernels/cuda/grouped_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_groups<Reader<__nv_bfloat16>>(const GroupArgs&, Stride, int, std::int64_t, const Queue&);

}  // namespace bie::kernels::cuda
