// What a file is that a reader cannot take.
#pragma once

#include <cstdint>
#include <string>

namespace bie::formats {

/// What foreign_file says of text.
inline constexpr const char* a_text = "a text";

/// By its first bytes: "a PNG picture", "a zip archive"; empty where they are nothing that is known here.
std::string foreign_file(const std::uint8_t* bytes, std::int64_t size);

}  // namespace bie::formats
