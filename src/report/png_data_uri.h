// A small picture inside a page.
#pragma once

#include <string>

#include "report/facts.h"

namespace bie::report {

/// Whether the picture has at least one pixel, 1 or 3 channels and as many bytes as they need.
bool complete(const Picture& picture);

/// "data:image/png;base64,..." of a complete picture. Source: PNG Specification (Third Edition), sections 5, 9 and 11;
/// base64: RFC 4648, section 4.
std::string png_data_uri(const Picture& picture);

}  // namespace bie::report
