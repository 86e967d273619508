// The paths of bie serve.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/net_main/llm/chat_prompt.h"
#include "cli/net_main/serve/completion.h"
#include "cli/net_main/serve/http.h"

namespace bie::cli {

struct ApiOptions {
  std::vector<std::string> keys;  ///< of clients; none: all may come
  std::string allowed_origin;     ///< of web pages; empty: those of the server alone
  bool logs_text = false, logs_json = false;
  std::int64_t context = 0;
};

/// One line of the log of --json, at once.
void print_event(const Json& fields);

class Api {
 public:
  /// @param prompts  null where the model has no chat template.
  Api(Service& service, const ChatPrompts* prompts, const ApiOptions& options);
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  void handle(http::Request request, const std::shared_ptr<http::Exchange>& exchange);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bie::cli
