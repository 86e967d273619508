// Reads a message of Protocol Buffers field by field.
// Source: protobuf.dev, "Encoding": a field is a varint (number << 3 | wire type) and its value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bie/formats/error.h"

namespace bie::formats {

struct ProtobufField {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  ///< of a varint, or of four or eight bytes
  std::string_view bytes;   ///< of a string or a message, else empty
};

class ProtobufFields {
 public:
  /// @param kind  what sentences call the message.
  ProtobufFields(std::string kind, std::string_view bytes) : kind_(std::move(kind)), bytes_(bytes) {}

  /// Whether there is another field. @throws Error: the message ends inside of one, or has groups.
  bool next(ProtobufField* field) {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    *field = {key >> 3, 0, {}};
    switch (key & 7) {
      case 0: field->value = varint(); break;
      case 1: field->value = little_endian(8); break;
      case 5: field->value = little_endian(4); break;
      case 2: {
        const std::uint64_t size = varint();
        if (size > bytes_.size() - at_) fail();
        field->bytes = bytes_.substr(at_, static_cast<std::size_t>(size));
        at_ += static_cast<std::size_t>(size);
        break;
      }
      default: fail();
    }
    return true;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(joined(kind_, ": expected fields of Protocol Buffers, got something else"));
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail();
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    fail();
  }
  std::uint64_t little_endian(std::size_t size) {
    if (size > bytes_.size() - at_) fail();
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[at_++])) << 8 * i;
    return value;
  }

  std::string kind_;
  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace bie::formats
