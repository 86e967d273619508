#include "llm/outlet.h"

#include <algorithm>

#include "bie/formats/error.h"

namespace bie::llm {

std::string Outlet::put(std::string_view bytes, const std::string** stop) {
  held_ += characters_.put(bytes);
  std::size_t first = std::string::npos;
  *stop = nullptr;
  for (const std::string& one : stops_)
    if (const std::size_t at = held_.find(one); at < first) {
      first = at;
      *stop = &one;
    }
  return take(*stop != nullptr ? first : held_.size() - begun_stop());
}

std::string Outlet::take(std::size_t count) {
  std::string told = held_.substr(0, count);
  held_.erase(0, count);
  return told;
}

/// Bytes at the end that begin a stop text.
std::size_t Outlet::begun_stop() const {
  std::size_t most = 0;
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > most; --n)
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) most = n;
  return most;
}

bool take_token(const text::Tokenizer& tokenizer, std::int32_t token, std::int64_t room, Outlet& outlet, Answer& answer,
                std::string* told) {
  answer.tokens.push_back(token);
  const std::string* stop = nullptr;
  bool is_done = true;
  if (tokenizer.is_end(token)) {
    answer.finish = Answer::Finish::end;
  } else {
    *told = outlet.put(tokenizer.bytes(token), &stop);
    if (stop != nullptr) {
      answer.finish = Answer::Finish::stop;
      answer.stop = *stop;
    }
    is_done = stop != nullptr || static_cast<std::int64_t>(answer.tokens.size()) >= room;
  }
  if (is_done && stop == nullptr) *told += outlet.end();
  answer.text += *told;
  return !is_done;
}

void check_prompt(const std::string& which, const std::vector<std::int32_t>& prompt, std::int64_t context) {
  if (prompt.empty()) throw formats::Error(which + "expected a prompt of one token at least, got an empty one");
  if (static_cast<std::int64_t>(prompt.size()) > context)
    throw formats::Error(
        formats::joined(which, "expected a prompt of at most ", context, " tokens, the context, got ", prompt.size()));
}

}  // namespace bie::llm
