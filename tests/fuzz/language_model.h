// What a language model of any file must hold to: sizes within their bounds, and the same logits however tokens are
// cut.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bie/llm/config.h"
#include "bie/llm/session.h"
#include "tests/fuzz/fuzz.h"

namespace bie::llm::fuzz {

using formats::fuzz::require;

inline void check(const Config& c) {
  for (const std::int64_t size :
       {c.layers, c.width, c.inner, c.heads, c.kv_heads, c.head_size, c.vocabulary, c.context})
    require(size > 0 && size <= 1 << 30);
  require(c.heads % c.kv_heads == 0 && 2 * c.pairs() <= c.head_size && c.window() >= 0);
  require(c.eps >= 0 && std::isfinite(c.scale) && c.scale > 0 && c.embedding_factor >= 1);
  require(c.score_cap >= 0 && std::isfinite(c.score_cap) && c.logit_cap >= 0 && std::isfinite(c.logit_cap));
  for (const Rotation& rotation : c.rotations) {
    require(std::isfinite(rotation.size) && static_cast<std::int64_t>(rotation.frequencies.size()) == c.pairs());
    for (const double frequency : rotation.frequencies) require(std::isfinite(frequency) && frequency >= 0);
  }
  require(static_cast<std::int64_t>(c.per_layer.size()) == c.layers);
  for (const LayerConfig& layer : c.per_layer) require(layer.window >= 0 && layer.rotation < c.rotations.size());
}

inline void read(const std::shared_ptr<const Model>& model, CacheKind kind) {
  const Config& c = model->config();
  Session session(model, 1, kind);
  if (session.page_bytes() > 1 << 24) return;  // the memory of the fuzzer
  Sequence sequence = session.sequence();
  const auto last = static_cast<std::int32_t>(c.vocabulary - 1);
  const std::vector<std::int32_t> tokens = {0, last, last / 2};
  const std::int64_t count = std::min<std::int64_t>(3, c.context);
  const std::vector<float> whole = session.read({{&sequence, tokens.data(), count, false}});
  require(static_cast<std::int64_t>(whole.size()) == c.vocabulary);
  sequence.cut(0);
  std::vector<float> cut;
  for (std::int64_t i = 0; i < count; ++i) cut = session.read({{&sequence, tokens.data() + i, 1, true}});
  // The sign and the payload of a NaN are not part of the law.
  for (std::size_t i = 0; i < whole.size(); ++i)
    require(std::isnan(whole[i]) ? std::isnan(cut[i]) : std::memcmp(&whole[i], &cut[i], sizeof(float)) == 0);
}

/// One sentence, or a model that holds to it. One of the four ways to compute, by the size of the input: all of them
/// would take four times as long.
inline void run(const std::string& path, std::size_t size) {
  const Arithmetic arithmetic = size % 2 == 0 ? Arithmetic::int8 : Arithmetic::exact;
  const CacheKind kind = size / 2 % 2 == 0 ? CacheKind::q8 : CacheKind::f32;
  try {
    const auto model = std::make_shared<const Model>(path, arithmetic, kernels::serial());
    check(model->config());
    read(model, kind);
  } catch (const formats::Error& error) {
    const std::string sentence = error.what();
    require(!sentence.empty() && sentence.find('\n') == std::string::npos);
  }
}

}  // namespace bie::llm::fuzz
