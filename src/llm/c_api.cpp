// bie_llm.h over the classes of this folder: every exception becomes a status and a sentence.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "bie/llm/bie_llm.h"
#include "bie/llm/cache_file.h"
#include "bie/llm/sampler.h"
#include "bie/llm/session.h"
#include "bie/text/chat_prompt.h"
#include "bie/text/tokenizer.h"
#include "formats/c_error.h"
#include "llm/architectures.h"

struct bie_llm_model {
  std::shared_ptr<const bie::llm::Model> model;
  std::shared_ptr<const bie::text::Tokenizer> tokenizer;  // null where the file has none that is read
  std::string why_no_tokenizer;
};

struct bie_llm_session {
  bie::llm::Session session;
};

struct bie_llm_sequence {
  std::shared_ptr<const bie::llm::Model> model;
  bie::llm::Sequence sequence;
};

struct bie_llm_chat_template {
  bie::text::ChatTemplate chat_template;
};

namespace {

using bie::formats::Error;

using bie::formats::fail;
using bie::formats::last_error;

/// @param of_error  the status of an Error: files or arguments are at fault.
template <class Body>
bie_llm_status guarded(bie_llm_status of_error, const Body& body) {
  return bie::formats::guarded<bie_llm_status>({of_error, BIE_LLM_NO_MEMORY, BIE_LLM_FAILED}, body);
}

template <class... Pointers>
bool any_null(const Pointers*... pointers) {
  return ((pointers == nullptr) || ...);
}

bie_llm_status null_pointer() { return fail(BIE_LLM_BAD_ARGUMENT, "expected no null pointer, got one"); }

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

bie::text::ChatInput input_of(const bie_llm_chat& chat) {
  bie::text::ChatInput input;
  input.messages = text_of(chat.messages);
  input.tools = text_of(chat.tools);
  input.documents = text_of(chat.documents);
  input.variables = text_of(chat.variables);
  input.bos_token = text_of(chat.bos_token);
  input.eos_token = text_of(chat.eos_token);
  input.add_generation_prompt = chat.no_generation_prompt == 0;
  const std::time_t now = chat.now;
  std::tm date{};
  if (chat.now != 0 && gmtime_r(&now, &date) != nullptr) input.now = date;
  return input;
}

/// Copies the tokens where there is room; says how many there are in any case.
bie_llm_status hand_over(const std::vector<std::int32_t>& found, int32_t* tokens, int64_t room, int64_t* count) {
  *count = static_cast<std::int64_t>(found.size());
  if (*count > room) return fail(BIE_LLM_TOO_SMALL, "expected room for all tokens, got less");
  std::copy(found.begin(), found.end(), tokens);
  return BIE_LLM_OK;
}

bool is_thread_count(std::int32_t threads) { return threads >= 0 && threads <= 1024; }

bie_llm_status read_feeds(bie_llm_session* session, const bie_llm_feed* feeds, std::int64_t count,
                          bie::llm::Session::Result result, float* results) {
  if (any_null(session) || (count != 0 && any_null(feeds, results))) return null_pointer();
  if (count < 0) return fail(BIE_LLM_BAD_ARGUMENT, "expected a number of feeds from 0 on, got less");
  return guarded(BIE_LLM_BAD_ARGUMENT, [&] {
    std::vector<bie::llm::Feed> all;
    for (std::int64_t i = 0; i < count; ++i) {
      const bie_llm_feed& feed = feeds[i];
      if (feed.sequence == nullptr || (feed.tokens == nullptr && feed.count != 0)) return null_pointer();
      if (feed.count < 0) return fail(BIE_LLM_BAD_ARGUMENT, "expected a number of tokens from 0 on, got less");
      all.push_back({&feed.sequence->sequence, feed.tokens, feed.count, feed.all_logits != 0});
    }
    const std::vector<float> found = session->session.read(all, result);
    std::copy(found.begin(), found.end(), results);
    return BIE_LLM_OK;
  });
}

}  // namespace

extern "C" {

const char* bie_llm_last_error(void) { return last_error; }

bie_llm_status bie_llm_model_load(const char* path, const bie_llm_options* options, bie_llm_model** model) {
  if (any_null(path, model)) return null_pointer();
  *model = nullptr;
  const bie_llm_options o = options == nullptr ? bie_llm_options{} : *options;
  if (!is_thread_count(o.threads)) return fail(BIE_LLM_BAD_ARGUMENT, "expected 0 to 1024 threads, got another number");
  if (o.arithmetic != BIE_LLM_INT8 && o.arithmetic != BIE_LLM_EXACT)
    return fail(BIE_LLM_BAD_ARGUMENT, "expected an arithmetic of int8 or exact, got another number");
  return guarded(BIE_LLM_BAD_FILE, [&] {
    bie::kernels::ThreadPool pool(std::max(1, o.threads));
    auto result = std::make_unique<bie_llm_model>();
    bie::llm::ModelFile file = bie::llm::open_model(path);
    const std::int64_t vocabulary = bie::llm::read_config(file).vocabulary;
    try {
      result->tokenizer = std::make_shared<const bie::text::Tokenizer>(bie::llm::tokenizer_of(file, vocabulary));
    } catch (const Error& error) {  // tokens can be read all the same
      result->why_no_tokenizer = error.what();
    }
    bie::llm::forget_tokens(&file);
    result->model = std::make_shared<const bie::llm::Model>(
        std::move(file), o.arithmetic == BIE_LLM_EXACT ? bie::llm::Arithmetic::exact : bie::llm::Arithmetic::int8,
        pool.parallel());
    *model = result.release();
    return BIE_LLM_OK;
  });
}

void bie_llm_model_free(bie_llm_model* model) { delete model; }

bie_llm_status bie_llm_model_info(const bie_llm_model* model, bie_llm_info* info) {
  if (any_null(model, info)) return null_pointer();
  const bie::llm::Config& c = model->model->config();
  *info = {c.architecture->name.data(),
           c.layers,
           c.width,
           c.heads,
           c.kv_heads,
           c.head_size,
           c.vocabulary,
           c.context,
           model->model->parameters(),
           model->model->weight_bytes()};
  return BIE_LLM_OK;
}

bie_llm_status bie_llm_tokenize(const bie_llm_model* model, const char* text, int64_t bytes, int32_t special,
                                int32_t begin, int32_t* tokens, int64_t room, int64_t* count) {
  if (any_null(model, count) || (text == nullptr && bytes != 0) || (tokens == nullptr && room != 0))
    return null_pointer();
  if (bytes < 0 || room < 0) return fail(BIE_LLM_BAD_ARGUMENT, "expected sizes from 0 on, got a negative one");
  return guarded(BIE_LLM_BAD_ARGUMENT, [&] {
    if (model->tokenizer == nullptr) throw Error(model->why_no_tokenizer);
    const bie::text::Tokenizer& tokenizer = *model->tokenizer;
    std::vector<std::int32_t> found = tokenizer.encode({text, static_cast<std::size_t>(bytes)}, special != 0);
    if (begin != 0) {
      found.insert(found.begin(), tokenizer.before().begin(), tokenizer.before().end());
      found.insert(found.end(), tokenizer.after().begin(), tokenizer.after().end());
    }
    return hand_over(found, tokens, room, count);
  });
}

bie_llm_status bie_llm_token_bytes(const bie_llm_model* model, int32_t token, int32_t special, const char** text,
                                   int64_t* bytes) {
  if (any_null(model, text, bytes)) return null_pointer();
  return guarded(BIE_LLM_BAD_ARGUMENT, [&] {
    if (model->tokenizer == nullptr) throw Error(model->why_no_tokenizer);
    const std::string_view found = model->tokenizer->bytes(token, special != 0);
    *text = found.data();
    *bytes = static_cast<std::int64_t>(found.size());
    return BIE_LLM_OK;
  });
}

int32_t bie_llm_is_end(const bie_llm_model* model, int32_t token) {
  return model != nullptr && model->tokenizer != nullptr && model->tokenizer->is_end(token) ? 1 : 0;
}

int32_t bie_llm_bos(const bie_llm_model* model) {
  return model != nullptr && model->tokenizer != nullptr ? model->tokenizer->bos().value_or(-1) : -1;
}

int32_t bie_llm_eos(const bie_llm_model* model) {
  return model != nullptr && model->tokenizer != nullptr ? model->tokenizer->eos().value_or(-1) : -1;
}

bie_llm_status bie_llm_session_create(const bie_llm_model* model, const bie_llm_session_options* options,
                                      bie_llm_session** session) {
  if (any_null(model, session)) return null_pointer();
  *session = nullptr;
  const bie_llm_session_options o = options == nullptr ? bie_llm_session_options{} : *options;
  if (o.cache < BIE_LLM_CACHE_OF_ARITHMETIC || o.cache > BIE_LLM_CACHE_F16)
    return fail(BIE_LLM_BAD_ARGUMENT, "expected a cache of q8, f32 or f16, got another number");
  if (!is_thread_count(o.threads)) return fail(BIE_LLM_BAD_ARGUMENT, "expected 0 to 1024 threads, got another number");
  return guarded(BIE_LLM_FAILED, [&] {
    using bie::llm::CacheKind;
    const bool is_int8 = model->model->arithmetic() == bie::llm::Arithmetic::int8;
    const CacheKind kinds[] = {is_int8 ? CacheKind::q8 : CacheKind::f32, CacheKind::q8, CacheKind::f32, CacheKind::f16};
    *session = new bie_llm_session{bie::llm::Session(model->model, std::max(1, o.threads), kinds[o.cache])};
    return BIE_LLM_OK;
  });
}

void bie_llm_session_free(bie_llm_session* session) { delete session; }

int64_t bie_llm_page_bytes(const bie_llm_session* session) {
  return session == nullptr ? 0 : session->session.page_bytes();
}

bie_llm_status bie_llm_sequence_create(const bie_llm_session* session, bie_llm_sequence** sequence) {
  if (any_null(session, sequence)) return null_pointer();
  *sequence = nullptr;
  return guarded(BIE_LLM_FAILED, [&] {
    *sequence = new bie_llm_sequence{session->session.shared_model(), session->session.sequence()};
    return BIE_LLM_OK;
  });
}

bie_llm_status bie_llm_sequence_fork(const bie_llm_sequence* sequence, bie_llm_sequence** fork) {
  if (any_null(sequence, fork)) return null_pointer();
  *fork = nullptr;
  return guarded(BIE_LLM_FAILED, [&] {
    *fork = new bie_llm_sequence(*sequence);
    return BIE_LLM_OK;
  });
}

void bie_llm_sequence_free(bie_llm_sequence* sequence) { delete sequence; }

int64_t bie_llm_sequence_length(const bie_llm_sequence* sequence) {
  return sequence == nullptr ? 0 : sequence->sequence.length();
}

bie_llm_status bie_llm_sequence_cut(bie_llm_sequence* sequence, int64_t length) {
  if (any_null(sequence)) return null_pointer();
  if (length < 0 || length > sequence->sequence.length())
    return fail(BIE_LLM_BAD_ARGUMENT, "expected a length from 0 to that of the sequence, got another");
  if (length != 0 && length < sequence->sequence.least_cut())
    return fail(BIE_LLM_BAD_ARGUMENT,
                "expected a length whose next token sees no page before the window, as these are gone, got less");
  sequence->sequence.cut(length);
  return BIE_LLM_OK;
}

bie_llm_status bie_llm_sequence_save(const bie_llm_sequence* sequence, const char* path) {
  if (any_null(sequence, path)) return null_pointer();
  return guarded(BIE_LLM_BAD_FILE, [&] {
    bie::llm::save_cache(path, *sequence->model, sequence->sequence);
    return BIE_LLM_OK;
  });
}

bie_llm_status bie_llm_sequence_load(const bie_llm_session* session, const char* path, const int32_t* tokens,
                                     int64_t count, bie_llm_sequence** sequence) {
  if (any_null(session, path, tokens, sequence)) return null_pointer();
  *sequence = nullptr;
  if (count < 1) return fail(BIE_LLM_BAD_ARGUMENT, "expected a token at least, got none");
  return guarded(BIE_LLM_BAD_FILE, [&] {
    auto result = std::make_unique<bie_llm_sequence>(
        bie_llm_sequence{session->session.shared_model(), session->session.sequence()});
    bie::llm::load_cache(path, {tokens, tokens + count}, *result->model, result->sequence);
    *sequence = result.release();
    return BIE_LLM_OK;
  });
}

bie_llm_status bie_llm_read(bie_llm_session* session, const bie_llm_feed* feeds, int64_t count, float* logits) {
  return read_feeds(session, feeds, count, bie::llm::Session::Result::logits, logits);
}

bie_llm_status bie_llm_read_states(bie_llm_session* session, const bie_llm_feed* feeds, int64_t count, float* states) {
  return read_feeds(session, feeds, count, bie::llm::Session::Result::states, states);
}

bie_llm_status bie_llm_choose(const bie_llm_sequence* sequence, const float* logits, const bie_llm_sampler* sampler,
                              int32_t* token) {
  if (any_null(sequence, logits, token)) return null_pointer();
  const bie_llm_sampler s = sampler == nullptr ? bie_llm_sampler{} : *sampler;
  if (!(s.temperature >= 0) || std::isinf(s.temperature) || std::isinf(s.repeat_penalty) || s.top_k < 0 ||
      !(s.top_p >= 0 && s.top_p <= 1) || !(s.min_p >= 0 && s.min_p <= 1) || !(s.repeat_penalty >= 0))
    return fail(
        BIE_LLM_BAD_ARGUMENT,
        "expected a finite temperature, top_k and repeat_penalty from 0 on and shares from 0 to 1, got a number "
        "out of its range");
  return guarded(BIE_LLM_BAD_ARGUMENT, [&] {
    *token = bie::llm::choose_token(logits, sequence->model->config().vocabulary, sequence->sequence.tokens(),
                                    {s.temperature, s.top_k, s.top_p == 0 ? 1 : s.top_p, s.min_p,
                                     s.repeat_penalty == 0 ? 1 : s.repeat_penalty, s.seed, s.stream});
    return BIE_LLM_OK;
  });
}

bie_llm_status bie_llm_chat_template_create(const char* source, int64_t bytes, bie_llm_chat_template** chat_template) {
  if (any_null(chat_template) || (source == nullptr && bytes != 0)) return null_pointer();
  *chat_template = nullptr;
  if (bytes < 0) return fail(BIE_LLM_BAD_ARGUMENT, "expected sizes from 0 on, got a negative one");
  return guarded(BIE_LLM_BAD_FILE, [&] {
    const std::string_view text(source, static_cast<std::size_t>(bytes));
    *chat_template = new bie_llm_chat_template{bie::text::ChatTemplate(text)};
    return BIE_LLM_OK;
  });
}

void bie_llm_chat_template_free(bie_llm_chat_template* chat_template) { delete chat_template; }

bie_llm_status bie_llm_chat_template_render(const bie_llm_chat_template* chat_template, const bie_llm_chat* chat,
                                            char* text, uint8_t* from_template, int64_t room, int64_t* bytes) {
  if (any_null(chat_template, chat, bytes) || chat->messages == nullptr || (text == nullptr && room != 0))
    return null_pointer();
  if (room < 0) return fail(BIE_LLM_BAD_ARGUMENT, "expected sizes from 0 on, got a negative one");
  return guarded(BIE_LLM_BAD_ARGUMENT, [&] {
    const auto pieces = chat_template->chat_template.render(input_of(*chat));
    *bytes = 0;
    for (const auto& piece : pieces) *bytes += static_cast<std::int64_t>(piece.text.size());
    if (*bytes > room) return fail(BIE_LLM_TOO_SMALL, "expected room for all of the prompt, got less");
    for (const auto& piece : pieces) {
      text = std::copy(piece.text.begin(), piece.text.end(), text);
      if (from_template != nullptr)
        from_template = std::fill_n(from_template, piece.text.size(), piece.from_template ? 1 : 0);
    }
    return BIE_LLM_OK;
  });
}

bie_llm_status bie_llm_chat_tokens(const bie_llm_model* model, const bie_llm_chat_template* chat_template,
                                   const bie_llm_chat* chat, int32_t* tokens, int64_t room, int64_t* count) {
  if (any_null(model, chat, count) || chat->messages == nullptr || (tokens == nullptr && room != 0))
    return null_pointer();
  if (room < 0) return fail(BIE_LLM_BAD_ARGUMENT, "expected sizes from 0 on, got a negative one");
  return guarded(BIE_LLM_BAD_ARGUMENT, [&] {
    if (model->tokenizer == nullptr) throw Error(model->why_no_tokenizer);
    const auto tokens_by = [&](const bie::text::ChatTemplate& its) {
      return hand_over(bie::text::chat_prompt(*model->tokenizer, its, input_of(*chat)).tokens, tokens, room, count);
    };
    if (chat_template != nullptr) return tokens_by(chat_template->chat_template);
    const bool has_tools = chat->tools != nullptr && std::string_view(chat->tools) != "null";
    return tokens_by(bie::text::gguf_chat_template(model->model->file().gguf, has_tools));
  });
}

}  // extern "C"
