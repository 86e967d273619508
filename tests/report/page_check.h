// Properties of every page, whatever the report holds.
#pragma once

#include <string>
#include <string_view>

namespace bie::report::test {

/// Hands the page to page_peer.py, which reads it as XML and as HTML. Its complaints go to the test's output.
bool well_formed(const std::string& page);

/// How often `part` occurs.
int count(std::string_view page, std::string_view part);

inline bool holds(std::string_view page, std::string_view part) { return count(page, part) > 0; }

}  // namespace bie::report::test
