// Memory that is read from end to end in every call, such as a prepacked weight.
#pragma once

#include <cstddef>

namespace bie::kernels {

/// Asks the system to back the huge pages (2 MiB) that lie wholly in [data, data + bytes) as such: a request that may
/// have no effect. Call it before the memory is written.
void prefer_huge_pages(void* data, std::size_t bytes);

}  // namespace bie::kernels
