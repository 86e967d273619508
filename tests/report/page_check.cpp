#include "tests/report/page_check.h"

#include <cstdio>

namespace bie::report::test {

bool well_formed(const std::string& page) {
  std::fflush(stdout);
  FILE* const peer = ::popen("'" BIE_PYTHON "' '" BIE_PAGE_PEER "'", "w");
  if (peer == nullptr) return false;
  const bool sent = std::fwrite(page.data(), 1, page.size(), peer) == page.size();
  return ::pclose(peer) == 0 && sent;
}

int count(std::string_view page, std::string_view part) {
  int found = 0;
  for (std::size_t at = page.find(part); at != std::string_view::npos; at = page.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace bie::report::test
