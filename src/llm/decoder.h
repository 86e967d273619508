// A pass of rows through a model, part by part: what a session runs in one go, and what calibration runs a layer at a
// time. Source: docs/spec/language-models.md.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bie/kernels/attention.h"
#include "bie/kernels/decoder_rows.h"
#include "bie/kernels/parallel.h"
#include "bie/llm/cache.h"
#include "bie/llm/model.h"
#include "bie/llm/session.h"

namespace bie::llm {

/// A token of a sequence that a pass reads.
struct Row {
  Sequence* sequence;
  std::int64_t position;
  bool is_read;  ///< whether its result is
};

/// Rows of a pass between the layers, and the memory inside them. The parts of a layer follow each other in the order
/// of the functions; each reads what the one before has left.
class Decoder {
 public:
  static constexpr std::int64_t most_rows = 512;  ///< of a pass: memory between layers is for so many

  Decoder(const Config& config, CacheKind cache, const kernels::Parallel& parallel);

  /// Sees the inputs of linears; null ends that.
  void watch(const Session::Watch* watch) { watch_ = watch; }

  /// Positions of rows whose tokens have been appended to their sequences.
  void begin(const std::vector<Row>& rows);
  /// x = the tokens' rows of the table.
  void embed(const weights::FileMatrix& table);

  /// normed = norm(x), which queries, keys and values are made of.
  void read_attention(const LayerWeights& w);
  /// mixed = attention of the rows over what their sequences hold, their own keys and values stored first.
  void attend(const LayerWeights& w, std::int64_t layer);
  /// x = x + output . mixed
  void join_attention(const LayerWeights& w);
  /// normed = norm(x), which gate and up are made of.
  void read_inner(const LayerWeights& w);
  /// gated = activation(gate) * up
  void gate(const LayerWeights& w);
  /// x = x + down . gated
  void join_inner(const LayerWeights& w);

  /// All parts of a layer.
  void run_layer(const LayerWeights& w, std::int64_t layer);

  /// Rows that are read stay, the others go.
  void keep_read();
  /// normed = the last norm of x, which the head's logits are made of.
  void read_head(const Vector& norm);
  /// Logits [rows, vocabulary].
  std::vector<float> logits(const weights::Linear& head);

  std::int64_t rows() const { return count_; }
  std::vector<float>& x() { return x_; }                        ///< [rows, width]
  const std::vector<float>& normed() const { return normed_; }  ///< [rows, width]
  // These begin memory that may be larger.
  std::vector<float>& mixed() { return mixed_or_up_; }    ///< [rows, heads * head_size]
  std::vector<float>& gated() { return query_or_gate_; }  ///< [rows, inner]

 private:
  void rotations();
  void multiply(const weights::Linear& linear, const std::vector<float>& x, std::vector<float>& y);
  void normalise(const Vector& norm, std::int64_t size, std::vector<float>& of);
  void join(const Vector& norm);

  const Config& config_;
  kernels::Parallel parallel_;
  const kernels::DecoderRowsKernel& kernel_;
  const kernels::AttentionKernel &attention_, &half_keys_attention_;
  const Session::Watch* watch_ = nullptr;
  std::vector<Row> rows_;
  std::int64_t count_ = 0;         ///< rows of the pass
  std::int64_t embedded_ = 0;      ///< rows of all passes
  std::vector<float> x_, normed_;  ///< a part's result takes the place of the rows that it was made of
  std::vector<float> key_, value_;
  std::vector<float> query_or_gate_, mixed_or_up_;  ///< the first of each is no longer wanted when the second comes
  std::vector<std::vector<float>> cosine_, sine_;   ///< of each rotation [rows][pairs]
  std::vector<const void*> blocks_;
  std::vector<kernels::AttentionRow> asked_;
};

}  // namespace bie::llm
