// CRC-32C (Castagnoli), the checksum of TensorFlow's records; zlib has another polynomial.
#pragma once

#include <cstdint>
#include <string_view>

namespace bie::formats {

/// Reflected polynomial 0x82F63B78, initial value and final xor of all ones. Source: RFC 3720, section 12.1 and B.4.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace bie::formats
