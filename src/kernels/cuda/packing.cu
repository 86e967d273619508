#include "bie/kernels/cuda/packing.h"

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warp = 32;

// A warp reads 128 elements of a row, 32 at a time, and votes: the votes are 16 packed bytes.
constexpr std::int64_t span = 4 * warp;

template <class T>
__global__ void __launch_bounds__(threads) pack_signs_kernel(RowsShape shape, const char* x, std::int64_t row_stride,
                                                             const float* bias, std::uint8_t* packed) {
  const int lane = threadIdx.x % warp;
  const std::int64_t warps = std::int64_t{gridDim.x} * (threads / warp);
  const std::int64_t spans = (shape.k + span - 1) / span, bytes = (shape.k + 7) / 8;
  std::int64_t item = std::int64_t{blockIdx.x} * (threads / warp) + threadIdx.x / warp;
  for (; item < shape.rows * spans; item += warps) {
    const std::int64_t row = item / spans, at = item % spans;
    const T* from = reinterpret_cast<const T*>(x + row * row_stride);
    unsigned votes[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::int64_t i = at * span + j * warp + lane;
      bool up = false;
      if (i < shape.k) up = (bias == nullptr ? widen(from[i]) : widen(from[i]) + bias[i]) >= 0;
      votes[j] = __ballot_sync(0xffffffffu, up);
    }
    const unsigned word = lane < 4 ? votes[0] : lane < 8 ? votes[1] : lane < 12 ? votes[2] : votes[3];
    const std::int64_t byte = at * 16 + lane;
    if (lane < 16 && byte < bytes) packed[row * bytes + byte] = static_cast<std::uint8_t>(word >> (8 * (lane % 4)));
  }
}

// One packed byte per thread and turn.

template <class Body>
__global__ void __launch_bounds__(threads) for_bytes(std::int64_t rows, std::int64_t row_bytes, const Body body) {
  const std::int64_t stride = std::int64_t{threads} * gridDim.x;
  std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  for (; i < rows * row_bytes; i += stride) body(i / row_bytes, i % row_bytes, i);
}

template <class Body>
Status run(std::int64_t rows, std::int64_t row_bytes, const Body& body, const Queue& queue) {
  if (rows < 0 || row_bytes < 0) return Status::bad_shape;
  return launch(for_bytes<Body>, blocks_for(rows * row_bytes, threads), threads, 0, queue, rows, row_bytes, body);
}

struct UnpackSigns {
  std::int64_t k;
  const std::uint8_t* packed;
  std::int8_t* signs;

  __device__ void operator()(std::int64_t row, std::int64_t byte, std::int64_t i) const {
    const unsigned bits = packed[i];
    std::int8_t* to = signs + row * k + 8 * byte;
    if (8 * byte + 8 <= k && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
      std::uint64_t eight = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) eight |= std::uint64_t{bits >> j & 1 ? 0x01u : 0xffu} << (8 * j);
      *reinterpret_cast<std::uint64_t*>(to) = eight;
      return;
    }
    for (int j = 0; j < 8 && 8 * byte + j < k; ++j) to[j] = bits >> j & 1 ? 1 : -1;
  }
};

struct PackInt4 {
  std::int64_t k;
  const std::int8_t* codes;
  std::uint8_t* packed;

  __device__ void operator()(std::int64_t row, std::int64_t byte, std::int64_t i) const {
    const std::int8_t* from = codes + row * k + 2 * byte;
    const int low = 2 * byte + 1 < k ? from[1] : 0;
    packed[i] = static_cast<std::uint8_t>((from[0] & 15) << 4 | (low & 15));
  }
};

struct UnpackInt4 {
  std::int64_t k;
  const std::uint8_t* packed;
  std::int8_t* codes;

  __device__ void operator()(std::int64_t row, std::int64_t byte, std::int64_t i) const {
    const int both = static_cast<std::int8_t>(packed[i]);
    std::int8_t* to = codes + row * k + 2 * byte;
    to[0] = static_cast<std::int8_t>(both >> 4);
    if (2 * byte + 1 < k) to[1] = static_cast<std::int8_t>(static_cast<std::int8_t>(both << 4) >> 4);
  }
};

struct FromLayout {
  SignRows rows;
  const std::uint8_t* bytes;
  std::uint8_t* packed;

  __device__ void operator()(std::int64_t row, std::int64_t byte, std::int64_t i) const {
    packed[i] = turn_bits(rows.layout, bytes[place_in(rows.layout, row, byte, rows.layout_rows, rows.row_bytes)]);
  }
};

struct ToLayout {
  SignRows rows;
  const std::uint8_t* packed;
  std::uint8_t* bytes;

  __device__ void operator()(std::int64_t row, std::int64_t byte, std::int64_t i) const {
    bytes[place_in(rows.layout, row, byte, rows.layout_rows, rows.row_bytes)] =
        row < rows.n ? turn_bits(rows.layout, packed[i]) : std::uint8_t{0};
  }
};

/// Rows without a rest in their last byte are one long row.
RowsShape joined(const RowsShape& shape, std::int64_t per_byte) {
  return shape.k % per_byte == 0 ? RowsShape{1, shape.rows * shape.k} : shape;
}

}  // namespace

Status pack_signs(const RowsShape& shape, const void* x, Dtype dtype, std::int64_t row_stride, const float* bias,
                  std::uint8_t* packed, const Queue& queue) {
  if (shape.rows < 0 || shape.k < 0) return Status::bad_shape;
  if (!is_float(dtype) && dtype != Dtype::s8) return Status::bad_dtype;
  const bool dense = bias == nullptr && row_stride == row_bytes(dtype, shape.k);
  const RowsShape rows = dense ? joined(shape, 8) : shape;
  const std::int64_t blocks = blocks_for(rows.rows * ((rows.k + span - 1) / span), threads / warp);
  const char* from = static_cast<const char*>(x);
  if (dtype == Dtype::s8) {
    const float* none = nullptr;
    return launch(pack_signs_kernel<std::int8_t>, blocks, threads, 0, queue, rows, from, row_stride, none, packed);
  }
  return with_float(dtype, [&](auto element) {
    return launch(pack_signs_kernel<decltype(element)>, blocks, threads, 0, queue, rows, from, row_stride, bias,
                  packed);
  });
}

Status unpack_signs(const RowsShape& shape, const std::uint8_t* packed, std::int8_t* signs, const Queue& queue) {
  const RowsShape rows = joined(shape, 8);
  return run(rows.rows, row_bytes(Dtype::bits, rows.k), UnpackSigns{rows.k, packed, signs}, queue);
}

Status pack_int4(const RowsShape& shape, const std::int8_t* codes, std::uint8_t* packed, const Queue& queue) {
  const RowsShape rows = joined(shape, 2);
  return run(rows.rows, row_bytes(Dtype::s4, rows.k), PackInt4{rows.k, codes, packed}, queue);
}

Status unpack_int4(const RowsShape& shape, const std::uint8_t* packed, std::int8_t* codes, const Queue& queue) {
  const RowsShape rows = joined(shape, 2);
  return run(rows.rows, row_bytes(Dtype::s4, rows.k), UnpackInt4{rows.k, packed, codes}, queue);
}

Status signs_from_layout(const SignRows& rows, const std::uint8_t* bytes, std::uint8_t* packed, const Queue& queue) {
  return run(rows.n, rows.row_bytes, FromLayout{rows, bytes, packed}, queue);
}

Status signs_to_layout(const SignRows& rows, const std::uint8_t* packed, std::uint8_t* bytes, const Queue& queue) {
  return run(rows.layout_rows, rows.row_bytes, ToLayout{rows, packed, bytes}, queue);
}

}  // namespace bie::kernels::cuda
