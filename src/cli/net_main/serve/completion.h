// A request that is being answered: what its answers' listeners tell goes to the client, by the form of its interface.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/net_main/serve/answers.h"
#include "cli/net_main/serve/form.h"
#include "cli/net_main/serve/http.h"
#include "cli/net_main/serve/served_model.h"

namespace bie::cli {

/// How a request ended, for the log.
struct Ended {
  std::string id, model;
  int status;
  Usage usage;
  double seconds;
  std::string finish, text;
};

/// All of it runs in the server's thread.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  /// Sends a refusal, whole.
  using Refuse = std::function<void(const ApiError&)>;

  Completion(Service& service, const ServedModel& model, const Interface& interface, Asked asked,
             std::vector<ReadPrompt> prompts, std::string client, std::shared_ptr<http::Exchange> exchange,
             Refuse refuse, std::function<void(const Ended&)> ended);

  void start();
  /// Ends it with what there is.
  void cancel(const std::string& why);
  const std::string& id() const { return answers_.id; }
  const std::string& client() const { return client_; }
  /// {"id", "model", "state", "client", "prompt_tokens", "completion_tokens", "seconds"}
  Json state() const;

 private:
  void hear(std::size_t at, const llm::News& news);
  void refuse(const ApiError& error);
  void time(Choice& choice);
  void stop_work();
  void tell(std::size_t at, const TextParts& parts, const Chances& chances, bool is_of_thought = false);
  void begin_stream();
  void finish_choice(std::size_t at);
  void finish();

  Service& service_;
  const ServedModel& model_;
  Answers answers_;
  std::unique_ptr<Form> form_;
  std::string client_;
  std::shared_ptr<http::Exchange> exchange_;
  Refuse refuse_;
  std::function<void(const Ended&)> ended_;
  std::chrono::steady_clock::time_point begin_;
  std::shared_ptr<std::vector<llm::Scheduler::Id>> ids_;  ///< the engine's thread alone touches them
  std::shared_ptr<void> patience_;                        ///< how long it waits for its turn
  std::size_t open_;
  bool has_started_ = false, has_begun_ = false, is_over_ = false;
};

}  // namespace bie::cli
