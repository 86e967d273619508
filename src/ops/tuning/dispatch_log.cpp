#include "ops/tuning/dispatch_log.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

namespace bie::ops {

bool logs_dispatch() {
  static const bool once = [] {
    const char* topics = std::getenv("BIE_LOG");
    return topics != nullptr && c10::str(",", topics, ",").find(",dispatch,") != std::string::npos;
  }();
  return once;
}

void log_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> written;
  const std::lock_guard<std::mutex> lock(mutex);
  if (written.insert(line).second) std::fprintf(stderr, "%s\n", line.c_str());
}

std::string text_of(const kernels::GemmShape& s) { return c10::str("m ", s.m, ", n ", s.n, ", k ", s.k); }

std::string text_of(const kernels::Conv2dShape& s) {
  return c10::str(s.batch, " x ", s.in_c, " x ", s.in_h, " x ", s.in_w, ", ", s.out_c, " filters of ", s.kernel_h, "x",
                  s.kernel_w, ", stride ", s.stride_h, "x", s.stride_w, ", groups ", s.groups);
}

}  // namespace bie::ops
