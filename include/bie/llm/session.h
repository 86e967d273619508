// Passes of a model over tokens: the memory between its layers, and threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bie/kernels/parallel.h"
#include "bie/llm/cache.h"
#include "bie/llm/model.h"

namespace bie::llm {

class Decoder;
struct Row;

/// Tokens that a sequence reads in a pass.
struct Feed {
  Sequence* sequence;
  const std::int32_t* tokens;
  std::int64_t count;
  bool all_logits;  ///< of every token, else of the last one
};

/// Belongs to one thread at a time. A row's results depend on its own sequence alone: neither on what else is in the
/// pass, nor on how a text is cut into passes, nor on threads.
class Session {
 public:
  /// @param threads  including the caller's.
  /// @param cache    codes become floats where heads have no groups of 16.
  /// @throws std::bad_alloc, std::system_error
  Session(std::shared_ptr<const Model> model, int threads, CacheKind cache);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// An empty text for this session.
  Sequence sequence() const { return {model_->config(), cache_}; }

  /// Sees what a linear of the model multiplies: x [rows, inputs].
  using Watch = std::function<void(const weights::Linear& linear, const float* x, std::int64_t rows)>;

  /// A row's result is its logits, or the state that the head makes them of: the norm of the last layer's row.
  enum class Result : std::uint8_t { logits, states };

  /// Logits [rows, vocabulary], or states [rows, width], of the feeds in their order.
  /// @throws formats::Error for a token that the vocabulary lacks, a text longer than the context, a sequence that is
  /// fed twice or belongs to another model: no sequence has changed then.
  std::vector<float> read(const std::vector<Feed>& feeds, Result result = Result::logits, const Watch& watch = {});

  const Model& model() const { return *model_; }
  const std::shared_ptr<const Model>& shared_model() const { return model_; }
  /// The session's threads, for what is computed from its results.
  const kernels::Parallel& parallel() const { return parallel_; }
  /// Bytes of a sequence, for each 64 tokens begun.
  std::int64_t page_bytes() const { return Sequence::page_bytes(model_->config(), cache_); }

 private:
  void check(const std::vector<Feed>& feeds) const;
  void pass(const std::vector<Row>& rows, Result result, std::vector<float>* results);

  std::shared_ptr<const Model> model_;
  CacheKind cache_;
  std::unique_ptr<kernels::ThreadTeam> team_;
  kernels::Parallel parallel_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace bie::llm
