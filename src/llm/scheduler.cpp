#include "bie/llm/scheduler.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <tuple>
#include <utility>

#include "bie/formats/error.h"
#include "bie/kernels/log_probabilities.h"
#include "bie/kernels/shared_rows.h"
#include "bie/llm/page_folder.h"
#include "bie/llm/pooling.h"
#include "llm/cache_format.h"
#include "llm/outlet.h"
#include "llm/prefix_tree.h"

namespace bie::llm {
namespace {

constexpr std::int64_t page_tokens = kernels::attention_block;
constexpr std::int64_t least_prompt_rows = 8;     // of a pass: a prompt goes on, however slow the machine is
constexpr double most_pause = 1000;               // seconds, where nobody waits for the next token
constexpr std::int64_t most_rows_of_logits = 64;  // of a prompt in a pass: a vocabulary may have 10^6 bytes of logits

TokenChance chance_of(const float* logits, std::int64_t vocabulary, std::int32_t token, std::int64_t likeliest) {
  TokenChance chance{token, kernels::log_sum_of(logits, vocabulary).of(logits[token]), {}};
  if (likeliest > 0) chance.likeliest = likeliest_tokens(logits, vocabulary, likeliest);
  return chance;
}

}  // namespace

struct Scheduler::Job {
  Job(Id number, Request asked, Listener hears, Sequence empty, std::int64_t most, std::int64_t width)
      : id(number),
        request(std::move(asked)),
        listener(std::move(hears)),
        text(request.prompt),
        sequence(std::move(empty)),
        outlet(request.stops),
        room(most) {
    if (request.pooling) pool.emplace(*request.pooling, width);
  }

  std::int64_t prompt() const { return static_cast<std::int64_t>(request.prompt.size()); }
  std::int64_t unread() const { return static_cast<std::int64_t>(text.size()) - sequence.length(); }
  bool is_answering() const { return !answer.tokens.empty() && unread() == 1; }
  /// Whether rows of the prompt are wanted as logits.
  bool reads_chances() const { return request.of_prompt && sequence.length() < prompt() - 1; }
  /// Whether all rows of the prompt are to be read, so that kept pages are of no use.
  bool reads_all() const { return request.of_prompt || (pool && pool->reads_all()); }

  Id id;
  Request request;
  Listener listener;
  std::vector<std::int32_t> text;  ///< prompt and answer
  Sequence sequence;
  Outlet outlet;
  std::optional<Pool> pool;
  std::int64_t room;  ///< tokens of the answer at most
  Answer answer;
  std::vector<TokenChance> of_prompt;
  std::int64_t cached = 0, rows = 0;  ///< rows: of the next pass
  bool was_started = false, was_put_back = false;
};

struct Scheduler::Chosen {
  Job* job;
  const float* logits;
  std::int32_t token = 0;
  std::optional<TokenChance> chance;
  std::string error;
};

/// The pages of the folder, for which it makes room in the cache.
class Scheduler::FolderPages final : public PageSource {
 public:
  explicit FolderPages(Scheduler& scheduler)
      : scheduler_(scheduler),
        folder_(*scheduler.options_.folder),
        head_(cache_head(scheduler.session_.model(), scheduler.session_.sequence().kind())) {}

  /// @param seconds  that it may spend on pages in this pass; then prompts are read, or wait for the next pass.
  void begin_pass(double seconds) {
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  }

  Page find(const std::vector<std::int32_t>& tokens, std::int64_t length) override {
    if (Clock::now() > end_ || !folder_.has(head_, tokens, length)) return nullptr;
    while (scheduler_.page_count_->load() >= scheduler_.most_pages_)
      if (!scheduler_.kept_->drop_one()) return nullptr;
    try {
      Page page = folder_.load(head_, tokens, length, scheduler_.page_count_);
      if (page != nullptr) ++scheduler_.counts_.loaded;
      return page;
    } catch (const std::bad_alloc&) {
      return nullptr;  // it is read instead, where there is memory for that
    }
  }
  void take(const std::vector<std::int32_t>& tokens, std::int64_t length, const Page& page) override {
    try {
      folder_.save(head_, tokens, length, page);
    } catch (const std::bad_alloc&) {
      static_cast<void>(page);  // nobody misses a page that was not saved
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  Scheduler& scheduler_;
  PageFolder& folder_;
  Clock::time_point end_ = Clock::time_point::max();
  CacheHead head_;
};

Scheduler::Scheduler(Session session, const text::Tokenizer& tokenizer, const SchedulerOptions& options)
    : session_(std::move(session)),
      tokenizer_(tokenizer),
      options_(options),
      most_pages_(options.cache_bytes / session_.page_bytes()),
      page_count_(std::make_shared<std::atomic<std::int64_t>>(0)),
      folder_pages_(options_.folder == nullptr ? nullptr : std::make_unique<FolderPages>(*this)),
      kept_(std::make_unique<PrefixTree>(folder_pages_.get())) {
  if (most_pages_ < 2)
    throw formats::Error(formats::joined("expected a cache of ", 2 * session_.page_bytes(),
                                         " bytes at least, two pages of the model, got ", options.cache_bytes));
  const std::int64_t of_model = session_.model().config().context;
  context_ = options.context == 0 ? of_model : std::min(options.context, of_model);
  if (cache_bytes(session_, context_) > most_pages_ * session_.page_bytes())
    context_ = std::min(context_, most_pages_ * page_tokens);
  counts_.most_pages = most_pages_;
}

Scheduler::~Scheduler() = default;

Scheduler::Id Scheduler::submit(Request request, Listener listener) {
  const std::int64_t vocabulary = session_.model().config().vocabulary;
  check_prompt("", request.prompt, context_);
  for (const std::int32_t token : request.prompt)
    if (token < 0 || token >= vocabulary)
      throw formats::Error(formats::joined("expected tokens from 0 to ", vocabulary - 1, ", got ", token));
  const std::int64_t left = context_ - static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t room = request.tokens < 0 ? left : std::min(request.tokens, left);
  request.sampler.prompt = static_cast<std::int64_t>(request.prompt.size());
  if (turns_.find(request.client) == turns_.end()) {
    // A client that comes has had as many turns as the one with the fewest.
    const auto fewest = std::min_element(turns_.begin(), turns_.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    turns_.emplace(request.client, fewest == turns_.end() ? 0 : fewest->second);
  }
  Sequence sequence = session_.sequence();
  sequence.count_pages(page_count_);
  const Id id = next_id_++;
  waiting_.push_back(std::make_unique<Job>(id, std::move(request), std::move(listener), std::move(sequence), room,
                                           session_.model().config().width));
  return id;
}

void Scheduler::cancel(Id id) {
  for (Jobs* jobs : {&waiting_, &running_})
    for (const auto& job : *jobs)
      if (job->id == id) {
        end(*job);
        return;
      }
}

/// Forgets a job, and its client where it has no other.
void Scheduler::end(const Job& job) {
  const std::string client = job.request.client;
  const auto is_it = [&](const std::unique_ptr<Job>& other) { return other.get() == &job; };
  for (Jobs* jobs : {&waiting_, &running_}) jobs->erase(std::remove_if(jobs->begin(), jobs->end(), is_it), jobs->end());
  const auto is_its = [&](const std::unique_ptr<Job>& other) { return other->request.client == client; };
  if (std::none_of(waiting_.begin(), waiting_.end(), is_its) && std::none_of(running_.begin(), running_.end(), is_its))
    turns_.erase(client);
}

/// By priority; then those that had been started; then the client with the fewest turns; then by arrival.
Scheduler::Jobs::iterator Scheduler::next_waiting() {
  const auto rank = [this](const Job& job) {
    return std::tuple(job.request.priority, !job.was_started, job.was_started ? 0 : turns_.at(job.request.client),
                      job.id);
  };
  return std::min_element(waiting_.begin(), waiting_.end(),
                          [&](const auto& a, const auto& b) { return rank(*a) < rank(*b); });
}

/// Starts requests while a pass has rows for them and the cache has pages for their texts.
void Scheduler::admit() {
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < options_.rows) {
    const auto next = next_waiting();
    Job& job = **next;
    if (!job.reads_all()) kept_->lend(job.text, job.sequence);
    if (!running_.empty()) {
      // Room to grow by a page each, so that nobody is put back at once.
      std::int64_t wanted = job.sequence.pages_to_append(job.unread() + page_tokens);
      for (const auto& other : running_) wanted += other->sequence.pages_to_append(other->unread() + page_tokens);
      while (page_count_->load() + wanted > most_pages_ && kept_->drop_one()) {
      }
      if (page_count_->load() + wanted > most_pages_) {
        job.sequence.cut(0);
        return;
      }
    }
    if (!job.was_started) {
      ++turns_.at(job.request.client);
      job.cached = job.sequence.length();
      counts_.cached += job.cached;
      job.was_started = true;
      News news;
      news.has_started = true;
      news.cached = job.cached;
      job.listener(news);
    }
    running_.push_back(std::move(*next));
    waiting_.erase(next);
  }
}

/// Shares the rows of a pass out. A pass has results of one kind: where both are asked for they take turns.
std::vector<Scheduler::Job*> Scheduler::plan() {
  const auto pools = [](const std::unique_ptr<Job>& job) { return job->pool.has_value(); };
  const bool all_pool = std::all_of(running_.begin(), running_.end(), pools);
  pools_ = all_pool || (!pools_ && std::any_of(running_.begin(), running_.end(), pools));
  std::vector<Job*> fed;
  std::int64_t left = options_.rows;
  bool has_answers = false;
  for (const auto& job : running_)
    if (job->is_answering()) {
      has_answers = true;
      if (pools_) break;
      job->rows = 1;
      fed.push_back(job.get());
      --left;
    }
  if (has_answers && seconds_a_row_ > 0) {
    const double rows = std::min(options_.pause / seconds_a_row_, static_cast<double>(options_.rows));
    left = std::min(left, std::max(least_prompt_rows, static_cast<std::int64_t>(rows)));
  }
  for (const auto& job : running_) {
    if (job->is_answering() || pools(job) != pools_) continue;
    if (left <= 0) break;
    if (!job->reads_all()) {  // a neighbour may have read it meanwhile
      const std::int64_t before = job->sequence.length();
      kept_->lend(job->text, job->sequence);
      const std::int64_t lent = job->was_put_back ? 0 : job->sequence.length() - before;
      job->cached += lent;
      counts_.cached += lent;
    }
    job->rows = std::min({job->unread(), left, job->reads_chances() ? most_rows_of_logits : left});
    left -= job->rows;
    fed.push_back(job.get());
  }
  return fed;
}

/// The youngest of those that come last gives up its pages and waits.
void Scheduler::put_back_youngest() {
  const auto youngest = std::max_element(running_.begin(), running_.end(), [](const auto& a, const auto& b) {
    return std::tuple(a->request.priority, a->id) < std::tuple(b->request.priority, b->id);
  });
  (*youngest)->sequence.cut(0);
  (*youngest)->was_put_back = true;
  waiting_.push_back(std::move(*youngest));
  running_.erase(youngest);
  ++counts_.put_back;
}

/// Gives pages back until those of the next pass fit. False where a request had to wait: the pass is to be planned
/// anew.
bool Scheduler::make_room(const std::vector<Job*>& fed) {
  std::int64_t wanted = 0;
  for (const Job* job : fed) wanted += job->sequence.pages_to_append(job->rows);
  while (page_count_->load() + wanted > most_pages_)
    if (!kept_->drop_one()) {
      if (running_.size() < 2) break;  // one text of the context always fits
      put_back_youngest();
      return false;
    }
  return true;
}

/// False where memory was short: a request waits again then, or has ended.
bool Scheduler::read(const std::vector<Job*>& fed, std::vector<float>* results) {
  std::vector<Feed> feeds;
  for (Job* job : fed)
    feeds.push_back({&job->sequence, job->text.data() + job->sequence.length(), job->rows,
                     pools_ ? job->reads_all() : job->reads_chances()});
  try {
    *results = session_.read(feeds, pools_ ? Session::Result::states : Session::Result::logits);
    return true;
  } catch (const std::bad_alloc&) {
    forget();
    if (running_.size() > 1) {
      put_back_youngest();
      return false;
    }
    News news;
    news.error = "the system has no memory for this text";
    running_.front()->listener(news);
    end(*running_.front());
    return false;
  } catch (const formats::Error& error) {  // a row of the embedding is damaged
    News news;
    news.error = error.what();
    for (const Job* job : fed) {
      job->listener(news);
      end(*job);
    }
    return false;
  }
}

bool Scheduler::pass() {
  if (folder_pages_ != nullptr) {
    const bool has_answers =
        std::any_of(running_.begin(), running_.end(), [](const auto& job) { return job->is_answering(); });
    folder_pages_->begin_pass(has_answers ? options_.pause : most_pause);
  }
  admit();
  std::vector<Job*> fed;
  do {
    if (running_.empty()) return false;
    fed = plan();
  } while (!make_room(fed));
  std::int64_t rows = 0, of_prompts = 0;
  for (const Job* job : fed) {
    rows += job->rows;
    if (!job->is_answering()) of_prompts += job->rows;
  }
  const auto begin = std::chrono::steady_clock::now();
  std::vector<float> results;
  if (!read(fed, &results)) return true;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // Passes of few rows take as long as reading the weights.
  if (of_prompts >= least_prompt_rows) {
    const double now = seconds / static_cast<double>(rows);
    seconds_a_row_ = seconds_a_row_ == 0 ? now : 0.75 * seconds_a_row_ + 0.25 * now;
  }
  ++counts_.passes;
  counts_.rows += rows;
  counts_.read += of_prompts;
  pools_ ? take_states(fed, results) : take_logits(fed, results);
  return true;
}

void Scheduler::take_states(const std::vector<Job*>& fed, const std::vector<float>& states) {
  const std::int64_t width = session_.model().config().width;
  const float* at = states.data();
  for (Job* job : fed) {
    const std::int64_t first = job->sequence.length() - job->rows;
    if (first == 0) job->pool->clear();
    const std::int64_t rows = job->reads_all() ? job->rows : 1;
    job->pool->add(at, rows);
    at += rows * width;
    if (!job->reads_all() && job->sequence.length() / page_tokens > first / page_tokens) kept_->keep(job->sequence);
    if (job->unread() > 0) continue;
    News news;
    news.vector = job->pool->vector();
    news.finish = Answer::Finish::length;
    news.cached = job->cached;
    job->listener(news);
    end(*job);
  }
}

void Scheduler::take_logits(const std::vector<Job*>& fed, const std::vector<float>& logits) {
  const std::int64_t vocabulary = session_.model().config().vocabulary;
  const float* at = logits.data();
  std::vector<Chosen> chosen;
  for (Job* job : fed) {
    const std::int64_t first = job->sequence.length() - job->rows;
    const bool has_all = job->request.of_prompt && first < job->prompt() - 1;
    const std::int64_t rows = has_all ? job->rows : 1;
    if (has_all) {
      const auto told = static_cast<std::int64_t>(job->of_prompt.size());
      const std::int64_t end = std::min(first + rows, job->prompt() - 1);
      if (end > told) {
        const std::int64_t begin = std::max(first, told);
        job->of_prompt.resize(static_cast<std::size_t>(end));
        kernels::share_rows(session_.parallel(), end - begin, 1, [&](std::int64_t some, std::int64_t last) {
          for (std::int64_t p = begin + some; p < begin + last; ++p)
            job->of_prompt[static_cast<std::size_t>(p)] =
                chance_of(at + (p - first) * vocabulary, vocabulary, job->text[static_cast<std::size_t>(p + 1)],
                          job->request.likeliest.value_or(0));
        });
      }
    }
    at += rows * vocabulary;
    if (job->sequence.length() / page_tokens > first / page_tokens) kept_->keep(job->sequence);
    if (job->unread() == 0) chosen.push_back({job, at - vocabulary, 0, {}, {}});
  }
  kernels::share_rows(session_.parallel(), static_cast<std::int64_t>(chosen.size()), 1,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t i = begin; i < end; ++i) {
                          Chosen& c = chosen[static_cast<std::size_t>(i)];
                          if (c.job->room <= 0) continue;
                          try {
                            c.token = choose_token(c.logits, vocabulary, c.job->text, c.job->request.sampler);
                            if (c.job->request.likeliest)
                              c.chance = chance_of(c.logits, vocabulary, c.token, *c.job->request.likeliest);
                          } catch (const formats::Error& error) {
                            c.error = error.what();
                          }
                        }
                      });
  take_choices(chosen);
}

void Scheduler::take_choices(const std::vector<Chosen>& chosen) {
  for (const Chosen& c : chosen) {
    Job& job = *c.job;
    News news;
    if (job.answer.tokens.empty()) news.of_prompt = std::move(job.of_prompt);
    bool goes_on = false;
    if (!c.error.empty()) {
      news.error = c.error;
    } else if (job.room <= 0) {
      news.finish = Answer::Finish::length;
    } else {
      goes_on = take_token(tokenizer_, c.token, job.room, job.outlet, job.answer, &news.text);
      news.token = c.token;
      news.chance = c.chance;
      if (!goes_on) news.finish = job.answer.finish;
      job.text.push_back(c.token);
      ++counts_.written;
    }
    if (!goes_on) {
      news.cached = job.cached;
      news.stop = job.answer.stop;
    }
    job.listener(news);
    if (goes_on) continue;
    if (job.sequence.length() > 0) kept_->keep(job.sequence, /*with_rest=*/true);  // a conversation may go on
    end(job);
  }
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.waiting = static_cast<std::int64_t>(waiting_.size());
  counts.running = static_cast<std::int64_t>(running_.size());
  counts.pages = page_count_->load();
  counts.kept_pages = kept_->pages();
  return counts;
}

void Scheduler::forget() {
  while (kept_->drop_one()) {
  }
}

}  // namespace bie::llm
