// Requests for vectors of texts, and for ranks of documents.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/net_main/serve/asked.h"
#include "cli/net_main/serve/work.h"

namespace bie::cli {

/// The fields of POST /v1/embeddings.
struct AskedEmbeddings {
  std::vector<AskedText> texts;
  std::int64_t size = 0;  ///< elements of a vector
  bool in_base64 = false;
};

/// The fields of POST /v1/rerank.
struct AskedRanks {
  std::string query;
  std::vector<std::string> documents;
  std::int64_t most = 0;  ///< ranks that are told
  bool returns_documents = false;
};

bool gives_embeddings(const ServedModel& model);
/// They throw ApiError naming the field, or where the model gives no such thing.
AskedEmbeddings asked_embeddings(const Json& body, const ServedModel& model);
AskedRanks asked_ranks(const Json& body, const ServedModel& model);
/// The text of which a model ranks a document. @throws formats::Error
std::vector<std::int32_t> rank_prompt(const ServedModel& model, const std::string& query, const std::string& document);

/// Texts whose vectors are answered together.
class VectorWork : public Work {
 public:
  void cancel() override;

 protected:
  VectorWork(Service& service, const ServedModel& model, const char* kind, llm::Pooling pooling,
             std::vector<std::vector<std::int32_t>> texts, Origin origin);

  /// The answer, once all vectors are there. It is made beside the server's loop, as it may have megabytes.
  virtual Json whole(const std::vector<std::vector<float>>& vectors) const = 0;
  Usage usage() const override;

 private:
  std::vector<llm::Request> requests() const override;
  void hear(std::size_t at, const llm::News& news) override;
  void take_cached(std::size_t at, std::int64_t tokens) override { cached_[at] = tokens; }
  void answer();

  llm::Pooling pooling_;
  std::vector<std::vector<std::int32_t>> texts_;
  std::vector<std::vector<float>> vectors_;
  std::vector<std::int64_t> cached_;
  std::size_t open_;
};

class Embeddings final : public VectorWork {
 public:
  Embeddings(Service& service, const ServedModel& model, AskedEmbeddings asked,
             std::vector<std::vector<std::int32_t>> texts, Origin origin);

 private:
  Json whole(const std::vector<std::vector<float>>& vectors) const override;

  AskedEmbeddings asked_;
};

class Ranks final : public VectorWork {
 public:
  Ranks(Service& service, const ServedModel& model, AskedRanks asked, std::vector<std::vector<std::int32_t>> texts,
        Origin origin);

 private:
  Json whole(const std::vector<std::vector<float>>& vectors) const override;

  AskedRanks asked_;
};

}  // namespace bie::cli
