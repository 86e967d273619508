#include "cli/net_main/serve/request_log.h"

#include <cstdio>

#include "cli/support/log.h"
#include "cli/support/text.h"

namespace bie::cli {

void print_event(const Json& fields) {
  print_json("serve", fields);
  std::fflush(stdout);
}

void RequestLog::add(const std::string& path, const std::string& client, const Ended& ended) const {
  const Usage& u = ended.usage;
  if (as_json) {
    Json line = {{"event", "request"},        {"path", path},         {"status", ended.status},
                 {"client", client},          {"model", ended.model}, {"prompt_tokens", u.prompt},
                 {"cached_tokens", u.cached}, {"tokens", u.written},  {"seconds", ended.seconds},
                 {"finish", ended.finish}};
    if (has_text) line["text"] = ended.text;
    return print_event(line);
  }
  log::info(format("%s %d %s: %lld tokens read, %lld of them kept; %lld written in %.2f s: %s%s%s", path.c_str(),
                   ended.status, client.c_str(), static_cast<long long>(u.prompt), static_cast<long long>(u.cached),
                   static_cast<long long>(u.written), ended.seconds, ended.finish.c_str(), has_text ? ": " : "",
                   has_text ? ended.text.c_str() : ""));
}

}  // namespace bie::cli
