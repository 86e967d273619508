// Dense arrays of any dtype for the tests of loops over elements, and the pools that such loops run on.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "bie/kernels/dtype.h"
#include "bie/kernels/parallel.h"
#include "formulas.h"
#include "replayable_rng.h"

namespace bie::kernels::test {

/// Around vectors, the loops' chunks of 256, the blocks of sums and the tasks of 16384.
constexpr std::int64_t element_counts[] = {0, 1, 3, 7, 31, 33, 255, 257, 2047, 2049, 16383, 16385, 40001};

struct Elements {
  Dtype dtype;
  std::vector<unsigned char> bytes;

  Elements(Dtype type, std::int64_t count) : dtype(type), bytes(static_cast<std::size_t>(row_bytes(type, count))) {}
  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size()) / row_bytes(dtype, 1); }
  float get(std::int64_t i) const { return read_float(bytes.data(), dtype, i); }
  void set(std::int64_t i, float value) {
    if (dtype == Dtype::s8)
      write_code(bytes.data(), dtype, i, static_cast<int>(value));
    else
      write_float(bytes.data(), dtype, i, value);
  }
  const float* floats() const { return reinterpret_cast<const float*>(bytes.data()); }
  float* floats() { return reinterpret_cast<float*>(bytes.data()); }
  const std::int8_t* codes() const { return reinterpret_cast<const std::int8_t*>(bytes.data()); }
  std::int8_t* codes() { return reinterpret_cast<std::int8_t*>(bytes.data()); }
};

/// Values of both signs around `size`, zeros of both signs among them; codes of the whole range.
inline Elements random_elements(Dtype dtype, std::int64_t count, float size, ReplayableRng& rng) {
  Elements x(dtype, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t kind = rng.between(0, 15);
    const float value = static_cast<float>(rng.between(-(1 << 20), 1 << 20)) * 0x1p-20f * size;
    if (dtype == Dtype::s8)
      x.set(i, static_cast<float>(rng.between(-128, 127)));
    else
      x.set(i, kind == 0 ? 0.0f : kind == 1 ? -0.0f : kind == 2 ? 4 * value : value);
  }
  return x;
}

/// check(parallel) on one, two and three threads of a pool, and on a team of two.
template <class Check>
void for_every_pool(const Check& check) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    check(pool.parallel());
  }
  ThreadTeam team(2);  // whose loops have smaller parts
  check(team.parallel());
}

/// One operation in float32, taken in float64: for + - * / and square roots of normal results both round alike.
inline float f32(double value) { return static_cast<float>(value); }

inline std::vector<unsigned char> bytes_of(const void* data, std::size_t count) {
  std::vector<unsigned char> bytes(count);
  if (count > 0) std::memcpy(bytes.data(), data, count);
  return bytes;
}

}  // namespace bie::kernels::test
