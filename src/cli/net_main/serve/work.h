// A request on its way through the scheduler: it waits for its turn, is refused, left, or ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/net_main/serve/answers.h"
#include "cli/net_main/serve/api_error.h"
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
class Work : public std::enable_shared_from_this<Work> {
 public:
  /// Where a request came from, and how it is refused and ended.
  struct Origin {
    std::string client;
    std::shared_ptr<http::Exchange> exchange;
    std::function<void(const ApiError&)> refuse;       ///< sends a refusal, whole
    std::function<void(std::function<void()>)> aside;  ///< has something done beside the server's loop
    std::function<void(const Ended&)> ended;
  };

  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Has the requests scheduled.
  void start();
  /// Ends it with what there is.
  virtual void cancel() = 0;
  const std::string& id() const { return id_; }
  const std::string& client() const { return origin_.client; }
  /// {"id", "model", "state", "client", "prompt_tokens", "completion_tokens", "seconds"}
  Json state() const;

 protected:
  Work(Service& service, const ServedModel& model, std::string id, Origin origin);

  /// In the order in which hear() counts them.
  virtual std::vector<llm::Request> requests() const = 0;
  /// Takes news of one of the requests, which are neither its beginning nor an error.
  virtual void hear(std::size_t at, const llm::News& news) = 0;
  /// Takes how many tokens of a request's prompt need no reading.
  virtual void take_cached(std::size_t at, std::int64_t tokens) = 0;
  /// Tells the client that it cannot be gone on with.
  virtual void fail(const ApiError& error) { origin_.refuse(error); }
  virtual Usage usage() const = 0;

  void refuse(const ApiError& error);
  void stop_work();
  /// Is called once it has been answered.
  void end(const std::string& finish, const std::string& text);
  bool is_over() const { return is_over_; }
  double seconds() const;

  Service& service_;
  const ServedModel& model_;

  http::Exchange& exchange() const { return *origin_.exchange; }
  void do_aside(std::function<void()> work) const { origin_.aside(std::move(work)); }

 private:
  void take(std::size_t at, const llm::News& news);

  std::string id_;
  Origin origin_;
  std::chrono::steady_clock::time_point begin_;
  std::shared_ptr<std::vector<llm::Scheduler::Id>> ids_;  ///< the engine's thread alone touches them
  std::shared_ptr<void> patience_;                        ///< how long it waits for its turn
  bool has_started_ = false, is_over_ = false;
};

/// A name that nobody guesses.
std::string random_id(const char* kind);

}  // namespace bie::cli
