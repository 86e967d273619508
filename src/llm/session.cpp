#include "bie/llm/session.h"

#include <algorithm>

#include "bie/formats/error.h"
#include "llm/decoder.h"

namespace bie::llm {
namespace {

using formats::Error;
using formats::joined;

}  // namespace

Session::Session(std::shared_ptr<const Model> model, int threads, CacheKind cache)
    : model_(std::move(model)),
      cache_(possible_kind(model_->config(), cache)),
      team_(std::make_unique<kernels::ThreadTeam>(threads)),
      parallel_(team_->parallel()),
      decoder_(std::make_unique<Decoder>(model_->config(), cache_, parallel_)) {}

Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

void Session::check(const std::vector<Feed>& feeds) const {
  const Config& c = model_->config();
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    const Feed& feed = feeds[f];
    if (!feed.sequence->fits(c, cache_))
      throw Error("expected a sequence of this session, got one of another model or cache");
    if (feed.sequence->length() > 0 && feed.sequence->length() < feed.sequence->least_cut())
      throw Error(joined("expected a sequence cut to ", feed.sequence->least_cut(),
                         " tokens at least, as pages before its window are gone, got ", feed.sequence->length()));
    for (std::size_t other = 0; other < f; ++other)
      if (feeds[other].sequence == feed.sequence) throw Error("expected each sequence once in a pass, got one twice");
    if (feed.count > c.context - feed.sequence->length())
      throw Error(joined("expected at most ", c.context, " tokens, the context of the model, got ",
                         feed.sequence->length() + feed.count));
    for (std::int64_t i = 0; i < feed.count; ++i)
      if (feed.tokens[i] < 0 || feed.tokens[i] >= c.vocabulary)
        throw Error(joined("expected tokens from 0 to ", c.vocabulary - 1, ", got ", feed.tokens[i]));
  }
}

std::vector<float> Session::read(const std::vector<Feed>& feeds, Result result, const Watch& watch) {
  check(feeds);
  decoder_->watch(watch ? &watch : nullptr);
  std::vector<std::int64_t> lengths;
  lengths.reserve(feeds.size());
  for (const Feed& feed : feeds) lengths.push_back(feed.sequence->length());
  std::vector<float> results;
  try {
    std::vector<Row> rows;
    for (const Feed& feed : feeds) {
      const std::int64_t first = feed.sequence->length();
      feed.sequence->append(feed.tokens, feed.count);
      for (std::int64_t i = 0; i < feed.count; ++i)
        rows.push_back({feed.sequence, first + i, feed.all_logits || i + 1 == feed.count});
    }
    for (std::size_t at = 0; at < rows.size(); at += Decoder::most_rows) {
      const auto end = std::min(rows.size(), at + static_cast<std::size_t>(Decoder::most_rows));
      pass({rows.begin() + static_cast<std::ptrdiff_t>(at), rows.begin() + static_cast<std::ptrdiff_t>(end)}, result,
           &results);
    }
  } catch (...) {
    for (std::size_t f = 0; f < feeds.size(); ++f) feeds[f].sequence->cut(lengths[f]);
    throw;
  }
  return results;
}

void Session::pass(const std::vector<Row>& rows, Result result, std::vector<float>* results) {
  Decoder& pass = *decoder_;
  pass.begin(rows);
  pass.embed(model_->embedding());
  for (std::int64_t i = 0; i < model_->config().layers; ++i)
    pass.run_layer(model_->layers()[static_cast<std::size_t>(i)], i);
  pass.keep_read();  // the others meet neither the last norm nor the head
  if (pass.rows() == 0) return;
  pass.read_head(model_->output_norm());
  if (result == Result::states) {
    const float* const states = pass.normed().data();
    results->insert(results->end(), states, states + pass.rows() * model_->config().width);
    return;
  }
  const std::vector<float> of_pass = pass.logits(model_->head());
  results->insert(results->end(), of_pass.begin(), of_pass.end());
}

}  // namespace bie::llm
