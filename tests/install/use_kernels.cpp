// The installed kernels from outside: a 1 x 3 by 3 x 2 int8 product through the best row of this machine.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "bie/kernels/int8_gemm.h"
#include "bie/kernels/isa.h"

int main() {
  using namespace bie::kernels;
  const GemmShape shape{1, 2, 3};
  const std::int8_t x[3] = {1, -2, 3};
  const std::int8_t w[6] = {1, 1, 1, 2, 0, -1};
  std::int32_t y[2] = {};

  const GemmKernel& kernel = choose(s8xs8_gemm_table(), shape, host().isas);
  const std::size_t bytes = (kernel.packed_bytes(shape.n, shape.k) + 63) / 64 * 64;
  void* packed = std::aligned_alloc(64, bytes);
  kernel.prepack(w, shape.n, shape.k, packed, serial());
  const Status status = kernel.run(shape, {x, Dtype::s8, 3, nullptr, 1.0f}, packed, {y, Dtype::s32, 8, 1.0f}, serial());
  std::free(packed);
  std::printf("%s: %d %d\n", kernel.name, y[0], y[1]);
  return status == Status::ok && y[0] == 2 && y[1] == -1 ? 0 : 1;
}
