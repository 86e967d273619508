// A model of the server, and what all its requests share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/net_main/llm/chat_prompt.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/net_main/serve/engine.h"
#include "cli/net_main/serve/http.h"
#include "cli/net_main/serve/metrics.h"

namespace bie::cli {

/// Stays where it is: the prompts and the scheduler refer to the tokenizer.
struct ServedModel {
  std::string name;
  LoadedLanguage language;  ///< but for its session, which the scheduler has
  std::optional<ChatPrompts> prompts = {};
  std::optional<text::ChatTemplate> rank_template = {};  ///< of `query` and `document`
  llm::Pooling pooling = llm::Pooling::none;             ///< of embeddings
  std::int64_t context = 0;
  std::size_t scheduler = 0;  ///< its place in the engine

  const text::Tokenizer& tokenizer() const { return language.tokenizer; }
  std::int64_t vocabulary() const { return language.tokenizer.size(); }
};

struct Service {
  std::vector<std::unique_ptr<ServedModel>> models;
  http::Server& server;
  Metrics& metrics;
  int queue_seconds;
  std::unique_ptr<Engine> engine;  ///< the last: its thread uses the others until it ends
};

}  // namespace bie::cli
