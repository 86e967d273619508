#include "bie/kernels/huge_pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>

namespace bie::kernels {

void prefer_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__)
  constexpr std::uintptr_t huge = std::uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t first = (begin + huge - 1) / huge * huge, last = (begin + bytes) / huge * huge;
  if (first < last) madvise(static_cast<char*>(data) + (first - begin), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace bie::kernels
