#include "llm/decoder.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "bie/kernels/exact_math.h"
#include "bie/kernels/isa.h"

namespace bie::llm {
namespace {

using kernels::Status;

void expect_ok(Status status) {
  if (status == Status::out_of_memory) throw std::bad_alloc();
  if (status != Status::ok) throw std::logic_error(kernels::describe(status));
}

const kernels::AttentionKernel& best_attention(const Config& c, CacheKind cache, bool half_keys) {
  return kernels::choose(attention_kernels(cache, half_keys),
                         kernels::AttentionShape{c.heads, c.kv_heads, c.head_size, 1}, kernels::host().isas);
}

constexpr std::int64_t rows_at_once = 32;  // of the embedding: 2 MiB of pages, as Linux maps 16 for one that is read

/// Parts of a layer share memory: it grows, as making it smaller and larger again would clear it each time.
void make_room(std::int64_t floats, std::vector<float>& of) {
  if (std::ssize(of) < floats) of.resize(static_cast<std::size_t>(floats));
}

}  // namespace

Decoder::Decoder(const Config& config, CacheKind cache, const kernels::Parallel& parallel)
    : config_(config),
      parallel_(parallel),
      kernel_(kernels::choose(kernels::decoder_rows_table(), config.width, kernels::host().isas)),
      attention_(best_attention(config, cache, false)),
      half_keys_attention_(best_attention(config, cache, true)) {}

void Decoder::multiply(const weights::Linear& linear, const std::vector<float>& x, std::vector<float>& y) {
  if (watch_ != nullptr) (*watch_)(linear, x.data(), count_);
  make_room(count_ * linear.outputs(), y);
  expect_ok(linear.run(count_, x.data(), y.data(), parallel_));
}

/// The last product of a part reads normalised rows where the architecture has it so.
void Decoder::normalise(const Vector& norm, std::int64_t size, std::vector<float>& of) {
  if (norm != nullptr)
    kernel_.rms_norm({count_, 1, size, size}, of.data(), norm.get(), config_.eps, of.data(), parallel_);
}

/// A part's result, normalised where the architecture has it so, joins the rows.
void Decoder::join(const Vector& norm) {
  normalise(norm, config_.width, normed_);
  kernel_.add(count_ * config_.width, normed_.data(), x_.data(), parallel_);
}

/// Sines and cosines of the rows' positions: angles in double, rounded once.
void Decoder::rotations() {
  const Config& c = config_;
  cosine_.assign(c.rotations.size(), {});
  sine_.assign(c.rotations.size(), {});
  for (std::size_t i = 0; i < c.rotations.size(); ++i)
    for (const Row& row : rows_)
      for (const double frequency : c.rotations[i].frequencies) {
        const double angle = static_cast<double>(row.position) * frequency;
        cosine_[i].push_back(static_cast<float>(kernels::exact_cos(angle)) * c.rotations[i].size);
        sine_[i].push_back(static_cast<float>(kernels::exact_sin(angle)) * c.rotations[i].size);
      }
}

void Decoder::begin(const std::vector<Row>& rows) {
  rows_ = rows;
  count_ = static_cast<std::int64_t>(rows.size());
  const auto floats = static_cast<std::size_t>(count_ * config_.width);
  x_.resize(floats);
  normed_.resize(floats);
  rotations();
}

void Decoder::embed(const weights::FileMatrix& table) {
  const std::int64_t width = config_.width;
  for (std::int64_t r = 0; r < count_; ++r) {
    const Row& row = rows_[static_cast<std::size_t>(r)];
    table.read_row(row.sequence->tokens()[static_cast<std::size_t>(row.position)], x_.data() + r * width);
    // A row brings the pages around it, which would become all of the table.
    if (++embedded_ % rows_at_once == 0) table.let_go();
  }
  table.check_opened();
  if (config_.embedding_factor != 1)
    for (float& x : x_) x = x * config_.embedding_factor;
}

void Decoder::read_attention(const LayerWeights& w) {
  kernel_.rms_norm({count_, 1, config_.width, config_.width}, x_.data(), w.attention_norm.get(), config_.eps,
                   normed_.data(), parallel_);
}

void Decoder::attend(const LayerWeights& w, std::int64_t layer) {
  const Config& c = config_;
  const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  const kernels::RowVectors queries{count_, c.heads, c.head_size, q}, keys{count_, c.kv_heads, c.head_size, kv};
  multiply(w.query, normed_, query_or_gate_);
  multiply(w.key, normed_, key_);
  multiply(w.value, normed_, value_);
  if (w.query_norm != nullptr) {
    kernel_.rms_norm(queries, query_or_gate_.data(), w.query_norm.get(), c.eps, query_or_gate_.data(), parallel_);
    kernel_.rms_norm(keys, key_.data(), w.key_norm.get(), c.eps, key_.data(), parallel_);
  }
  const auto rotate = [&](const kernels::RowVectors& vectors, std::vector<float>& of) {
    const std::size_t which = c.layer(layer).rotation;
    kernel_.rotate(vectors, c.pairs(), c.neighbours, cosine_[which].data(), sine_[which].data(), of.data(), parallel_);
  };
  rotate(queries, query_or_gate_);
  rotate(keys, key_);
  make_room(count_ * q, mixed_or_up_);
  blocks_.clear();
  asked_.clear();
  std::vector<std::size_t> tables;
  const Sequence* of_table = nullptr;
  for (std::int64_t r = 0; r < count_; ++r) {
    const Row& row = rows_[static_cast<std::size_t>(r)];
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
    const std::int64_t last = rows_[static_cast<std::size_t>(r)].position;
    const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(0, last - window + 1);
    asked_.push_back({query_or_gate_.data() + r * q, blocks_.data() + tables[static_cast<std::size_t>(r)], first, last,
                      mixed_or_up_.data() + r * q});
  }
  const kernels::AttentionKernel& kernel = c.layer(layer).half_keys ? half_keys_attention_ : attention_;
  expect_ok(kernel.run(rows_.front().sequence->shape(), asked_.data(), count_, parallel_));
  normalise(w.attention_sub_norm, q, mixed_or_up_);
}

void Decoder::join_attention(const LayerWeights& w) {
  multiply(w.output, mixed_or_up_, normed_);
  join(w.attention_end_norm);
}

void Decoder::read_inner(const LayerWeights& w) {
  kernel_.rms_norm({count_, 1, config_.width, config_.width}, x_.data(), w.inner_norm.get(), config_.eps,
                   normed_.data(), parallel_);
}

void Decoder::gate(const LayerWeights& w) {
  const auto run = config_.activation == Activation::gelu    ? kernel_.gelu_gate
                   : config_.activation == Activation::relu2 ? kernel_.relu2_gate
                                                             : kernel_.silu_gate;
  multiply(w.gate, normed_, query_or_gate_);
  multiply(w.up, normed_, mixed_or_up_);
  run(count_ * config_.inner, query_or_gate_.data(), mixed_or_up_.data(), query_or_gate_.data(), parallel_);
  normalise(w.inner_sub_norm, config_.inner, query_or_gate_);
}

void Decoder::join_inner(const LayerWeights& w) {
  multiply(w.down, query_or_gate_, normed_);
  join(w.inner_end_norm);
}

void Decoder::run_layer(const LayerWeights& w, std::int64_t layer) {
  read_attention(w);
  attend(w, layer);
  join_attention(w);
  read_inner(w);
  gate(w);
  join_inner(w);
}

void Decoder::keep_read() {
  const std::int64_t width = config_.width;
  count_ = 0;
  for (std::size_t r = 0; r < rows_.size(); ++r)
    if (rows_[r].is_read) {
      std::copy_n(x_.begin() + static_cast<std::ptrdiff_t>(r) * width, width, x_.begin() + count_ * width);
      ++count_;
    }
}

void Decoder::read_head(const Vector& norm) {
  kernel_.rms_norm({count_, 1, config_.width, config_.width}, x_.data(), norm.get(), config_.eps, normed_.data(),
                   parallel_);
}

std::vector<float> Decoder::logits(const weights::Linear& head) {
  std::vector<float> result;
  multiply(head, normed_, result);
  if (config_.logit_cap > 0)
    kernel_.soft_cap(static_cast<std::int64_t>(result.size()), config_.logit_cap, result.data(), parallel_);
  return result;
}

}  // namespace bie::llm
