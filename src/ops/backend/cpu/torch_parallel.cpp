#include "ops/backend/cpu/torch_parallel.h"

#include <ATen/Parallel.h>

namespace bie::ops {

kernels::Parallel torch_parallel() {
  return {[](void*, std::int64_t count, std::int64_t grain, kernels::Parallel::Body body, void* context) {
            at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) { body(context, begin, end); });
          },
          nullptr, at::get_num_threads()};
}

}  // namespace bie::ops
