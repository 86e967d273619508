#include "cli/llm/shared_options.h"

#include <cstdlib>

namespace bie::cli {

CLI::Validator number_from(double least, double most, const std::string& words) {
  return {[least, most, words](std::string& text) -> std::string {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool good = !text.empty() && *end == '\0' && value >= least && value <= most;
            return good ? "" : "expected " + words + ", got " + text;
          },
          "", "number"};
}

CLI::Validator file_name() {
  return {[](std::string& text) { return text.empty() ? std::string("the name is empty") : ""; }, "", "file"};
}

CLI::Validator lowered() {
  return {[](std::string& text) {
            for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
            return std::string();
          },
          "", "case"};
}

CLI::Validator not_empty() {
  return {[](std::string& text) { return text.empty() ? std::string("expected a text, got an empty one") : ""; }, "",
          "text"};
}

CLI::Option* add_model(CLI::App& command, LanguageOptions& o) {
  return command
      .add_option("model", o.model, "GGUF file or folder of a llama, mistral, smollm, qwen, gemma or bitnet model")
      ->required()
      ->check(file_name());
}

void add_lengths(CLI::App& command, LanguageOptions& o) {
  command.add_option("--tokens", o.tokens, "tokens of an answer at most (default: to its end, or the context's)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  command.add_option("--context", o.context, "tokens of prompt and answer at most (default: the model's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  command.add_option("--stop", o.stops, "text before which an answer ends; may be repeated")
      ->check(not_empty())
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_choice(CLI::App& command, LanguageOptions& o) {
  auto* temperature =
      command.add_option("--temperature", o.temperature, "0: the likeliest token; more: the larger, the freer")
          ->check(number_from(0, 1000, "a number from 0 to 1000"))
          ->capture_default_str();
  command.add_option("--top-k", o.top_k, "choose among that many likeliest tokens (default: all)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->needs(temperature);
  command.add_option("--top-p", o.top_p, "choose among the likeliest tokens that have this share together")
      ->check(number_from(0, 1, "a number from 0 to 1"))
      ->needs(temperature)
      ->default_str("1");
  command.add_option("--min-p", o.min_p, "choose among tokens with at least that share of the likeliest one's")
      ->check(number_from(0, 1, "a number from 0 to 1"))
      ->needs(temperature)
      ->default_str("0");
  command.add_option("--seed", o.seed, "of the random numbers; the same seed gives the same text")
      ->check(whole_number<std::uint64_t>("a whole number from 0 to 2^64 - 1"))
      ->needs(temperature)
      ->default_str("0");
  command.add_option("--repeat-penalty", o.repeat_penalty, "divides the logits of tokens that were there before")
      ->check(number_from(0.01, 100, "a number from 0.01 to 100"))
      ->capture_default_str();
}

void add_arithmetic(CLI::App& command, LanguageOptions& o) {
  auto* arithmetic = command.add_option("--arithmetic", o.arithmetic, "of the products: int8 or exact")
                         ->check(CLI::IsMember({"int8", "exact"}))
                         ->capture_default_str();
  command
      .add_flag_callback(
          "--exact", [&o] { o.arithmetic = "exact"; }, "short for --arithmetic exact")
      ->excludes(arithmetic);
  command.add_option("--kv", o.kv, "how keys and values are kept: q8, f16 or f32 (default: f32 with --exact, else q8)")
      ->check(CLI::IsMember({"q8", "f16", "f32"}));
}

CLI::Option* add_system(CLI::App& command, ChatOptions& o) {
  return command.add_option("--system", o.system, "what the model is told before the first message");
}

CLI::Option* add_template(CLI::App& command, ChatOptions& o) {
  return command
      .add_option("--template", o.template_file, "file of the chat template (default: the one in the model's file)")
      ->check(file_name());
}

CLI::Option* add_no_think(CLI::App& command, ChatOptions& o, const char* description) {
  return command.add_flag("--no-think", o.no_think, description);
}

}  // namespace bie::cli
