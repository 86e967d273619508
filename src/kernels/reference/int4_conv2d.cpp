// The definition of s4xs4_conv2d: one dull loop.
#include "bie/kernels/int4_conv2d.h"

#include "kernels/check.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

Status run(const Conv2dShape& s, const Conv2dInput& x, const void* packed, const Conv2dOutput& y, const Parallel&) {
  const Status checked = check_conv2d(s, x, y, max_k_s4);
  if (checked != Status::ok) return checked;
  if (s.out_c > 0 && s.out_h() * s.out_w() > 0 && !all_finite(s, x)) return Status::not_finite;
  const std::int64_t weight_row = row_bytes(Dtype::s4, s.depth());
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t o = 0; o < s.out_c; ++o)
      for (std::int64_t oy = 0; oy < s.out_h(); ++oy)
        for (std::int64_t ox = 0; ox < s.out_w(); ++ox) {
          const char* weight = static_cast<const char*>(packed) + o * weight_row;
          std::int32_t acc = 0;
          std::int64_t i = 0;
          for (std::int64_t c = 0; c < s.in_c; ++c)
            for (std::int64_t ky = 0; ky < s.kernel_h; ++ky)
              for (std::int64_t kx = 0; kx < s.kernel_w; ++kx, ++i) {
                const std::int64_t iy = oy * s.stride_h - s.pad_h + ky * s.dil_h;
                const std::int64_t ix = ox * s.stride_w - s.pad_w + kx * s.dil_w;
                if (iy < 0 || iy >= s.in_h || ix < 0 || ix >= s.in_w) continue;
                acc += pixel_code(s, x, n, c, iy, ix, -8, 7) * s4_at(weight, i);
              }
          store_scaled(acc, y.scale, y.data, y.dtype, out_index(s, y.layout, n, o, oy, ox));
        }
  return Status::ok;
}

std::size_t packed_bytes(const Conv2dShape& s) {
  return static_cast<std::size_t>(s.out_c * row_bytes(Dtype::s4, s.depth()));
}

void prepack(const void* weight, const Conv2dShape& s, void* packed, const Parallel&) {
  copy_bytes(weight, packed_bytes(s), packed);
}

}  // namespace

const Conv2dKernel s4xs4_conv2d = {"s4xs4_conv2d_reference", Isa::reference, nullptr, packed_bytes, prepack, run};

}  // namespace bie::kernels::reference
