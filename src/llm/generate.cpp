#include "bie/llm/generate.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "bie/formats/error.h"
#include "bie/llm/cache_file.h"
#include "llm/outlet.h"

namespace bie::llm {
namespace {

constexpr std::int64_t part = 512;  // tokens of all prompts in a pass, some seconds of a large model at most

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// One answer that is being written.
struct Writing {
  Sequence sequence;
  Outlet outlet;
};

/// Logits behind the prompts of the answers that are written, part by part, so that a long text can be interrupted;
/// what they are then is of no use.
std::vector<float> read_prompts(Session& session, const std::vector<std::vector<std::int32_t>>& prompts,
                                const std::vector<std::size_t>& going, std::vector<Writing>& writings,
                                const std::function<bool()>& go_on) {
  const auto vocabulary = static_cast<std::size_t>(session.model().config().vocabulary);
  std::vector<float> logits(going.size() * vocabulary);
  while (go_on()) {
    std::vector<Feed> feeds;
    std::vector<std::size_t> places;
    std::int64_t room = part;
    for (std::size_t f = 0; f < going.size() && room > 0; ++f) {
      const std::vector<std::int32_t>& prompt = prompts[going[f]];
      Sequence& sequence = writings[going[f]].sequence;
      const std::int64_t left = static_cast<std::int64_t>(prompt.size()) - sequence.length();
      if (left == 0) continue;
      feeds.push_back({&sequence, prompt.data() + sequence.length(), std::min(left, room), false});
      room -= feeds.back().count;
      places.push_back(f);
    }
    if (feeds.empty()) break;
    const std::vector<float> of_part = session.read(feeds);
    for (std::size_t i = 0; i < places.size(); ++i)
      std::copy_n(of_part.begin() + static_cast<std::ptrdiff_t>(i * vocabulary), vocabulary,
                  logits.begin() + static_cast<std::ptrdiff_t>(places[i] * vocabulary));
  }
  return logits;
}

/// Cuts a text to what it and a prompt begin with, but never all of the prompt, as its last token's logits are wanted.
void cut_to_beginning(const std::vector<std::int32_t>& prompt, Sequence& sequence) {
  const auto [end, other] =
      std::mismatch(prompt.begin(), prompt.end() - 1, sequence.tokens().begin(), sequence.tokens().end());
  const std::int64_t common = end - prompt.begin();
  sequence.cut(common < sequence.least_cut() ? 0 : common);
}

}  // namespace

std::int64_t cache_bytes(const Session& session, std::int64_t tokens) {
  constexpr std::int64_t page = kernels::attention_block;
  const std::int64_t window = session.model().config().window();
  // Pages are given back when a part has been read; one more is begun, and one has been left in part.
  const std::int64_t held = window == 0 ? tokens : std::min(tokens, window + part + 2 * page);
  return (held + page - 1) / page * session.page_bytes();
}

std::vector<Answer> generate(Session& session, const text::Tokenizer& tokenizer,
                             const std::vector<std::vector<std::int32_t>>& prompts, const GenerateOptions& o,
                             const TellText& tell, const std::function<bool()>& go_on, Times* times, Sequence* kept) {
  const Config& config = session.model().config();
  const std::int64_t context = o.context == 0 ? config.context : std::min(o.context, config.context);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    check_prompt(prompts.size() > 1 ? formats::joined("prompt ", i + 1, ": ") : "", prompts[i], context);
  std::vector<Answer> answers(prompts.size());
  std::vector<Writing> writings;
  std::vector<std::size_t> going;
  std::vector<std::int64_t> rooms;
  std::vector<Feed> feeds;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    answers[i].prompt = prompts[i];
    writings.push_back({session.sequence(), Outlet(o.stops)});
    const std::int64_t left = context - static_cast<std::int64_t>(prompts[i].size());
    rooms.push_back(o.tokens < 0 ? left : std::min(o.tokens, left));
    if (rooms.back() > 0) going.push_back(i);
  }
  const bool is_cached = !o.cache_file.empty() && prompts.size() == 1 && kept == nullptr;
  if (is_cached) load_cache(o.cache_file, prompts[0], session.model(), writings[0].sequence);
  if (kept != nullptr) cut_to_beginning(prompts[0], writings[0].sequence = *kept);
  if (!writings.empty()) answers[0].cached = writings[0].sequence.length();
  const Stopwatch reading;
  std::vector<float> logits = read_prompts(session, prompts, going, writings, go_on);
  times->prompt = reading.seconds();
  if (is_cached && writings[0].sequence.tokens() == prompts[0])
    save_cache(o.cache_file, session.model(), writings[0].sequence);
  const Stopwatch writing_time;
  while (!going.empty() && go_on()) {
    std::vector<std::size_t> next;
    feeds.clear();
    for (std::size_t f = 0; f < going.size(); ++f) {
      const std::size_t i = going[f];
      Answer& answer = answers[i];
      const float* const of_answer = logits.data() + static_cast<std::int64_t>(f) * config.vocabulary;
      if (o.logprobs > 0) answer.logprobs.push_back(likeliest_tokens(of_answer, config.vocabulary, o.logprobs));
      const std::int32_t token = choose_token(of_answer, config.vocabulary, writings[i].sequence.tokens(), o.sampler);
      std::string told;
      if (take_token(tokenizer, token, rooms[i], writings[i].outlet, answer, &told)) {
        feeds.push_back({&writings[i].sequence, &answer.tokens.back(), 1, false});
        next.push_back(i);
      }
      if (!told.empty()) tell(i, told);
    }
    going = std::move(next);
    if (!going.empty()) logits = session.read(feeds);
  }
  for (const std::size_t i : going) {
    answers[i].finish = Answer::Finish::interrupted;
    const std::string rest = writings[i].outlet.end();
    answers[i].text += rest;
    if (!rest.empty()) tell(i, rest);
  }
  times->generate = writing_time.seconds();
  if (kept != nullptr) *kept = std::move(writings[0].sequence);
  return answers;
}

const char* name(Answer::Finish finish) {
  constexpr const char* names[] = {"length", "stop", "end", "interrupted"};
  return names[static_cast<int>(finish)];
}

}  // namespace bie::llm
