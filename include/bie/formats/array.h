// Arrays as files hold them: bytes, an element type, sizes and strides. Tensors are built on them (bie/data).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bie::formats {

enum class Element : std::uint8_t {
  boolean,
  u8,
  i8,
  i16,
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  u16,
  u32,
  u64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  c64,
};

/// Bytes of one element.
constexpr std::int64_t size_of(Element element) {
  switch (element) {
    case Element::boolean:
    case Element::u8:
    case Element::i8:
    case Element::f8_e4m3:
    case Element::f8_e5m2:
    case Element::f8_e8m0: return 1;
    case Element::i16:
    case Element::f16:
    case Element::bf16:
    case Element::u16: return 2;
    case Element::i32:
    case Element::f32:
    case Element::u32: return 4;
    case Element::i64:
    case Element::f64:
    case Element::u64:
    case Element::c64: return 8;
  }
  return 0;
}

/// "float32", "bool": torch's names.
constexpr std::string_view name(Element element) {
  constexpr std::string_view names[] = {
      "bool",    "uint8",  "int8",   "int16",  "int32",         "int64",       "float16",        "bfloat16", "float32",
      "float64", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "complex64"};
  return names[static_cast<int>(element)];
}

/// Bytes that stay where they are as long as one holds them; those of a mapped file may be written to and never reach
/// it.
struct Bytes {
  std::uint8_t* data = nullptr;
  std::int64_t size = 0;
  std::shared_ptr<void> owner = nullptr;
  bool is_mapped = false;  ///< whether they are a view of a file
};

/// Element [i, j, ...] lies at offset + i * strides[0] + j * strides[1] + ... elements of `bytes`, which the reader has
/// checked to hold all of them, aligned. Arrays of one storage hold the same `bytes`.
struct Array {
  Element element = Element::u8;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  std::shared_ptr<const Bytes> bytes;

  /// Elements, of sizes that a reader has checked.
  std::int64_t count() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) product *= size;
    return product;
  }
  template <class T>
  const T* data() const {
    return bytes == nullptr ? nullptr : reinterpret_cast<const T*>(bytes->data) + offset;
  }
};

/// The strides of a dense array in row-major order, sizes of 0 counted as 1.
std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& sizes);

/// Bytes of a dense array of these sizes; false where they are more than there can be. Sizes of 0 are counted as 1 for
/// that, so that strides cannot overflow either.
bool dense_bytes(Element element, const std::vector<std::int64_t>& sizes, std::int64_t* bytes);

/// An array that owns its bytes.
Array array_of(Element element, std::vector<std::int64_t> sizes, std::vector<std::uint8_t> bytes);

/// Whether every byte is 0 or 1: any other in a bool is undefined behaviour wherever it is read.
bool are_bools(const std::uint8_t* bytes, std::int64_t count);

}  // namespace bie::formats
