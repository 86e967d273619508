/* The C API of language models: a GGUF file or a folder, its tokens and its logits, without torch and without Python.
 *
 *     bie_llm_model* model;
 *     bie_llm_session* session;
 *     bie_llm_sequence* sequence;
 *     if (bie_llm_model_load("model.gguf", NULL, &model) != BIE_LLM_OK) puts(bie_llm_last_error());
 *     if (bie_llm_session_create(model, NULL, &session) != BIE_LLM_OK) puts(bie_llm_last_error());
 *     if (bie_llm_sequence_create(session, &sequence) != BIE_LLM_OK) puts(bie_llm_last_error());
 *     bie_llm_feed feed = {sequence, tokens, count, 0};
 *     if (bie_llm_read(session, &feed, 1, logits) != BIE_LLM_OK) puts(bie_llm_last_error());
 *
 * No function throws, prints or ends the process. Several threads may use a model at the same time; a session and a
 * sequence belong to one thread at a time. Results depend on the model's file and the tokens of a sequence alone. */
#ifndef BIE_LLM_H
#define BIE_LLM_H

#include <stddef.h>
#include <stdint.h>

#if defined(BIE_LLM_BUILD)
#define BIE_LLM_API __attribute__((visibility("default")))
#else
#define BIE_LLM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(modernize-use-using): a header of C */
typedef enum bie_llm_status {
  BIE_LLM_OK = 0,
  BIE_LLM_BAD_FILE = 1,     /**< the file cannot be read, is damaged, or holds no model that is read */
  BIE_LLM_BAD_ARGUMENT = 2, /**< a null pointer, a token out of range, a text longer than the context */
  BIE_LLM_NO_MEMORY = 3,
  BIE_LLM_FAILED = 4,   /**< a setting of the machine, such as BIE_MAX_ISA, cannot be */
  BIE_LLM_TOO_SMALL = 5 /**< the caller's room: how much is needed has been said */
} bie_llm_status;

typedef struct bie_llm_model bie_llm_model;
typedef struct bie_llm_session bie_llm_session;
typedef struct bie_llm_sequence bie_llm_sequence;
typedef struct bie_llm_chat_template bie_llm_chat_template;

typedef enum bie_llm_arithmetic { BIE_LLM_INT8 = 0, BIE_LLM_EXACT = 1 } bie_llm_arithmetic;

/** Fields of 0 take what is said of them. */
typedef struct bie_llm_options {
  bie_llm_arithmetic arithmetic; /**< of products; 0: activations of 8 bits */
  int32_t threads;               /**< that arrange the weights. 0: 1 */
} bie_llm_options;

typedef enum bie_llm_cache {
  BIE_LLM_CACHE_OF_ARITHMETIC = 0, /**< codes for int8, floats for exact */
  BIE_LLM_CACHE_Q8 = 1,            /**< 8-bit codes; floats where a head's size is no multiple of 16 */
  BIE_LLM_CACHE_F32 = 2,
  BIE_LLM_CACHE_F16 = 3 /**< floats, rounded once */
} bie_llm_cache;

typedef struct bie_llm_session_options {
  int32_t threads; /**< 0: 1. Results do not depend on it */
  bie_llm_cache cache;
} bie_llm_session_options;

typedef struct bie_llm_info {
  const char* architecture; /**< lives as long as the model */
  int64_t layers, width, heads, kv_heads, head_size, vocabulary, context, parameters;
  int64_t weight_bytes; /**< as they are arranged */
} bie_llm_info;

/** Tokens that a sequence reads in a call. */
typedef struct bie_llm_feed {
  bie_llm_sequence* sequence;
  const int32_t* tokens;
  int64_t count;
  int32_t all_logits; /**< 0: of the last token alone; else of every one */
} bie_llm_feed;

/** Fields of 0 choose the largest logit: docs/spec/language-models.md#choice. */
typedef struct bie_llm_sampler {
  float temperature;
  int64_t top_k; /**< 0: all */
  double top_p;  /**< 0: 1, all */
  double min_p;
  float repeat_penalty; /**< 0: 1, none */
  uint64_t seed, stream;
} bie_llm_sampler;

/** What a chat template makes a prompt of. Texts are JSON in UTF-8; null: a variable that is not defined. */
typedef struct bie_llm_chat {
  const char* messages;  /**< a list of objects; it must be there */
  const char* tools;     /**< a list, or "null" */
  const char* documents; /**< a list, or "null" */
  const char* variables; /**< an object whose members are variables too */
  const char* bos_token; /**< no JSON, as eos_token; null: empty */
  const char* eos_token;
  int32_t no_generation_prompt; /**< 0: the beginning of the answer ends the prompt */
  int64_t now;                  /**< seconds from 1970 on as clocks here show them; 0: strftime_now is not defined */
} bie_llm_chat;
/* NOLINTEND(modernize-use-using) */

/** Of this thread's last call that did not return BIE_LLM_OK: one sentence. */
BIE_LLM_API const char* bie_llm_last_error(void);

/** Maps a GGUF file or a folder of Hugging Face and arranges its weights for this CPU. options may be null. */
BIE_LLM_API bie_llm_status bie_llm_model_load(const char* path, const bie_llm_options* options, bie_llm_model** model);
/** Null is taken too, here and below. Sessions and sequences keep what they need of their model. */
BIE_LLM_API void bie_llm_model_free(bie_llm_model* model);
BIE_LLM_API bie_llm_status bie_llm_model_info(const bie_llm_model* model, bie_llm_info* info);

/** Tokens of a text of `bytes` bytes, which may be any. `special`: names of control tokens in it become these; `begin`:
 * with the tokens that stand before and after a text, where the file says so. *count is what there are;
 * BIE_LLM_TOO_SMALL where that is more than `room`. */
BIE_LLM_API bie_llm_status bie_llm_tokenize(const bie_llm_model* model, const char* text, int64_t bytes,
                                            int32_t special, int32_t begin, int32_t* tokens, int64_t room,
                                            int64_t* count);
/** The bytes of a token, without a terminating 0; none of a control token unless `special`. They live as long as the
 * model. */
BIE_LLM_API bie_llm_status bie_llm_token_bytes(const bie_llm_model* model, int32_t token, int32_t special,
                                               const char** text, int64_t* bytes);
/** 1 where a token ends an answer. */
BIE_LLM_API int32_t bie_llm_is_end(const bie_llm_model* model, int32_t token);
/** The tokens that the file calls BOS and EOS, -1 where it names none. */
BIE_LLM_API int32_t bie_llm_bos(const bie_llm_model* model);
BIE_LLM_API int32_t bie_llm_eos(const bie_llm_model* model);

/** Memory and threads for passes. options may be null. */
BIE_LLM_API bie_llm_status bie_llm_session_create(const bie_llm_model* model, const bie_llm_session_options* options,
                                                  bie_llm_session** session);
BIE_LLM_API void bie_llm_session_free(bie_llm_session* session);
/** Bytes of a sequence, for each 64 tokens begun. */
BIE_LLM_API int64_t bie_llm_page_bytes(const bie_llm_session* session);

/** An empty text, for sessions of this model and kind of cache. */
BIE_LLM_API bie_llm_status bie_llm_sequence_create(const bie_llm_session* session, bie_llm_sequence** sequence);
/** Another text that begins with the same tokens; what it has read is shared. */
BIE_LLM_API bie_llm_status bie_llm_sequence_fork(const bie_llm_sequence* sequence, bie_llm_sequence** fork);
BIE_LLM_API void bie_llm_sequence_free(bie_llm_sequence* sequence);
BIE_LLM_API int64_t bie_llm_sequence_length(const bie_llm_sequence* sequence);
/** Forgets all but the first `length` tokens. A model whose queries see a window keeps no pages before it: a length at
 * which they would be seen is refused, but for 0. */
BIE_LLM_API bie_llm_status bie_llm_sequence_cut(bie_llm_sequence* sequence, int64_t length);

/** Writes what a sequence has read, in one step; a file that begins with all of it is left as it is.
 * docs/spec/language-models.md#cache-files */
BIE_LLM_API bie_llm_status bie_llm_sequence_save(const bie_llm_sequence* sequence, const char* path);
/** A sequence of the longest beginning of the tokens that the file holds, the last token not among it; an empty one
 * where there is no file. BIE_LLM_BAD_FILE where it is damaged, or of another model, arithmetic or kind of cache. */
BIE_LLM_API bie_llm_status bie_llm_sequence_load(const bie_llm_session* session, const char* path,
                                                 const int32_t* tokens, int64_t count, bie_llm_sequence** sequence);

/** Reads the tokens of all feeds in one pass. logits [rows, vocabulary], feed by feed; a sequence stands in one feed.
 * On any status but BIE_LLM_OK every sequence is as it was. */
BIE_LLM_API bie_llm_status bie_llm_read(bie_llm_session* session, const bie_llm_feed* feeds, int64_t count,
                                        float* logits);
/** The same with states in place of logits, rows of bie_llm_info's `width` floats: what the head makes logits of. */
BIE_LLM_API bie_llm_status bie_llm_read_states(bie_llm_session* session, const bie_llm_feed* feeds, int64_t count,
                                               float* states);
/** The token that follows a sequence whose logits these are. sampler may be null. */
BIE_LLM_API bie_llm_status bie_llm_choose(const bie_llm_sequence* sequence, const float* logits,
                                          const bie_llm_sampler* sampler, int32_t* token);

/** Reads a chat template, which may be any bytes; BIE_LLM_BAD_FILE where it is none.
 * docs/spec/language-models.md#chat-templates */
BIE_LLM_API bie_llm_status bie_llm_chat_template_create(const char* source, int64_t bytes,
                                                        bie_llm_chat_template** chat_template);
BIE_LLM_API void bie_llm_chat_template_free(bie_llm_chat_template* chat_template);
/** The prompt, without a terminating 0. from_template[i], which may be null, is 1 where the template wrote byte i, and
 * 0 where a value holds it. *bytes is what there are; BIE_LLM_TOO_SMALL where that is more than `room`, the size of
 * both. */
BIE_LLM_API bie_llm_status bie_llm_chat_template_render(const bie_llm_chat_template* chat_template,
                                                        const bie_llm_chat* chat, char* text, uint8_t* from_template,
                                                        int64_t room, int64_t* bytes);

/** Tokens of the prompt that a chat template writes of a conversation: chat_template, or the one in the model's file
 * where that is null. Control tokens come from the template, never from the messages. The texts of BOS and EOS are the
 * model's where they are null. *count is what there are; BIE_LLM_TOO_SMALL where that is more than `room`. */
BIE_LLM_API bie_llm_status bie_llm_chat_tokens(const bie_llm_model* model, const bie_llm_chat_template* chat_template,
                                               const bie_llm_chat* chat, int32_t* tokens, int64_t room, int64_t* count);

#ifdef __cplusplus
}
#endif
#endif
