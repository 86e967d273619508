// Writes a message of Protocol Buffers field by field.
// Source: protobuf.dev, "Encoding": a field is a varint (number << 3 | wire type) and its value.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bie::formats {

/// The bytes of an unsigned integer, the lowest first.
template <class Integer>
std::string little_endian(Integer value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> 8 * i & 255);
  return bytes;
}

class ProtobufMessage {
 public:
  ProtobufMessage& add_integer(int field, std::int64_t value) {
    add_varint(key(field, varint));
    add_varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  ProtobufMessage& add_double(int field, double value) {
    add_varint(key(field, eight_bytes));
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  ProtobufMessage& add_float(int field, float value) {
    add_varint(key(field, four_bytes));
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  /// A string, or a message within this one.
  ProtobufMessage& add_bytes(int field, std::string_view value) {
    add_varint(key(field, length_and_bytes));
    add_varint(value.size());
    bytes_ += value;
    return *this;
  }
  /// repeated double, packed.
  ProtobufMessage& add_doubles(int field, const std::vector<double>& values) {
    std::string packed;
    for (const double value : values) packed += little_endian(std::bit_cast<std::uint64_t>(value));
    return add_bytes(field, packed);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  enum WireType { varint = 0, eight_bytes = 1, length_and_bytes = 2, four_bytes = 5 };

  static std::uint64_t key(int field, WireType type) { return static_cast<std::uint64_t>(field) << 3 | type; }
  void add_varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>((value & 127) | 128);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace bie::formats
