// How the readers open a file.
#pragma once

#include <string>

namespace bie::formats {

/// A descriptor for reading, which the caller closes. Whatever is no regular file is refused: nobody waits for the
/// other end of a named pipe.
/// @param kind  what sentences call the file.
/// @throws Error, one sentence naming the file.
int open_regular(const std::string& kind, const std::string& path);

}  // namespace bie::formats
