// bie generate, bie chat, bie tokenize, bie perplexity, bie evaluate, bie quantize and bie convert: their options.
#include "cli/llm/language.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <memory>

#include "bie/formats/error.h"
#include "bie/formats/written_types.h"
#include "cli/llm/shared_options.h"

namespace bie::cli {
namespace {

constexpr const char* of_languages = "Of language models (GGUF files and folders)";

}  // namespace

void add_generate(CLI::App& app, const Global& global) {
  auto a = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "The text with which a language model goes on");
  add_model(*command, a->language);
  auto* prompt = command->add_option_group("The prompt", "");
  prompt->add_option("--prompt", a->prompt, "the text to go on with");
  prompt->add_option("--prompt-file", a->prompt_file, "file of that text; - is standard input")->check(file_name());
  prompt->add_option("--batch", a->batch_file, "file with a prompt in each line, which are answered together")
      ->check(file_name());
  auto* messages = prompt
                       ->add_option("--messages", a->messages_file,
                                    "JSON file of a conversation, a list of messages with role and content; - is "
                                    "standard input")
                       ->check(file_name());
  prompt->require_option(1);
  auto* is_chat =
      command->add_flag("--chat", a->is_chat, "the prompt is a message to a chat model, and this its answer")
          ->excludes(messages);
  add_system(*command, a->chat)->needs(is_chat);
  add_template(*command, a->chat);
  add_no_think(*command, a->chat, "tells the chat template that the model is not to think first");
  add_lengths(*command, a->language);
  add_choice(*command, a->language);
  add_arithmetic(*command, a->language);
  command
      ->add_option("--cache", a->cache,
                   "file that keeps what was read of the prompt; the next prompt with the same beginning skips it")
      ->check(file_name());
  command->add_option("--logprobs", a->logprobs, "with --json: the likeliest tokens, for each token of an answer")
      ->check(CLI::Range(1, 1000));
  command->footer(
      "Text goes to stdout as it comes, speeds to stderr. The text depends on the model, the prompt and these options\n"
      "alone: it is the same on every CPU, with any number of threads, and beside other prompts.\n"
      "Examples:\n"
      "  bie generate model.gguf --prompt 'Water boils at' --tokens 32\n"
      "  bie generate model.gguf --chat --prompt 'Name three rivers.'\n"
      "  bie generate model.gguf --prompt-file story.txt --temperature 0.8 --top-p 0.95 --seed 7\n"
      "  bie generate model.gguf --prompt-file document.txt --cache document.kv\n"
      "  bie generate model.gguf --batch questions.txt --tokens 64 --json");
  command->callback([a, &global] { generate_text(*a, global); });
}

void add_chat(CLI::App& app, const Global& global) {
  auto a = std::make_shared<ChatArguments>();
  CLI::App* command = app.add_subcommand("chat", "A conversation with a language model");
  add_model(*command, a->language);
  add_system(*command, a->chat);
  add_template(*command, a->chat);
  add_no_think(*command, a->chat, "asks for answers without <think> blocks, and hides those that come");
  command->add_flag("--shift", a->shift, "where the context is full, forget the oldest turns");
  add_lengths(*command, a->language);
  add_choice(*command, a->language);
  add_arithmetic(*command, a->language);
  command->footer(
      "A line is a message. Lines that begin with / are commands; /help tells them. Ctrl-C ends an answer, and leaves\n"
      "where none is being written. Through a pipe each line is answered, and nothing but answers is printed.\n"
      "Examples:\n"
      "  bie chat model.gguf\n"
      "  bie chat model.gguf --system 'Answer in one sentence.' --temperature 0.7 --top-p 0.9\n"
      "  bie chat model.gguf < questions.txt");
  command->callback([a, &global] { chat(*a, global); });
}

void add_tokenize(CLI::App& app, const Global& global) {
  auto a = std::make_shared<TokenizeArguments>();
  CLI::App* command = app.add_subcommand("tokenize", "The tokens of a text, as a language model reads it");
  command->add_option("model", a->model, "GGUF file, folder of Hugging Face, tokenizer.json or SentencePiece's .model")
      ->required()
      ->check(file_name());
  auto* what = command->add_option_group("What", "");
  what->add_option("--text", a->text, "the text");
  what->add_option("--file", a->file, "file of the text; - is standard input")->check(file_name());
  auto* decode = what->add_option("--decode", a->tokens, "tokens to turn into text, separated by commas")
                     ->check(whole_number<std::int32_t>("the number of a token"))
                     ->delimiter(',');
  what->require_option(1);
  command->add_flag("--no-special", a->no_special, "names of control tokens in the text are text")->excludes(decode);
  command->footer(
      "Examples:\n"
      "  bie tokenize model.gguf --text 'Water boils at'\n"
      "  bie tokenize model.gguf --decode 15,7,2013");
  command->callback([a, decode, &global] {
    a->decode = decode->count() > 0;
    tokenize_text(*a, global);
  });
}

void add_perplexity(CLI::App& app, const Global& global) {
  auto a = std::make_shared<PerplexityArguments>();
  CLI::App* command = app.add_subcommand("perplexity", "How well a language model predicts a text");
  add_model(*command, a->language);
  command->add_option("--data", a->data, "file of the text; - is standard input")->required()->check(file_name());
  command
      ->add_option(
          "--context", a->language.context,
          "tokens of a window, of which none sees one before (default: 512, or the model's where it has fewer)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  add_arithmetic(*command, a->language);
  command
      ->add_option("--reference", a->reference,
                   "another model, or a file of --save-logits: tells how far this one is from it")
      ->check(file_name());
  auto* save =
      command
          ->add_option("--save-logits", a->save_logits, "file that keeps what this model finds likely, for --reference")
          ->check(file_name());
  a->best = 256;
  command->add_option("--best", a->best, "with --save-logits: that many likeliest tokens of each prediction are kept")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->needs(save)
      ->capture_default_str();
  command->footer(
      "The numbers depend on the model, the text and these options alone: they are the same to the last digit on "
      "every\n"
      "CPU and with any number of threads. Few thousand tokens tell apart models that differ much; --reference tells "
      "apart\n"
      "models that are nearly one, as a model and its quantised form.\n"
      "Examples:\n"
      "  bie perplexity model.gguf --data text.txt\n"
      "  bie perplexity model.gguf --data text.txt --context 2048 --exact\n"
      "  bie perplexity float.gguf --data text.txt --exact --save-logits float.logits\n"
      "  bie perplexity small.gguf --data text.txt --reference float.logits");
  command->callback([a, &global] { tell_perplexity(*a, global); });
}

void add_evaluate(CLI::App& app, const Global& global) {
  auto a = std::make_shared<EvaluateArguments>();
  CLI::App* command =
      app.add_subcommand("evaluate", "How well a language model chooses among answers, or how fast it is");
  add_model(*command, a->language);
  auto* what = command->add_option_group("What", "");
  auto* choices =
      what->add_option("--choices", a->choices,
                       "JSONL file: a line has a context, the choices that may follow it, and the place of the right "
                       "one, from 0; - is standard input")
          ->check(file_name());
  auto* speed = what->add_flag("--speed", a->speed, "tokens a second of reading and of writing, and memory");
  what->require_option(1);
  command->add_option("--against", a->against, "another model that answers the same questions, for a paired test")
      ->check(file_name())
      ->needs(choices);
  a->lengths = {128, 512};
  a->streams = {1, 4, 16};
  command->add_option("--lengths", a->lengths, "with --speed: tokens of the texts that are read, separated by commas")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->delimiter(',')
      ->needs(speed)
      ->default_str("128,512");
  command->add_option("--streams", a->streams, "with --speed: texts that are written at once, separated by commas")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}))
      ->delimiter(',')
      ->needs(speed)
      ->default_str("1,4,16");
  command->add_option("--rounds", a->rounds, "with --speed: how often each is measured; the median is told")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000}))
      ->needs(speed)
      ->capture_default_str();
  add_arithmetic(*command, a->language);
  command->footer(
      "A choice counts as the model's where its log-probability is the largest, in all and for each byte of it.\n"
      "Examples:\n"
      "  bie evaluate model.gguf --choices questions.jsonl\n"
      "  bie evaluate small.gguf --choices questions.jsonl --against float.gguf --json\n"
      "  bie evaluate model.gguf --speed --lengths 128,2048 --streams 1,8\n"
      "A line of questions.jsonl:\n"
      "  {\"context\": \"Water boils at\", \"choices\": [\" 100 degrees\", \" noon\"], \"answer\": 0}");
  command->callback([a, &global] { evaluate(*a, global); });
}

CLI::Validator written_type() {
  return {[](std::string& name) {
            const bool good = formats::written_type(name) != nullptr;
            return good ? ""
                        : formats::joined("expected ", formats::written_type_names(), ", got ",
                                          formats::in_quotes(name));
          },
          "", "type"};
}

std::vector<CLI::Option*> add_language_quantize_options(CLI::App& command, QuantizeArguments& a) {
  const auto type_option = [&](const char* name, std::string& to, const char* description) {
    return command.add_option(name, to, description)
        ->transform(lowered())
        ->check(written_type())
        ->type_name("TYPE")
        ->group(of_languages);
  };
  return {
      type_option("--type", a.type,
                  "of every matrix: q8_0, q6_k, q4_k, q4_0 and other types of GGUF, or in a folder w3g64 and its like"),
      command
          .add_option("--size", a.size,
                      "bytes of the file at most, as 70MB (KB, MB and GB are thousands); types that lose the least on "
                      "the text of --calibrate")
          ->group(of_languages),
      command.add_option("--bpw", a.bits, "the same as bits of the file for each weight of the model")
          ->check(CLI::Range(0.5, 32.0))
          ->group(of_languages),
      command
          .add_option("--plan", a.plan, "JSON file of types by name, which -o PLAN.json with --size or --bpw writes")
          ->check(file_name())
          ->group(of_languages),
      type_option("--embedding", a.embedding, "type of the embedding (default: --type)"),
      type_option("--head", a.head, "type of the head (default: --type)"),
      command
          .add_option("--keep", a.keep,
                      "PATTERN=TYPE of matrices by GGUF's names, as 'blk.0.*=q8_0'; may be repeated, the first counts")
          ->type_size(1)
          ->allow_extra_args(false)
          ->group(of_languages),
      command
          .add_option("--calibrate", a.texts,
                      "file of a text; errors count by how large the inputs are on it; may be repeated")
          ->check(file_name())
          ->type_size(1)
          ->allow_extra_args(false)
          ->group(of_languages),
      command.add_option("--tokens", a.tokens, "of the texts, at most (default: 8192)")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
          ->group(of_languages),
      command
          .add_option("--imatrix", a.imatrix,
                      "llama.cpp's file of that size of inputs: written with --calibrate, else read")
          ->check(file_name())
          ->group(of_languages),
      command
          .add_option("--format", a.format,
                      "of an output that is a folder: bie, with codes of any width (the default), or gptq, as others "
                      "read it")
          ->check(CLI::IsMember({"bie", "gptq"}))
          ->type_name("bie|gptq")
          ->group(of_languages),
      command.add_flag("--fit", a.fit, "where rows are no whole blocks of a type, take the next one that is no worse")
          ->group(of_languages)};
}

void add_quantize_of_languages(CLI::App& app, const Global& global) {
  auto a = std::make_shared<QuantizeArguments>();
  CLI::App* command = app.add_subcommand("quantize", "A language model with smaller weights");
  command->add_option("model", a->model, "GGUF file or folder of a model")->required()->check(file_name());
  command->add_option("-o,--out", a->out, "FILE.gguf or a folder to write, or with --size or --bpw PLAN.json alone")
      ->required()
      ->check(file_name());
  command
      ->add_option("--method", a->method,
                   "nearest, whose scales fit the largest number of a group; search, the scales of the least error; or "
                   "gptq, where later inputs make good the errors of earlier ones (default: search with --calibrate or "
                   "--imatrix, else nearest)")
      ->check(CLI::IsMember({"nearest", "search", "gptq"}));
  add_language_quantize_options(*command, *a);
  command->footer(
      "Each number is rounded to the nearest of its block, as llama.cpp does without a text. Vectors stay as they "
      "are.\n"
      "Examples:\n"
      "  bie quantize model.gguf --type q4_0 -o small.gguf\n"
      "  bie quantize FOLDER --type q4_k --fit --embedding q8_0 -o model.gguf\n"
      "  bie quantize model.gguf --type q4_0 --method gptq --calibrate text.txt -o small.gguf\n"
      "  bie quantize model.gguf --size 70MB --method gptq --calibrate text.txt -o small.gguf\n"
      "  bie quantize model.gguf --type q4_0 --keep 'blk.*.ffn_down.weight=q5_1' -o small.gguf");
  command->callback([a, &global] { quantize_language(*a, global); });
}

void add_convert(CLI::App& app, const Global& global) {
  auto a = std::make_shared<ConvertArguments>();
  CLI::App* command = app.add_subcommand("convert", "A folder of Hugging Face as a GGUF file");
  command->add_option("folder", a->folder, "folder with config.json, safetensors and a tokenizer")
      ->required()
      ->check(file_name());
  command->add_option("-o,--out", a->out, "the GGUF file")->required()->check(file_name());
  command
      ->add_option("--type", a->type,
                   "of matrices of floats, and of codes that no type of GGUF holds: f16, bf16, f32 or q8_0 (default: "
                   "floats as they are, and such codes are refused)")
      ->check(CLI::IsMember({"f16", "bf16", "f32", "q8_0"}, CLI::ignore_case));
  command->footer(
      "llama.cpp reads the file, and so does bie generate. Codes of GPTQ, GreenBit and BitNet stay what they are "
      "where\n"
      "a type of GGUF holds them to the bit.\n"
      "Examples:\n"
      "  bie convert SmolLM2-135M-Instruct -o smollm2.gguf\n"
      "  bie convert SmolLM2-135M-Instruct -o smollm2-q8.gguf --type q8_0");
  command->callback([a, &global] { convert_folder(*a, global); });
}

}  // namespace bie::cli
