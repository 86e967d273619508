#include "bie/llm/session.h"

#include <algorithm>
#include <stdexcept>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"
#include "bie/kernels/isa.h"
#include "llm/architectures.h"

namespace bie::llm {
namespace {

using formats::Error;
using formats::joined;
using kernels::Status;

constexpr std::int64_t most_rows = 512;  // of a pass: memory between layers is for so many

void expect_ok(Status status) {
  if (status == Status::out_of_memory) throw std::bad_alloc();
  if (status != Status::ok) throw std::logic_error(kernels::describe(status));
}

const kernels::AttentionKernel& best_attention(const Config& c, CacheKind cache, bool half_keys) {
  return kernels::choose(attention_kernels(cache, half_keys),
                         kernels::AttentionShape{c.heads, c.kv_heads, c.head_size, 1}, kernels::host().isas);
}

}  // namespace

Session::Session(std::shared_ptr<const Model> model, int threads, CacheKind cache)
    : model_(std::move(model)),
      cache_(possible_kind(model_->config(), cache)),
      team_(std::make_unique<kernels::ThreadTeam>(threads)),
      parallel_(team_->parallel()),
      rows_kernel_(kernels::choose(kernels::decoder_rows_table(), model_->config().width, kernels::host().isas)),
      attention_kernel_(best_attention(model_->config(), cache_, false)),
      half_keys_kernel_(best_attention(model_->config(), cache_, true)) {}

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
  watch_ = watch ? &watch : nullptr;
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
    for (std::size_t at = 0; at < rows.size(); at += most_rows) {
      const auto end = std::min(rows.size(), at + static_cast<std::size_t>(most_rows));
      pass({rows.begin() + static_cast<std::ptrdiff_t>(at), rows.begin() + static_cast<std::ptrdiff_t>(end)}, result,
           &results);
    }
  } catch (...) {
    for (std::size_t f = 0; f < feeds.size(); ++f) feeds[f].sequence->cut(lengths[f]);
    throw;
  }
  return results;
}

void Session::multiply(const weights::Linear& linear, const std::vector<float>& x, std::vector<float>& y) {
  if (watch_ != nullptr) (*watch_)(linear, x.data(), count_);
  y.resize(static_cast<std::size_t>(count_ * linear.outputs()));
  expect_ok(linear.run(count_, x.data(), y.data(), parallel_));
}

/// Sines and cosines of the rows' positions: angles in double, rounded once.
void Session::rotations(const std::vector<Row>& rows) {
  const Config& c = model_->config();
  cosine_.assign(c.rotations.size(), {});
  sine_.assign(c.rotations.size(), {});
  for (std::size_t i = 0; i < c.rotations.size(); ++i)
    for (const Row& row : rows)
      for (const double frequency : c.rotations[i].frequencies) {
        const double angle = static_cast<double>(row.position) * frequency;
        cosine_[i].push_back(static_cast<float>(kernels::exact_cos(angle)) * c.rotations[i].size);
        sine_[i].push_back(static_cast<float>(kernels::exact_sin(angle)) * c.rotations[i].size);
      }
}

/// mixed_ = attention of the rows' queries over what their sequences hold, their own keys and values stored first.
void Session::attend(const std::vector<Row>& rows, std::int64_t layer) {
  const Config& c = model_->config();
  const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  mixed_.resize(static_cast<std::size_t>(count_ * q));
  blocks_.clear();
  asked_.clear();
  std::vector<std::size_t> tables;
  const Sequence* of_table = nullptr;
  for (std::int64_t r = 0; r < count_; ++r) {
    const Row& row = rows[static_cast<std::size_t>(r)];
    row.sequence->store(layer, row.position, key_.data() + r * kv, value_.data() + r * kv);
    if (row.sequence != of_table) {
      tables.push_back(blocks_.size());
      for (std::int64_t p = 0; p < row.sequence->pages(); ++p) blocks_.push_back(row.sequence->block(layer, p));
      of_table = row.sequence;
    } else {
      tables.push_back(tables.back());
    }
  }
  const std::int64_t window = c.layer(layer).window;
  for (std::int64_t r = 0; r < count_; ++r) {
    const std::int64_t last = rows[static_cast<std::size_t>(r)].position;
    const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(0, last - window + 1);
    asked_.push_back({query_.data() + r * q, blocks_.data() + tables[static_cast<std::size_t>(r)], first, last,
                      mixed_.data() + r * q});
  }
  const kernels::AttentionKernel& kernel = c.layer(layer).half_keys ? half_keys_kernel_ : attention_kernel_;
  expect_ok(kernel.run(rows.front().sequence->shape(), asked_.data(), count_, parallel_));
}

void Session::pass(const std::vector<Row>& rows, Result result, std::vector<float>* results) {
  const Config& c = model_->config();
  const kernels::DecoderRowsKernel& kernel = rows_kernel_;
  count_ = static_cast<std::int64_t>(rows.size());
  const auto floats = static_cast<std::size_t>(count_ * c.width);
  const kernels::RowVectors whole{count_, 1, c.width, c.width},
      queries{count_, c.heads, c.head_size, c.heads * c.head_size},
      keys{count_, c.kv_heads, c.head_size, c.kv_heads * c.head_size};
  x_.resize(floats);
  normed_.resize(floats);
  for (std::int64_t r = 0; r < count_; ++r) {
    const Row& row = rows[static_cast<std::size_t>(r)];
    model_->embedding().read_row(row.sequence->tokens()[static_cast<std::size_t>(row.position)],
                                 x_.data() + r * c.width);
  }
  model_->embedding().check_opened();
  if (c.embedding_factor != 1)
    for (float& x : x_) x = x * c.embedding_factor;
  rotations(rows);
  const auto rotate = [&](std::int64_t layer, const kernels::RowVectors& vectors, std::vector<float>& of) {
    const std::size_t which = c.layer(layer).rotation;
    kernel.rotate(vectors, c.pairs(), c.neighbours, cosine_[which].data(), sine_[which].data(), of.data(), parallel_);
  };
  // A part's result, normalised where the architecture has it so, joins the rows.
  const auto join = [&](const Vector& norm) {
    if (norm != nullptr) kernel.rms_norm(whole, output_.data(), norm.get(), c.eps, output_.data(), parallel_);
    kernel.add(count_ * c.width, output_.data(), x_.data(), parallel_);
  };
  const auto gate = c.activation == Activation::gelu    ? kernel.gelu_gate
                    : c.activation == Activation::relu2 ? kernel.relu2_gate
                                                        : kernel.silu_gate;
  // The last product of a part reads normalised rows where the architecture has it so.
  const auto normalise = [&](const Vector& norm, std::int64_t size, std::vector<float>& of) {
    if (norm != nullptr) kernel.rms_norm({count_, 1, size, size}, of.data(), norm.get(), c.eps, of.data(), parallel_);
  };
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const LayerWeights& w = model_->layers()[static_cast<std::size_t>(i)];
    kernel.rms_norm(whole, x_.data(), w.attention_norm.get(), c.eps, normed_.data(), parallel_);
    multiply(w.query, normed_, query_);
    multiply(w.key, normed_, key_);
    multiply(w.value, normed_, value_);
    if (w.query_norm != nullptr) {
      kernel.rms_norm(queries, query_.data(), w.query_norm.get(), c.eps, query_.data(), parallel_);
      kernel.rms_norm(keys, key_.data(), w.key_norm.get(), c.eps, key_.data(), parallel_);
    }
    rotate(i, queries, query_);
    rotate(i, keys, key_);
    attend(rows, i);
    normalise(w.attention_sub_norm, c.heads * c.head_size, mixed_);
    multiply(w.output, mixed_, output_);
    join(w.attention_end_norm);
    kernel.rms_norm(whole, x_.data(), w.inner_norm.get(), c.eps, normed_.data(), parallel_);
    multiply(w.gate, normed_, gate_);
    multiply(w.up, normed_, up_);
    gate(count_ * c.inner, gate_.data(), up_.data(), gate_.data(), parallel_);
    normalise(w.inner_sub_norm, c.inner, gate_);
    multiply(w.down, gate_, output_);
    join(w.inner_end_norm);
  }
  // Only the rows that are read meet the last norm and the head.
  count_ = 0;
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (rows[r].is_read) {
      std::copy_n(x_.begin() + static_cast<std::ptrdiff_t>(r) * c.width, c.width, x_.begin() + count_ * c.width);
      ++count_;
    }
  if (count_ == 0) return;
  kernel.rms_norm({count_, 1, c.width, c.width}, x_.data(), model_->output_norm().get(), c.eps, normed_.data(),
                  parallel_);
  if (result == Result::states) {
    results->insert(results->end(), normed_.begin(), normed_.begin() + count_ * c.width);
    return;
  }
  std::vector<float> of_pass;
  multiply(model_->head(), normed_, of_pass);
  if (c.logit_cap > 0)
    kernel.soft_cap(static_cast<std::int64_t>(of_pass.size()), c.logit_cap, of_pass.data(), parallel_);
  results->insert(results->end(), of_pass.begin(), of_pass.end());
}

}  // namespace bie::llm
