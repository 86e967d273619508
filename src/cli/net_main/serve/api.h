// The paths of bie serve.
#pragma once

#include <memory>
#include <string>

#include "cli/net_main/serve/access.h"
#include "cli/net_main/serve/http.h"
#include "cli/net_main/serve/request_log.h"
#include "cli/net_main/serve/served_model.h"

namespace bie::cli {

class Api {
 public:
  Api(Service& service, const Access& access, const RequestLog& log);
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  void handle(http::Request request, const std::shared_ptr<http::Exchange>& exchange);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The body of a refusal, in the form of the path's interface.
std::string refusal_text(const std::string& path, int status, const std::string& sentence);

}  // namespace bie::cli
