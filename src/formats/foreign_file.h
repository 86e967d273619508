// Names the format of a file that a reader does not accept.
#pragma once

#include <cstdint>
#include <string>

namespace bie::formats {

/// Name that foreign_file gives to text.
inline constexpr const char* a_text = "a text";

/// By its first bytes: "a PNG picture", "a zip archive"; empty where they are nothing that is known here.
std::string foreign_file(const std::uint8_t* bytes, std::int64_t size);

}  // namespace bie::formats
