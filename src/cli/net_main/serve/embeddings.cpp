#include "cli/net_main/serve/embeddings.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "bie/formats/error.h"
#include "bie/llm/pooling.h"
#include "cli/net_main/serve/fields.h"

namespace bie::cli {
namespace {

using formats::joined;

constexpr std::size_t most_texts = 2048, most_rank_bytes = 16 << 20;  // of a request

/// The bytes of the floats, little-endian, as RFC 4648 writes them.
std::string base64_of(const std::vector<float>& x) {
  static constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(4 * x.size() + 2);  // two zeros behind them
  std::memcpy(bytes.data(), x.data(), 4 * x.size());
  std::string text;
  for (std::size_t i = 0; i < 4 * x.size(); i += 3) {
    const unsigned group = bytes[i] << 16U | bytes[i + 1] << 8U | bytes[i + 2];
    for (const unsigned shift : {18U, 12U, 6U, 0U}) text += letters[group >> shift & 63U];
  }
  const std::size_t rest = 4 * x.size() % 3;
  if (rest > 0) text.replace(text.size() - (3 - rest), 3 - rest, 3 - rest, '=');
  return text;
}

void check_texts(const char* name, std::size_t count) {
  if (count == 0 || count > most_texts)
    throw ApiError(400, joined(name, ": expected from 1 to ", most_texts, " texts, got ", count), name);
}

}  // namespace

bool gives_embeddings(const ServedModel& model) {
  return model.pooling != llm::Pooling::none && model.pooling != llm::Pooling::rank;
}

AskedEmbeddings asked_embeddings(const Json& body, const ServedModel& model) {
  if (!gives_embeddings(model))
    throw ApiError(400, "the model's file names no pooling for embeddings; bie serve --pooling does");
  const Fields fields(body);
  AskedEmbeddings asked;
  const Json* const input = fields.find("input");
  if (input == nullptr) Fields::fail("input", "a text", Json());
  asked.texts = texts_of("input", *input, model.vocabulary());
  check_texts("input", asked.texts.size());
  const std::int64_t width = model.language.model->config().width;
  asked.size = fields.whole("dimensions", 1, width, width);
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64") Fields::fail("encoding_format", R"("float" or "base64")", format);
  asked.in_base64 = format == "base64";
  return asked;
}

AskedRanks asked_ranks(const Json& body, const ServedModel& model) {
  if (!model.rank_template)
    throw ApiError(400, "the model ranks nothing: its file has no classifier, or no template for ranks");
  const Fields fields(body);
  AskedRanks asked;
  asked.query = fields.text("query");
  const Json* const documents = fields.find("documents");
  if (documents == nullptr || !documents->is_array())
    Fields::fail("documents", "a list of texts", documents == nullptr ? Json() : *documents);
  for (const Json& document : *documents) {
    const Json text = document.is_object() ? document.value("text", Json()) : document;
    if (!text.is_string()) Fields::fail("documents", "texts, or objects with a text", document);
    asked.documents.push_back(text.get<std::string>());
  }
  check_texts("documents", asked.documents.size());
  const auto count = static_cast<std::int64_t>(asked.documents.size());
  std::size_t bytes = asked.query.size() * asked.documents.size();  // the query stands before each of them
  for (const std::string& document : asked.documents) bytes += document.size();
  if (bytes > most_rank_bytes)
    throw ApiError(
        400, joined("documents: expected at most ", most_rank_bytes, " bytes with the query before each, got ", bytes),
        "documents");
  asked.most = std::min(count, fields.whole("top_n", 1, std::int64_t{1} << 30, count));
  asked.returns_documents = fields.flag("return_documents");
  return asked;
}

std::vector<std::int32_t> rank_prompt(const ServedModel& model, const std::string& query, const std::string& document) {
  text::ChatInput input;
  input.messages = "[]";
  input.variables = Json{{"query", query}, {"document", document}}.dump();
  return text::chat_prompt(model.tokenizer(), *model.rank_template, std::move(input)).tokens;
}

VectorWork::VectorWork(Service& service, const ServedModel& model, const char* kind, llm::Pooling pooling,
                       std::vector<std::vector<std::int32_t>> texts, Origin origin)
    : Work(service, model, random_id(kind), std::move(origin)),
      pooling_(pooling),
      texts_(std::move(texts)),
      vectors_(texts_.size()),
      cached_(texts_.size()),
      open_(texts_.size()) {}

void VectorWork::cancel() {
  stop_work();
  refuse(ApiError(410, "the request was cancelled"));
}

std::vector<llm::Request> VectorWork::requests() const {
  std::vector<llm::Request> all(texts_.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].prompt = texts_[i];
    all[i].pooling = pooling_;
  }
  return all;
}

void VectorWork::hear(std::size_t at, const llm::News& news) {
  vectors_[at] = news.vector;
  if (!std::all_of(vectors_[at].begin(), vectors_[at].end(), [](float x) { return std::isfinite(x); })) {
    stop_work();
    return refuse(ApiError(500, "the model gives a number that is infinite or none"));
  }
  if (--open_ == 0) answer();
}

void VectorWork::answer() {
  const auto self = std::static_pointer_cast<VectorWork>(shared_from_this());
  do_aside([self] {
    std::string text, trouble;
    try {
      text = json_text(self->whole(self->vectors_));
    } catch (const std::exception& error) {
      trouble = error.what();
    }
    self->service_.server.post([self, text, trouble] {
      if (self->is_over()) return;
      if (!trouble.empty()) return self->refuse(ApiError(500, trouble));
      self->exchange().answer(200, "application/json", text);
      self->end("stop", "");
    });
  });
}

Usage VectorWork::usage() const {
  Usage usage;
  for (const auto& text : texts_) usage.prompt += static_cast<std::int64_t>(text.size());
  usage.cached = std::accumulate(cached_.begin(), cached_.end(), std::int64_t{0});
  return usage;
}

Embeddings::Embeddings(Service& service, const ServedModel& model, AskedEmbeddings asked,
                       std::vector<std::vector<std::int32_t>> texts, Origin origin)
    : VectorWork(service, model, "embd-", model.pooling, std::move(texts), std::move(origin)),
      asked_(std::move(asked)) {}

Json Embeddings::whole(const std::vector<std::vector<float>>& vectors) const {
  Json data = Json::array();
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const std::vector<float> vector = llm::unit_vector(vectors[i], asked_.size);
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", asked_.in_base64 ? Json(base64_of(vector)) : Json(vector)}});
  }
  const std::int64_t tokens = usage().prompt;
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", model_.name},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

Ranks::Ranks(Service& service, const ServedModel& model, AskedRanks asked, std::vector<std::vector<std::int32_t>> texts,
             Origin origin)
    : VectorWork(service, model, "rank-", llm::Pooling::rank, std::move(texts), std::move(origin)),
      asked_(std::move(asked)) {}

/// The best one first, equals by index.
Json Ranks::whole(const std::vector<std::vector<float>>& vectors) const {
  std::vector<std::pair<double, std::size_t>> ranks;
  for (std::size_t i = 0; i < vectors.size(); ++i)
    ranks.emplace_back(-llm::rank_of(*model_.language.model, vectors[i]), i);
  std::sort(ranks.begin(), ranks.end());
  ranks.resize(static_cast<std::size_t>(asked_.most));
  Json results = Json::array();
  for (const auto& [rank, i] : ranks) {
    Json result = {{"index", i}, {"relevance_score", -rank}};
    if (asked_.returns_documents) result["document"] = {{"text", asked_.documents[i]}};
    results.push_back(std::move(result));
  }
  const std::int64_t tokens = usage().prompt;
  return {{"id", id()},
          {"model", model_.name},
          {"results", std::move(results)},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

}  // namespace bie::cli
