#include "cli/net_main/serve/access.h"

#include <optional>
#include <string_view>

#include "bie/formats/error.h"
#include "cli/net_main/serve/api_error.h"
#include "formats/lower.h"

namespace bie::cli {
namespace {

using formats::joined;

/// In a time that does not tell how much of it is right.
bool are_equal(const std::string& a, const std::string& b) {
  std::size_t difference = a.size() ^ b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<std::size_t>(static_cast<unsigned char>(a[i]) ^
                                           static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]));
  return difference == 0;
}

/// The key of OpenAI's header, Authorization: Bearer.
std::string bearer_of(const http::Request& request) {
  constexpr std::string_view scheme = "bearer ";
  const bool has_scheme = formats::lower(request.authorization.substr(0, scheme.size())) == scheme;
  return has_scheme ? request.authorization.substr(scheme.size()) : "";
}

}  // namespace

std::string Access::client_of(const http::Request& request) const {
  if (options_.keys.empty()) return request.address;
  const std::string bearer = bearer_of(request);
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < options_.keys.size(); ++i)
    for (const std::string& given : {bearer, request.api_key})  // Anthropic's clients send X-Api-Key
      if (are_equal(options_.keys[i], given)) found = i;
  if (!found)
    throw ApiError(401,
                   joined("expected a key of this server as Authorization: Bearer or X-Api-Key, got ",
                          bearer.empty() && request.api_key.empty() ? "none" : "another one"),
                   "", "invalid_api_key");
  return joined("key ", *found + 1);
}

void Access::check_origin(const http::Request& request) const {
  if (!options_.is_local || !options_.keys.empty() || request.origin.empty() || options_.allowed_origin == "*" ||
      request.origin == options_.allowed_origin)
    return;
  const std::size_t scheme = request.origin.find("://");
  std::string host = scheme == std::string::npos ? request.origin : request.origin.substr(scheme + 3);
  const std::size_t port = host.rfind(':');
  if (port != std::string::npos && host.find(']', port) == std::string::npos) host.resize(port);
  if (host == "localhost" || host == "127.0.0.1" || host == "[::1]") return;
  throw ApiError(403, joined("expected a page of this machine, or of the origin that --cors names, got one of ",
                             formats::in_quotes(request.origin)));
}

http::Headers Access::headers_for(const http::Request& request) const {
  if (options_.allowed_origin.empty() || request.origin.empty()) return {};
  return {{"Access-Control-Allow-Origin", options_.allowed_origin}, {"Vary", "Origin"}};
}

http::Headers Access::preflight_headers() const {
  if (options_.allowed_origin.empty()) return {};
  return {{"Access-Control-Allow-Origin", options_.allowed_origin},
          {"Access-Control-Allow-Methods", "GET, POST, DELETE"},
          {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
          {"Access-Control-Max-Age", "600"}};
}

}  // namespace bie::cli
