// The commands on language models: their options, which both halves of the program know, and what they do, which the
// half without torch does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/commands.h"

namespace bie::cli {

/// A model, how it computes, and how it chooses.
struct LanguageOptions {
  std::string model, arithmetic = "int8", kv;
  std::int64_t context = 0, tokens = -1, top_k = 0;
  double temperature = 0, top_p = 1, min_p = 0, repeat_penalty = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> stops;
};

/// These options say how messages become a prompt.
struct ChatOptions {
  std::string template_file;
  std::optional<std::string> system;
  bool no_think = false;
};

struct GenerateArguments {
  LanguageOptions language;
  ChatOptions chat;
  std::string prompt_file, batch_file, messages_file, cache;
  std::optional<std::string> prompt;
  std::int64_t logprobs = 0;
  bool is_chat = false;  ///< the prompt is a message
};

struct ChatArguments {
  LanguageOptions language;
  ChatOptions chat;
  bool shift = false;
};

struct TokenizeArguments {
  std::string model, file;
  std::optional<std::string> text;
  std::vector<std::int32_t> tokens;
  bool decode = false, no_special = false;
};

struct PerplexityArguments {
  LanguageOptions language;
  std::string data, reference, save_logits;
  std::int64_t best = 0;  ///< tokens of a prediction that save_logits keeps
};

struct EvaluateArguments {
  LanguageOptions language;
  std::string choices, against;
  bool speed = false;
  std::vector<std::int64_t> lengths, streams;
  std::int64_t rounds = 3;
};

struct QuantizeArguments {
  std::string model, out, type, embedding, head, method, imatrix, plan, size, format;
  std::vector<std::string> keep, texts;
  std::int64_t tokens = 0;
  double bits = 0;  ///< a weight; 0: not asked for
  bool fit = false;
};

struct ConvertArguments {
  std::string folder, out, type;
};

struct ServeArguments {
  LanguageOptions language;
  ChatOptions chat;
  std::vector<std::string> models;  ///< NAME=FILE of each, where there are several
  std::string host = "127.0.0.1", name, cache_size, cache_folder, folder_size = "4GB", key_file, origin, pooling;
  int port = 8080, queue_seconds = 60, grace = 30;
  std::int64_t rows = 256, queue = 256, pause = 50, body = 8 << 20, connections = 16384;
  bool logs_text = false;
};

/// Adds those options of bie quantize that are for language models alone, which both halves show; --method has other
/// values for nets.
std::vector<CLI::Option*> add_language_quantize_options(CLI::App& command, QuantizeArguments& arguments);
/// bie quantize of the half without torch.
void add_quantize_of_languages(CLI::App& app, const Global& global);

// Each half has its own. @throws formats::Error; the half with torch says where the other one is.
void generate_text(const GenerateArguments& arguments, const Global& global);
void chat(const ChatArguments& arguments, const Global& global);
void tokenize_text(const TokenizeArguments& arguments, const Global& global);
void tell_perplexity(const PerplexityArguments& arguments, const Global& global);
void quantize_language(const QuantizeArguments& arguments, const Global& global);
void evaluate(const EvaluateArguments& arguments, const Global& global);
void convert_folder(const ConvertArguments& arguments, const Global& global);
void serve(const ServeArguments& arguments, const Global& global);

}  // namespace bie::cli
