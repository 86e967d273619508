// The work of bie generate.
#include <CLI/Error.hpp>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "bie/formats/error.h"
#include "bie/llm/generate.h"
#include "cli/llm/language.h"
#include "cli/net_main/llm/chat_prompt.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/command_files.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

Json answer_json(const llm::Answer& answer, double load, const llm::Times& times, bool with_logprobs) {
  Json json = {{"prompt_tokens", answer.prompt},     {"tokens", answer.tokens}, {"text", text::valid_utf8(answer.text)},
               {"finish", llm::name(answer.finish)}, {"load_seconds", load},    {"prompt_seconds", times.prompt},
               {"generate_seconds", times.generate}};
  if (!with_logprobs) return json;
  json["logprobs"] = Json::array();
  for (const auto& best : answer.logprobs) {
    Json of_token = Json::array();
    for (const auto& [token, value] : best) of_token.push_back(Json::array({token, value}));
    json["logprobs"].push_back(std::move(of_token));
  }
  return json;
}

void tell_speeds(const std::vector<llm::Answer>& answers, double load, const llm::Times& times) {
  std::size_t read = 0, written = 0, cached = 0;
  for (const llm::Answer& answer : answers) {
    cached += static_cast<std::size_t>(answer.cached);
    read += answer.prompt.size() - static_cast<std::size_t>(answer.cached);
    written += answer.tokens.size();
  }
  const auto speed = [](std::size_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const std::string kept = cached > 0 ? format("; the cache file held %zu tokens", cached) : "";
  log::info(format("loaded in %.2f s%s; read %zu tokens, %.0f a second; wrote %zu tokens, %.1f a second", load,
                   kept.c_str(), read, speed(read, times.prompt), written, speed(written, times.generate)));
}

/// Refuses prompts and answers whose keys and values no memory holds; what nobody has bounded is taken as it is needed.
void check_memory(const llm::Session& session, const std::vector<std::vector<std::int32_t>>& prompts,
                  const llm::GenerateOptions& o) {
  const std::int64_t context = o.context > 0 ? o.context : session.model().config().context;
  std::int64_t bytes = 0;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    const auto read = static_cast<std::int64_t>(prompt.size());
    const std::int64_t answer = o.tokens >= 0 ? std::min(o.tokens, context) : o.context > 0 ? context : 1;
    bytes += llm::cache_bytes(session, std::min(read + answer, context));
  }
  if (o.context > 0) log::info(format("keys and values take %.1f MB at most", static_cast<double>(bytes) / 1e6));
  check_cache_memory(bytes,
                     format("%zu prompts and their answers, which --context and --tokens bound", prompts.size()));
}

/// The texts of --prompt, --prompt-file or --batch.
std::vector<std::string> texts_of(const GenerateArguments& a) {
  if (!a.batch_file.empty()) return lines_of_file(a.batch_file, "a prompt");
  return {a.prompt ? *a.prompt : text_of_file(a.prompt_file)};
}

/// Prompts as the template writes them: each text is a message, or all of a file is one conversation.
std::vector<std::vector<std::int32_t>> chat_prompts(const GenerateArguments& a, const LoadedLanguage& language,
                                                    const std::vector<std::string>& texts,
                                                    const std::optional<Conversation>& conversation) {
  const ChatPrompts chat(language, a.chat, conversation && !conversation->tools.is_null());
  if (conversation) return {chat.prompt(conversation->messages, conversation->tools).tokens};
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& text : texts) {
    Json messages = first_messages(a.chat);
    messages.push_back(message("user", text));
    prompts.push_back(chat.prompt(messages).tokens);
  }
  return prompts;
}

std::vector<std::vector<std::int32_t>> plain_prompts(const GenerateArguments& a, const LoadedLanguage& language,
                                                     const std::vector<std::string>& texts) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& text : texts) {
    prompts.push_back(tokens_of(language.tokenizer, text, true));
    if (prompts.back().empty())
      throw formats::Error(formats::joined(
          !a.batch_file.empty() ? formats::joined("file ", a.batch_file, ": line ", prompts.size(), ": ") : "",
          "expected a prompt of one token at least, got an empty text, and the model's file names no "
          "token that begins one"));
  }
  return prompts;
}

void check_options(const GenerateArguments& a, const Global& global) {
  if (a.logprobs > 0 && !global.json) throw CLI::ValidationError("--logprobs", "expected --json beside it, got none");
  if (!a.batch_file.empty() && !a.cache.empty())
    throw CLI::ValidationError("--cache", "expected one prompt, as a file keeps that of one, got --batch");
  const bool is_chat = a.is_chat || !a.messages_file.empty();
  for (const auto& [option, is_given] :
       {std::pair("--template", !a.chat.template_file.empty()), std::pair("--no-think", a.chat.no_think)})
    if (is_given && !is_chat) throw CLI::ValidationError(option, "expected --chat or --messages beside it, got none");
}

}  // namespace

void generate_text(const GenerateArguments& a, const Global& global) {
  check_options(a, global);
  const bool is_batch = !a.batch_file.empty();
  CommandFiles files;
  files.reads(a.language.model, "the model's file");
  if (a.prompt_file != "-") files.reads(a.prompt_file, "the prompt's file");
  if (a.messages_file != "-") files.reads(a.messages_file, "the messages' file");
  files.reads(a.chat.template_file, "the template's file");
  files.writes("--cache", a.cache);
  std::vector<std::string> texts;
  std::optional<Conversation> conversation;
  if (a.messages_file.empty())
    texts = texts_of(a);
  else
    conversation = conversation_of(a.messages_file);

  LoadedLanguage language = load_language(a.language, global);
  llm::GenerateOptions options = generate_options(a.language);
  options.logprobs = a.logprobs;
  options.cache_file = a.cache;
  const auto prompts =
      a.is_chat || conversation ? chat_prompts(a, language, texts, conversation) : plain_prompts(a, language, texts);
  check_memory(language.session, prompts, options);
  const InterruptWatch watch;
  llm::Times times;
  const bool streams = !global.json && !is_batch;
  const auto answers = llm::generate(
      language.session, language.tokenizer, prompts, options,
      [streams](std::size_t, const std::string& text) {
        if (streams) print_text(text);
      },
      [] { return !was_interrupted(); }, &times);
  const auto json_of = [&](const llm::Answer& answer) {
    return answer_json(answer, language.load_seconds, times, a.logprobs > 0);
  };
  if (global.json && is_batch) {
    Json list = Json::array();
    for (const llm::Answer& answer : answers) list.push_back(json_of(answer));
    print_json_list("generate", list);
  } else if (global.json) {
    print_json("generate", json_of(answers.front()));
  } else if (is_batch) {
    for (const llm::Answer& answer : answers) print_text(answer.text + "\n");
  } else {
    print_text("\n");
  }
  if (was_interrupted()) throw Interrupted("interrupted; the text up to here is whole");
  tell_speeds(answers, language.load_seconds, times);
}

}  // namespace bie::cli
