// Language models for C++17: bie_llm.h with owners and exceptions. Header alone, over the C API.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bie/llm/bie_llm.h"

namespace bie::language {

/// what() is the library's sentence.
class ModelError : public std::runtime_error {
 public:
  ModelError(bie_llm_status code, const std::string& sentence) : std::runtime_error(sentence), status(code) {}
  bie_llm_status status;
};

inline void check(bie_llm_status status) {
  if (status != BIE_LLM_OK) throw ModelError(status, bie_llm_last_error());
}

/// A model that several threads may share; copies are the same model. All of these throw ModelError.
class LanguageModel {
 public:
  explicit LanguageModel(const std::string& path, const bie_llm_options& options = {}) {
    bie_llm_model* model = nullptr;
    check(bie_llm_model_load(path.c_str(), &options, &model));
    model_ = {model, bie_llm_model_free};
  }

  bie_llm_info info() const {
    bie_llm_info info;
    check(bie_llm_model_info(model_.get(), &info));
    return info;
  }
  /// @param special  names of control tokens in the text become these tokens.
  /// @param begin    with the tokens that stand before and after a text, where the file says so.
  std::vector<std::int32_t> tokens(std::string_view text, bool special = true, bool begin = true) const {
    std::vector<std::int32_t> tokens(text.size() + 2);  // nearly always enough
    std::int64_t count = 0;
    const auto fill = [&] {
      return bie_llm_tokenize(model_.get(), text.data(), static_cast<std::int64_t>(text.size()), special ? 1 : 0,
                              begin ? 1 : 0, tokens.data(), static_cast<std::int64_t>(tokens.size()), &count);
    };
    bie_llm_status status = fill();
    if (status == BIE_LLM_TOO_SMALL) {
      tokens.resize(static_cast<std::size_t>(count));
      status = fill();
    }
    check(status);
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
  }
  /// The bytes of a token, which live as long as the model.
  std::string_view text(std::int32_t token, bool special = false) const {
    const char* text = nullptr;
    std::int64_t bytes = 0;
    check(bie_llm_token_bytes(model_.get(), token, special ? 1 : 0, &text, &bytes));
    return {text, static_cast<std::size_t>(bytes)};
  }
  bool is_end(std::int32_t token) const { return bie_llm_is_end(model_.get(), token) != 0; }
  std::int32_t bos() const { return bie_llm_bos(model_.get()); }
  std::int32_t eos() const { return bie_llm_eos(model_.get()); }
  const bie_llm_model* get() const { return model_.get(); }

 private:
  std::shared_ptr<bie_llm_model> model_;
};

/// A text as it has been read. Copies begin with the same tokens and share what was read.
class Text {
 public:
  Text(const Text& other) {
    bie_llm_sequence* fork = nullptr;
    check(bie_llm_sequence_fork(other.get(), &fork));
    sequence_.reset(fork);
  }
  Text(Text&&) = default;
  Text& operator=(Text&&) = default;
  Text& operator=(const Text& other) { return *this = Text(other); }
  ~Text() = default;

  std::int64_t length() const { return bie_llm_sequence_length(sequence_.get()); }
  /// Forgets all but the first tokens.
  void cut(std::int64_t length) { check(bie_llm_sequence_cut(sequence_.get(), length)); }
  /// To a file from which Reader::text takes it again.
  void save(const std::string& path) const { check(bie_llm_sequence_save(sequence_.get(), path.c_str())); }
  bie_llm_sequence* get() const { return sequence_.get(); }

 private:
  friend class Reader;
  explicit Text(bie_llm_sequence* sequence) : sequence_(sequence) {}
  struct Free {
    void operator()(bie_llm_sequence* sequence) const { bie_llm_sequence_free(sequence); }
  };
  std::unique_ptr<bie_llm_sequence, Free> sequence_;
};

/// Threads and memory for passes of a model; belongs to one thread at a time.
class Reader {
 public:
  explicit Reader(LanguageModel model, const bie_llm_session_options& options = {})
      : model_(std::move(model)), vocabulary_(model_.info().vocabulary) {
    bie_llm_session* session = nullptr;
    check(bie_llm_session_create(model_.get(), &options, &session));
    session_.reset(session);
  }

  /// An empty text.
  Text text() const {
    bie_llm_sequence* sequence = nullptr;
    check(bie_llm_sequence_create(session_.get(), &sequence));
    return Text(sequence);
  }
  /// The longest beginning of the tokens, but for the last one, that a file of Text::save holds; an empty text where
  /// there is no file.
  Text text(const std::vector<std::int32_t>& tokens, const std::string& path) const {
    bie_llm_sequence* sequence = nullptr;
    check(bie_llm_sequence_load(session_.get(), path.c_str(), tokens.data(), static_cast<std::int64_t>(tokens.size()),
                                &sequence));
    return Text(sequence);
  }
  /// The logits behind the last of the tokens, which the text then ends with.
  std::vector<float> read(Text& text, const std::vector<std::int32_t>& tokens) {
    const bie_llm_feed feed = {text.get(), tokens.data(), static_cast<std::int64_t>(tokens.size()), 0};
    std::vector<float> logits(static_cast<std::size_t>(vocabulary_));
    check(bie_llm_read(session_.get(), &feed, 1, logits.data()));
    return logits;
  }
  /// Several texts in one pass: logits [rows, vocabulary], feed by feed.
  void read(const std::vector<bie_llm_feed>& feeds, float* logits) {
    check(bie_llm_read(session_.get(), feeds.data(), static_cast<std::int64_t>(feeds.size()), logits));
  }
  /// The token that follows a text whose logits these are.
  static std::int32_t choose(const Text& text, const std::vector<float>& logits, const bie_llm_sampler& sampler = {}) {
    std::int32_t token = 0;
    check(bie_llm_choose(text.get(), logits.data(), &sampler, &token));
    return token;
  }

 private:
  struct Free {
    void operator()(bie_llm_session* session) const { bie_llm_session_free(session); }
  };
  LanguageModel model_;
  std::int64_t vocabulary_;
  std::unique_ptr<bie_llm_session, Free> session_;
};

}  // namespace bie::language
