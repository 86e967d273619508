// Requests side by side: a pass takes rows of many of them, and every answer is what it would be alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bie/llm/generate.h"
#include "bie/llm/sampler.h"
#include "bie/llm/session.h"
#include "bie/text/tokenizer.h"

namespace bie::llm {

class PageFolder;
class PrefixTree;

struct SchedulerOptions {
  std::int64_t rows = 256;       ///< of a pass at most
  double pause = 0.05;           ///< seconds that rows of prompts may add to a pass in which others are answered
  std::int64_t cache_bytes = 0;  ///< of the pages of all requests and of those that are kept for later ones
  std::int64_t queue = 256;      ///< requests that wait at most
  std::int64_t context = 0;      ///< of prompt and answer at most; 0: the model's
  /// Pages are written to it, and taken from it where the cache lacks them. It may be null, or that of other schedulers
  /// of the same thread too.
  std::shared_ptr<PageFolder> folder = {};
};

/// The log-probability of a token, and of those that were likeliest at its place.
struct TokenChance {
  std::int32_t token;
  double logprob;
  std::vector<std::pair<std::int32_t, double>> likeliest;
};

struct Request {
  std::vector<std::int32_t> prompt;
  std::int64_t tokens = -1;  ///< of the answer at most; -1: to its end or the context's
  std::vector<std::string> stops;
  SamplerOptions sampler;
  std::optional<std::int64_t> likeliest;  ///< asks for log-probabilities: of each token, and of so many likeliest
  std::optional<Pooling> pooling;         ///< asks for the vector of the prompt, in place of an answer
  bool of_prompt = false;                 ///< asks for those of the prompt's tokens too; then no kept page is used
  std::string client;                     ///< clients take turns
  std::int64_t priority = 0;              ///< the smaller comes first
};

/// Each call of a listener tells something of this.
struct News {
  bool has_started = false;              ///< it waits no longer
  std::string text;                      ///< of the answer, in whole characters; nothing that may begin a stop text
  std::vector<TokenChance> of_prompt;    ///< once: of all its tokens but the first, before those of the answer
  std::optional<std::int32_t> token;     ///< of the answer
  std::optional<TokenChance> chance;     ///< of that token
  std::vector<float> vector;             ///< in the last call of a request that asks for it
  std::optional<Answer::Finish> finish;  ///< the last call
  std::string stop;                      ///< in the last call: the stop text before which the answer was cut, if any
  std::string error;                     ///< the last call, where there is no `finish`
  std::int64_t cached = 0;               ///< in the first call and the last: tokens of the prompt that need no reading
};

/// It must not throw, nor call the scheduler.
using Listener = std::function<void(const News&)>;

struct SchedulerCounts {
  std::int64_t waiting = 0, running = 0;                   ///< requests
  std::int64_t pages = 0, kept_pages = 0, most_pages = 0;  ///< in use, of these kept for later requests, at most
  std::int64_t passes = 0, rows = 0;                       ///< since the beginning, as all that follow
  std::int64_t read = 0, cached = 0, written = 0;          ///< tokens of prompts read and not to be read, of answers
  std::int64_t loaded = 0;                                 ///< pages that came from the folder
  std::int64_t put_back = 0;                               ///< times that a request gave up its pages and waited again
};

/// Belongs to one thread at a time.
///
/// A pass takes one row of every answer that is being written and, with the rows that are left, the next tokens of
/// prompts, the oldest first. Where pages run out, those kept for later requests are given back, then the youngest
/// request gives up its own, waits, and is read again: its answer is the same.
class Scheduler {
 public:
  using Id = std::uint64_t;

  /// @throws formats::Error where the cache holds no text of 128 tokens; std::bad_alloc
  Scheduler(Session session, const text::Tokenizer& tokenizer, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Whether as many requests wait as may; one that comes with others is not to be cut off from them.
  bool is_full() const { return static_cast<std::int64_t>(waiting_.size()) >= options_.queue; }
  /// @throws formats::Error for an empty prompt, one longer than the context, tokens that the vocabulary lacks.
  Id submit(Request request, Listener listener);
  /// The listener is not called again.
  void cancel(Id id);
  /// Runs one pass; false where there is nothing to do.
  bool pass();

  /// Tokens of prompt and answer at most.
  std::int64_t context() const { return context_; }
  SchedulerCounts counts() const;
  /// Gives the pages back that are kept for later requests.
  void forget();

 private:
  struct Job;
  struct Chosen;
  class FolderPages;
  using Jobs = std::vector<std::unique_ptr<Job>>;

  void admit();
  Jobs::iterator next_waiting();
  std::vector<Job*> plan();
  bool make_room(const std::vector<Job*>& fed);
  void put_back_youngest();
  bool read(const std::vector<Job*>& fed, std::vector<float>* results);
  void take_states(const std::vector<Job*>& fed, const std::vector<float>& states);
  void take_logits(const std::vector<Job*>& fed, const std::vector<float>& logits);
  void take_choices(const std::vector<Chosen>& chosen);
  void end(const Job& job);

  Session session_;
  const text::Tokenizer& tokenizer_;
  SchedulerOptions options_;
  std::int64_t most_pages_, context_;
  PageCount page_count_;
  std::unique_ptr<FolderPages> folder_pages_;  ///< null where there is no folder
  std::unique_ptr<PrefixTree> kept_;
  Jobs waiting_, running_;                     ///< by arrival; by admission
  std::map<std::string, std::int64_t> turns_;  ///< of clients that have requests here
  Id next_id_ = 1;
  bool pools_ = false;        ///< the pass is one of states, not of logits
  double seconds_a_row_ = 0;  ///< as the last passes tell; 0 before the first
  SchedulerCounts counts_;
};

}  // namespace bie::llm
