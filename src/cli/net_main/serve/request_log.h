// The log of a server: a line for each request that has been answered.
#pragma once

#include <string>

#include "cli/net_main/serve/work.h"
#include "cli/support/result.h"

namespace bie::cli {

struct RequestLog {
  bool as_json = false, has_text = false;

  void add(const std::string& path, const std::string& client, const Ended& ended) const;
};

/// One line of the log of --json, at once.
void print_event(const Json& fields);

}  // namespace bie::cli
