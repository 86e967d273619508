// Sizes as users write them.
#pragma once

#include <cstdint>
#include <string>

namespace bie::cli {

/// "70MB": bytes, or thousands, millions and billions of them. @throws CLI::ValidationError naming the option.
std::int64_t bytes_of_size(const char* option, const std::string& size);

}  // namespace bie::cli
