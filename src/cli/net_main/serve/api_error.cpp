#include "cli/net_main/serve/api_error.h"

namespace bie::cli {

Json openai_error(const ApiError& error) {
  const char* const type = error.status == 401                          ? "authentication_error"
                           : error.status == 429 || error.status == 503 ? "overloaded_error"
                           : error.status < 500                         ? "invalid_request_error"
                                                                        : "server_error";
  return {{"error",
           {{"message", error.what()},
            {"type", type},
            {"param", error.param.empty() ? Json() : Json(error.param)},
            {"code", error.code.empty() ? Json() : Json(error.code)}}}};
}

Json anthropic_error(const ApiError& error) {
  const char* const type = error.status == 401   ? "authentication_error"
                           : error.status == 403 ? "permission_error"
                           : error.status == 404 ? "not_found_error"
                           : error.status == 413 ? "request_too_large"
                           : error.status == 429 ? "rate_limit_error"
                           : error.status == 503 ? "overloaded_error"
                           : error.status < 500  ? "invalid_request_error"
                                                 : "api_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.what()}}}};
}

}  // namespace bie::cli
