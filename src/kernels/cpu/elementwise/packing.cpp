// The kernels of sign_pack and int4_pack, best first.
#include "bie/kernels/packing.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cpu/tile.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

std::int64_t row_grain(std::int64_t k) { return 1 + 65536 / (k + 1); }

template <bool (*encode)(const cpu::EncodeArgs&)>
Status pack_signs(const RowsShape& shape, const void* x, Dtype dtype, std::int64_t row_stride, const float* bias,
                  std::uint8_t* packed, const Parallel& parallel) {
  if (check_rows(shape) != Status::ok) return Status::bad_shape;
  constexpr std::int64_t chunk = 2048;  // the encoder writes whole words, so it writes here and bytes are copied
  if (!is_float(dtype) && dtype != Dtype::s8) return Status::bad_dtype;
  const std::int64_t bytes = row_bytes(Dtype::bits, shape.k);
  parallel_for(parallel, shape.rows, row_grain(shape.k), [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t words[chunk / 32];
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = 0; i < shape.k; i += chunk) {
        const std::int64_t count = std::min(chunk, shape.k - i);
        const char* from = static_cast<const char*>(x) + row * row_stride + row_bytes(dtype, i);
        encode({from, dtype, count, bias == nullptr ? nullptr : bias + i, 1, 1.0f, 0, 1, cpu::Code::bits, words,
                (count + 31) / 32 * 4});
        std::memcpy(packed + row * bytes + i / 8, words, static_cast<std::size_t>(row_bytes(Dtype::bits, count)));
      }
  });
  return Status::ok;
}

template <void (*pack)(const std::int8_t*, std::int64_t, std::uint8_t*)>
Status pack_int4(const RowsShape& shape, const std::int8_t* codes, std::uint8_t* packed, const Parallel& parallel) {
  if (check_rows(shape) != Status::ok) return Status::bad_shape;
  const std::int64_t bytes = row_bytes(Dtype::s4, shape.k);
  parallel_for(parallel, shape.rows, row_grain(shape.k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) pack(codes + row * shape.k, shape.k, packed + row * bytes);
  });
  return Status::ok;
}

}  // namespace

Table<SignPackKernel> sign_pack_table() {
  static const SignPackKernel best_first[] = {
#if defined(BIE_X86)
    {"sign_pack_avx512", Isa::avx512, nullptr, pack_signs<cpu::avx512::encode>},
    {"sign_pack_avx2", Isa::avx2, nullptr, pack_signs<cpu::avx2::encode>},
#endif
#if defined(BIE_ARM)
    {"sign_pack_neon", Isa::neon, nullptr, pack_signs<cpu::neon::encode>},
#endif
    {"sign_pack_portable", Isa::portable, nullptr, pack_signs<cpu::portable::encode>},
    reference::sign_pack,
  };
  return table_of(best_first);
}

Table<Int4PackKernel> int4_pack_table() {
  static const Int4PackKernel best_first[] = {
#if defined(BIE_X86)
    {"int4_pack_avx512", Isa::avx512, nullptr, pack_int4<cpu::avx512::pack_int4>},
    {"int4_pack_avx2", Isa::avx2, nullptr, pack_int4<cpu::avx2::pack_int4>},
#endif
#if defined(BIE_ARM)
    {"int4_pack_neon", Isa::neon, nullptr, pack_int4<cpu::neon::pack_int4>},
#endif
    {"int4_pack_portable", Isa::portable, nullptr, pack_int4<cpu::portable::pack_int4>},
    reference::int4_pack,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
