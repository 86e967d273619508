// Any bytes as the body of a request of bie serve: a sentence, or what the scheduler takes.
#include "cli/net_main/serve/asked.h"

#include <cmath>

#include "cli/net_main/serve/api_error.h"
#include "cli/net_main/serve/fields.h"
#include "tests/fuzz/fuzz.h"

namespace {

using bie::formats::fuzz::require;

constexpr std::int64_t vocabulary = 1000;

void check(const bie::cli::Asked& asked) {
  const auto& sampler = asked.request.sampler;
  require(asked.answers >= 1 && asked.answers <= 128);
  require(sampler.temperature >= 0 && sampler.top_p >= 0 && sampler.top_p <= 1 && sampler.top_k >= 0);
  require(sampler.min_p >= 0 && sampler.min_p <= 1 && sampler.repeat_penalty > 0);
  for (const auto& [token, bias] : sampler.biases) require(token >= 0 && token < vocabulary && std::abs(bias) <= 100);
  for (const std::string& stop : asked.request.stops) require(!stop.empty());
  for (const auto& prompt : asked.prompts)
    if (const auto* const tokens = std::get_if<std::vector<std::int32_t>>(&prompt))
      for (const std::int32_t token : *tokens) require(token >= 0 && token < vocabulary);
  for (const auto& message : asked.messages) require(message["role"].is_string() && message["content"].is_string());
  require(asked.variables.is_object() && asked.repeated.is_object());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  for (const auto read :
       {bie::cli::asked_chat, bie::cli::asked_completion, bie::cli::asked_response, bie::cli::asked_message})
    try {
      check(read(bie::cli::body_object(body), vocabulary));
    } catch (const bie::cli::ApiError& error) {
      require(error.status == 400 && std::string_view(error.what()).find('\n') == std::string_view::npos);
    }
  return 0;
}
