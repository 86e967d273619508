// Which pages prefer_huge_pages asks for: the whole ones of 2 MiB inside a range, as the system's list of mappings
// tells.
#include "bie/kernels/huge_pages.h"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace bie::kernels::test {
namespace {

constexpr std::size_t huge = std::size_t{2} << 20, pages = 6;

/// Fresh memory that begins on a huge page.
class Memory {
 public:
  Memory() : all_(mmap(nullptr, (pages + 1) * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    const auto at = reinterpret_cast<std::uintptr_t>(all_);
    data_ = static_cast<char*>(all_) + ((at + huge - 1) / huge * huge - at);
  }
  ~Memory() { munmap(all_, (pages + 1) * huge); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  bool ok() const { return all_ != MAP_FAILED; }
  char* data() const { return data_; }

 private:
  void* all_;
  char* data_;
};

/// Whether huge pages were asked for ("hg") at an address; -1 where the system does not tell.
int asked_for(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t first = 0, last = 0;
    char dash = 0;
    if (words >> std::hex >> first >> dash >> last && dash == '-') here = first <= at && at < last;
    if (here && line.rfind("VmFlags:", 0) == 0) return line.find(" hg") != std::string::npos ? 1 : 0;
  }
  return -1;
}

TEST(HugePages, WholePagesInsideTheRangeAreAskedFor) {
  const Memory memory;
  ASSERT_TRUE(memory.ok());
  if (asked_for(memory.data()) < 0 || madvise(memory.data() + 5 * huge, huge, MADV_HUGEPAGE) != 0)
    GTEST_SKIP() << "this system has no huge pages to ask for, or does not tell";
  prefer_huge_pages(memory.data() + huge / 2, 3 * huge);  // pages 1 and 2 lie in it whole
  for (std::size_t page = 0; page < 5; ++page)
    EXPECT_EQ(asked_for(memory.data() + page * huge + 4096), page == 1 || page == 2) << page;
}

TEST(HugePages, LessThanAPageIsLeftAsItIs) {
  const Memory memory;
  ASSERT_TRUE(memory.ok());
  prefer_huge_pages(memory.data(), 0);
  prefer_huge_pages(memory.data(), huge - 1);
  prefer_huge_pages(memory.data() + 1, huge);
  EXPECT_NE(asked_for(memory.data()), 1);
  prefer_huge_pages(nullptr, 0);
}

}  // namespace
}  // namespace bie::kernels::test
#endif
