// bie serve: its options.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>

#include "cli/llm/shared_options.h"

namespace bie::cli {
namespace {

CLI::Validator named_file() {
  return {[](std::string& text) -> std::string {
            const std::size_t equals = text.find('=');
            const bool is_good = equals != std::string::npos && equals > 0 && equals + 1 < text.size();
            return is_good ? "" : "expected NAME=FILE, got " + formats::in_quotes(text);
          },
          "", "model"};
}

}  // namespace

void add_serve(CLI::App& app, const Global& global) {
  auto a = std::make_shared<ServeArguments>();
  CLI::App* command = app.add_subcommand("serve", "Language models for many clients, as OpenAI's and Anthropic's");
  CLI::Option* model = add_model(*command, a->language)->required(false);
  command->add_option("--model", a->models, "NAME=FILE: one of several models; repeated")
      ->check(named_file())
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->excludes(model);
  command->add_option("--host", a->host, "address to listen at; 0.0.0.0 and :: are all of this machine")
      ->capture_default_str();
  command->add_option("--port", a->port, "0: one that is free, which is told")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--name", a->name, "what clients call the model (default: the file's name)")
      ->check(not_empty())
      ->needs(model);
  command->add_option("--api-key-file", a->key_file, "file with a key in each line; clients must send one")
      ->check(file_name());
  command->add_option("--cors", a->origin, "origin of web pages that may ask too, as https://example.org, or *")
      ->check(not_empty());
  command
      ->add_option("--context", a->language.context,
                   "tokens of prompt and answer at most (default: the model's, or what --cache-size holds)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  command
      ->add_option("--cache-size", a->cache_size,
                   "memory for keys and values, as 500MB or 2GB (default: half of what is free)")
      ->check(not_empty());
  auto* folder = command
                     ->add_option("--cache-dir", a->cache_folder,
                                  "folder in which keys and values of texts outlive the server; made if need be")
                     ->check(file_name());
  command->add_option("--cache-dir-size", a->folder_size, "bytes of that folder at most, as 500MB or 20GB")
      ->check(not_empty())
      ->needs(folder)
      ->capture_default_str();
  command
      ->add_option("--pooling", a->pooling,
                   "states that make an embedding: mean, first or last (default: the file's, or no embeddings)")
      ->check(CLI::IsMember({"mean", "first", "last"}));
  command->add_option("--rows", a->rows, "tokens in a pass at most, and so answers side by side")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--pause", a->pause, "milliseconds for which a prompt may delay the next token of others")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--queue", a->queue, "answers that wait at most; who comes then is told to come later")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--queue-seconds", a->queue_seconds, "for which a request waits at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--body", a->body, "bytes of a request at most")
      ->check(CLI::Range(std::int64_t{1024}, std::int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--connections", a->connections, "of clients at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--grace", a->grace, "seconds that answers have to end when the server is told to stop")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_flag("--log-text", a->logs_text, "the log has the texts of answers");
  add_template(*command, a->chat);
  add_no_think(*command, a->chat, "tells the chat template that the model is not to think first");
  add_arithmetic(*command, a->language);
  command->footer(
      "GET / is a page to chat with. An answer is the same beside any other requests;\n"
      "of these options --context, --template, --no-think, --arithmetic, --kv and\n"
      "--pooling alone may change it. With --json the log is JSON on stdout. Ctrl-C lets answers end; a\n"
      "second one does not.\n"
      "Examples:\n"
      "  bie serve model.gguf\n"
      "  bie serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --cache-size 2GB\n"
      "  bie serve --model small=a.gguf --model large=b.gguf\n"
      "  curl -H 'Content-Type: application/json' localhost:8080/v1/chat/completions \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Name three rivers.\"}]}'");
  command->callback([a, &global] { serve(*a, global); });
}

}  // namespace bie::cli
