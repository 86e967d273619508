#include "cli/net_main/serve/metrics.h"

#include <algorithm>
#include <array>

#include "bie/formats/error.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

using formats::joined;

constexpr std::array bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                               1.0,   2.5,    5.0,   10.0, 25.0,  50.0, 100.0, 250.0};

std::string head(const std::string& name, const char* kind, const std::string& help) {
  return joined("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n");
}

/// A text as the value of a label.
std::string label(const std::string& text) {
  std::string escaped;
  for (const char c : text)
    escaped += c == '\\' || c == '"' ? std::string{'\\', c} : c == '\n' ? "\\n" : std::string(1, c);
  return escaped;
}

}  // namespace

void Histogram::add(double seconds) {
  counts_.resize(bounds.size());
  const auto at = std::lower_bound(bounds.begin(), bounds.end(), seconds);
  if (at != bounds.end()) ++counts_[static_cast<std::size_t>(at - bounds.begin())];
  sum_ += seconds;
  ++count_;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::string text = head(name, "histogram", help);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    below += i < counts_.size() ? counts_[i] : 0;
    text += joined(name, "_bucket{le=\"", format("%g", bounds[i]), "\"} ", below, "\n");
  }
  return text + joined(name, "_bucket{le=\"+Inf\"} ", count_, "\n", name, "_sum ", format("%.6f", sum_), "\n", name,
                       "_count ", count_, "\n");
}

std::string Metrics::text(const std::vector<std::pair<std::string, llm::SchedulerCounts>>& counts,
                          std::int64_t connections) const {
  std::string text = head("bie_requests_total", "counter", "Requests that have been answered.");
  for (const auto& [key, count] : requests)
    text += joined("bie_requests_total{path=\"", key.first, "\",status=\"", key.second, "\"} ", count, "\n");
  text += head("bie_connections", "gauge", "Connections of clients.") + joined("bie_connections ", connections, "\n");
  const auto add = [&](const char* name, const char* kind, const char* help,
                       std::int64_t llm::SchedulerCounts::*member) {
    text += head(name, kind, help);
    for (const auto& [model, of] : counts) text += joined(name, "{model=\"", label(model), "\"} ", of.*member, "\n");
  };
  using Counts = llm::SchedulerCounts;
  add("bie_answers_waiting", "gauge", "Answers that wait for their turn.", &Counts::waiting);
  add("bie_answers_running", "gauge", "Answers whose prompt is read or that are written.", &Counts::running);
  add("bie_pages_used", "gauge", "Pages of keys and values in use.", &Counts::pages);
  add("bie_pages_kept", "gauge", "Pages among them that are kept for later prompts.", &Counts::kept_pages);
  add("bie_pages_limit", "gauge", "Pages at most.", &Counts::most_pages);
  add("bie_passes_total", "counter", "Passes of the model.", &Counts::passes);
  add("bie_rows_total", "counter", "Tokens in all passes.", &Counts::rows);
  add("bie_prompt_tokens_total", "counter", "Tokens of prompts that were read.", &Counts::read);
  add("bie_cached_tokens_total", "counter", "Tokens of prompts that kept pages held.", &Counts::cached);
  add("bie_answer_tokens_total", "counter", "Tokens of answers.", &Counts::written);
  add("bie_pages_loaded_total", "counter", "Pages that came from the folder of --cache-dir.", &Counts::loaded);
  add("bie_put_back_total", "counter", "Times that an answer gave up its pages and waited again.", &Counts::put_back);
  return text + first_token.text("bie_first_token_seconds", "From a request to the first token of an answer.") +
         next_token.text("bie_next_token_seconds", "From a token of an answer to the next one.") +
         whole_request.text("bie_request_seconds", "From a request to the end of its answers.");
}

}  // namespace bie::cli
