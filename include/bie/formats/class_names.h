// Names of classes in a net's metadata (docs/spec/nets.md).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace bie::formats {

/// The entries "classes", a name per line, and, where that cannot hold a name (it has a line break, or is empty),
/// "class_names", a JSON list. "classes" then has blanks in place of line breaks, for older readers.
std::map<std::string, std::string> class_name_entries(const std::vector<std::string>& names);

/// The names of both entries; an entry that is not there is empty. @throws Error where the list is none.
std::vector<std::string> class_names_of(const std::string& classes, const std::string& class_names);

}  // namespace bie::formats
