// Counts of a server, as Prometheus reads them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bie/llm/scheduler.h"

namespace bie::cli {

/// Seconds by bounds.
class Histogram {
 public:
  void add(double seconds);
  /// In Prometheus' text format.
  std::string text(const std::string& name, const std::string& help) const;

 private:
  std::vector<std::int64_t> counts_;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

struct Metrics {
  std::map<std::pair<std::string, int>, std::int64_t> requests;  ///< by path and status
  Histogram first_token, next_token, whole_request;

  /// @param counts  of each model.
  std::string text(const std::vector<std::pair<std::string, llm::SchedulerCounts>>& counts,
                   std::int64_t connections) const;
};

}  // namespace bie::cli
