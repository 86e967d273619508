// Who may ask: keys of clients, and web pages of other origins.
#pragma once

#include <string>
#include <vector>

#include "cli/net_main/serve/http.h"

namespace bie::cli {

struct AccessOptions {
  std::vector<std::string> keys;  ///< of clients; none: all may come
  std::string allowed_origin;     ///< of web pages; empty: those of the server alone
  bool is_local = false;          ///< only this machine reaches the server
};

class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  /// The name of the client: its key's number, or its address. @throws ApiError
  std::string client_of(const http::Request& request) const;
  /// Whoever can name an address may give it a name of his own, and a page of that name is then one of this server to a
  /// browser. @throws ApiError for such a page where only this machine is to ask and needs no key.
  void check_origin(const http::Request& request) const;
  /// A browser wants to see these headers.
  http::Headers headers_for(const http::Request& request) const;
  /// A browser that asks whether a page may ask is answered with these. None: it may not.
  http::Headers preflight_headers() const;

 private:
  AccessOptions options_;
};

}  // namespace bie::cli
