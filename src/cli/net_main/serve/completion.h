// A request that is being answered: what its answers' listeners tell becomes JSON, or events as it comes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bie/text/thoughts.h"
#include "bie/text/tokenizer.h"
#include "cli/net_main/serve/asked.h"
#include "cli/net_main/serve/engine.h"
#include "cli/net_main/serve/http.h"
#include "cli/net_main/serve/metrics.h"

namespace bie::cli {

/// All requests share these.
struct Service {
  std::string model_name;
  const text::Tokenizer& tokenizer;
  http::Server& server;
  Metrics& metrics;
  int queue_seconds;
  std::unique_ptr<Engine> engine;  ///< the last: its thread uses the others until it ends
};

/// A prompt as the model reads it.
struct ReadPrompt {
  std::vector<std::int32_t> tokens;
  std::string text;  ///< that echo gives back
  bool ends_in_thought = false;
};

/// How a request ended, for the log.
struct Ended {
  std::string id;
  int status;
  std::int64_t prompt, cached, written;  ///< tokens
  double seconds;
  std::string finish, text;
};

/// All of it runs in the server's thread.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(Service& service, Asked asked, std::vector<ReadPrompt> prompts, std::string client,
             std::shared_ptr<http::Exchange> exchange, std::function<void(const Ended&)> ended);

  void start();
  /// Ends it with what there is.
  void cancel(const std::string& why);
  const std::string& id() const { return id_; }
  const std::string& client() const { return client_; }
  /// {"id", "client", "prompt_tokens", "tokens", "seconds"}
  Json state() const;

 private:
  struct Choice {
    Json chances = Json::array();                 ///< of tokens, as the interface writes them
    std::string text, content, thoughts, finish;  ///< an empty finish: it is being written
    text::ThoughtStream stream;
    std::int64_t tokens = 0, cached = 0, characters = 0;
    bool has_echoed = false;
    std::chrono::steady_clock::time_point last;
  };

  std::size_t prompt_of(std::size_t choice) const { return choice / static_cast<std::size_t>(asked_.answers); }
  void hear(std::size_t at, const llm::News& news);
  void refuse(int status, const std::string& sentence);
  void time(Choice& choice);
  void stop_work();
  Json head(const char* kind) const;
  Json usage() const;
  void tell(std::size_t at, Json choice);
  void tell_chat(std::size_t at, const std::vector<text::ThoughtStream::Part>& parts, const Json& chances);
  void tell_text(std::size_t at, const std::string& text, const Json& chances);
  void finish_choice(std::size_t at);
  void finish();
  Json whole() const;
  Json chat_chance(const llm::TokenChance& chance) const;
  void add_chance(Choice& choice, const llm::TokenChance& chance, Json& list, bool is_first = false) const;
  Json chances_json(const Json& list) const;
  std::string name_of(std::int32_t token) const;

  Service& service_;
  Asked asked_;
  std::vector<ReadPrompt> prompts_;
  std::string client_;
  std::shared_ptr<http::Exchange> exchange_;
  std::function<void(const Ended&)> ended_;
  std::string id_;
  std::int64_t created_;
  std::chrono::steady_clock::time_point begin_;
  std::shared_ptr<std::vector<llm::Scheduler::Id>> ids_;  ///< the engine's thread alone touches them
  std::vector<Choice> choices_;
  std::size_t open_;
  bool has_started_ = false, has_begun_ = false, is_over_ = false;
};

}  // namespace bie::cli
