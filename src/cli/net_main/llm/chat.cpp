// The work of bie chat: a conversation that grows turn by turn, of which the model reads what is new.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "bie/formats/error.h"
#include "bie/formats/replacing_file.h"
#include "bie/text/thoughts.h"
#include "cli/llm/language.h"
#include "cli/net_main/llm/chat_prompt.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/command_files.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

constexpr const char* help =
    "/undo       takes back the last message and its answer\n"
    "/retry      answers the last message anew\n"
    "/save FILE  writes the messages as JSON, which bie generate --messages reads\n"
    "/tokens     tells how much of the context is taken\n"
    "/clear      begins a new conversation\n"
    "/exit       leaves, as Ctrl-D does\n"
    "//...       is a message that begins with /\n";

/// How answers reach the user.
class Screen {
 public:
  Screen(bool silent, bool no_think) : silent_(silent), no_think_(no_think), dims_(::isatty(STDOUT_FILENO) != 0) {
    const char* const no_colour = std::getenv("NO_COLOR");
    if (no_colour != nullptr && *no_colour != '\0') dims_ = false;
  }

  void begin_answer(bool in_thought) { thoughts_ = text::ThoughtStream(in_thought); }
  void put(const std::string& text) { show(thoughts_.put(text)); }
  void end_answer() {
    show(thoughts_.end());
    dim(false);
    if (!silent_) print_text("\n");
  }
  /// A sentence of the program itself, which is no answer.
  void tell(const std::string& sentence) const {
    if (!silent_) std::fprintf(stderr, "%s\n", sentence.c_str());
  }

 private:
  void show(const std::vector<text::ThoughtStream::Part>& parts) {
    for (const auto& [text, is_thought] : parts) {
      if (silent_ || (is_thought && no_think_)) continue;
      if (was_thought_ && !is_thought) print_text("\n\n");
      was_thought_ = is_thought;
      dim(is_thought);
      print_text(text);
    }
  }
  void dim(bool wanted) {
    if (!dims_ || wanted == is_dim_) return;
    print_text(wanted ? "\x1b[2m" : "\x1b[0m");
    is_dim_ = wanted;
  }

  bool silent_, no_think_, dims_, is_dim_ = false, was_thought_ = false;
  text::ThoughtStream thoughts_;
};

class Chat {
 public:
  Chat(const ChatArguments& a, const Global& global)
      : arguments_(a),
        language_(load_language(a.language, global)),
        prompts_(language_, a.chat),
        options_(generate_options(a.language)),
        screen_(global.json, a.chat.no_think),
        read_(language_.session.sequence()),
        messages_(first_messages(a.chat)) {
    if (options_.context > 0)
      check_cache_memory(llm::cache_bytes(language_.session, context()), "a conversation as long as --context");
  }

  /// Whether the conversation goes on.
  bool take_line(const std::string& line) {
    if (line.empty()) return true;
    if (line[0] != '/') return answer_to(line);
    if (line.substr(0, 2) == "//") return answer_to(line.substr(1));
    const std::size_t space = line.find(' ');
    const std::string word = line.substr(0, space),
                      rest = space == std::string::npos ? std::string() : line.substr(space + 1);
    if (word == "/save") return save(rest);
    if (!rest.empty()) return refuse(formats::joined("expected nothing behind ", word, ", got ", rest));
    if (word == "/exit") return false;
    if (word == "/undo") return undo();
    if (word == "/retry") return retry();
    if (word == "/tokens") return tell_tokens();
    if (word == "/clear") return clear();
    if (word == "/help") return tell(help);
    return refuse(formats::joined("expected a command that /help tells, got ", word, "; // begins a message with /"));
  }
  const Json& messages() const { return messages_; }
  std::int64_t unanswered() const { return unanswered_; }

 private:
  bool tell(const std::string& sentence) const {
    screen_.tell(sentence);
    return true;
  }
  static bool refuse(const std::string& sentence) {
    log::error(printable(sentence));
    return true;
  }
  bool has_turn() const { return !messages_.empty() && messages_.back()["role"] == "assistant"; }

  bool answer_to(const std::string& text) {
    stream_ = 0;
    messages_.push_back(message("user", text));
    if (!answer()) messages_.erase(messages_.end() - 1);
    return true;
  }

  /// Answers the last message; false where that cannot be, which is told.
  bool answer() {
    try {
      write(fitting_prompt());
      return true;
    } catch (const formats::Error& error) {
      refuse(error.what());
      ++unanswered_;
      return false;
    }
  }

  void write(const text::ChatPrompt& prompt) {
    options_.sampler.stream = stream_;
    screen_.begin_answer(prompt.ends_in_thought);
    const InterruptWatch watch;
    llm::Times times;
    const auto answers = llm::generate(
        language_.session, language_.tokenizer, {prompt.tokens}, options_,
        [&](std::size_t, const std::string& part) { screen_.put(part); }, [] { return !was_interrupted(); }, &times,
        &read_);
    screen_.end_answer();
    const llm::Answer& answer = answers.front();
    messages_.push_back(message("assistant", text::valid_utf8(answer.text)));
    if (was_terminated()) throw Interrupted("terminated; the answer up to here is whole");
    const auto taken = static_cast<std::int64_t>(answer.prompt.size() + answer.tokens.size());
    if (answer.finish == llm::Answer::Finish::length && taken >= context())
      tell(formats::joined("the answer ends here: the context of ", context(), " tokens is full"));
  }

  /// The prompt of all messages. --shift takes the oldest turns away until a quarter of the context is left for the
  /// answer.
  text::ChatPrompt fitting_prompt() {
    for (;;) {
      text::ChatPrompt prompt = prompts_.prompt(messages_);
      const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
      const bool fits = tokens < context();
      if (fits && (!arguments_.shift || tokens <= context() - context() / 4)) return prompt;
      if (arguments_.shift && forget_oldest()) continue;
      if (fits) return prompt;
      throw formats::Error(formats::joined("expected a conversation of fewer than ", context(),
                                           " tokens, the context, got ", tokens,
                                           ": /undo, /clear and --shift make room"));
    }
  }

  /// Takes the first turn away; the system's message stays. False where the last message would go.
  bool forget_oldest() {
    std::size_t first = !messages_.empty() && messages_[0]["role"] == "system" ? 1 : 0;
    std::size_t last = first;
    while (last < messages_.size() && messages_[last]["role"] != "assistant") ++last;
    if (last >= messages_.size()) return false;
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first),
                    messages_.begin() + static_cast<std::ptrdiff_t>(last + 1));
    if (!told_of_shift_) tell("the context is full: the oldest turns are forgotten");
    told_of_shift_ = true;
    return true;
  }

  bool undo() {
    if (!has_turn()) return refuse("expected a message to take back, got none");
    messages_.erase(messages_.end() - 1);
    messages_.erase(messages_.end() - 1);
    return tell("the last message and its answer are taken back");
  }

  bool retry() {
    if (!has_turn()) return refuse("expected an answer to write anew, got none");
    if (arguments_.language.temperature == 0)
      return refuse("expected --temperature above 0, got 0: the answer would be the same");
    const Json old = messages_.back();
    messages_.erase(messages_.end() - 1);
    ++stream_;
    if (!answer()) messages_.push_back(old);
    return true;
  }

  bool save(const std::string& path) {
    if (path.empty()) return refuse("expected a file behind /save, got none");
    try {
      CommandFiles files;
      files.reads(arguments_.language.model, "the model's file");
      files.writes("/save", path);
      formats::ReplacingFile file("file", path);
      const std::string text = messages_.dump(2) + "\n";
      file.write(text.data(), static_cast<std::int64_t>(text.size()));
      file.commit();
    } catch (const formats::Error& error) {
      return refuse(error.what());
    }
    return tell(formats::joined(messages_.size(), " messages are in ", path));
  }

  bool tell_tokens() const {
    return tell(formats::joined(read_.length(), " of ", context(), " tokens of the context are taken"));
  }

  bool clear() {
    messages_ = first_messages(arguments_.chat);
    read_.cut(0);
    return tell("a new conversation begins");
  }

  std::int64_t context() const { return language_.context(arguments_.language); }

  const ChatArguments& arguments_;
  LoadedLanguage language_;
  ChatPrompts prompts_;
  llm::GenerateOptions options_;
  Screen screen_;
  llm::Sequence read_;
  Json messages_;
  std::uint64_t stream_ = 0;  ///< of random numbers: answers to one message differ by it
  bool told_of_shift_ = false;
  std::int64_t unanswered_ = 0;
};

}  // namespace

void chat(const ChatArguments& a, const Global& global) {
  CommandFiles files;
  files.reads(a.language.model, "the model's file");
  files.reads(a.chat.template_file, "the template's file");
  Chat conversation(a, global);
  const bool asks = ::isatty(STDIN_FILENO) != 0 && !global.json;
  if (asks) std::fprintf(stderr, "/help tells the commands; Ctrl-D leaves.\n");
  std::string line;
  do {
    if (asks) print_text("> ");
    if (!std::getline(std::cin, line)) {
      if (asks) print_text("\n");
      break;
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
  } while (conversation.take_line(line));
  if (global.json)
    print_json("chat", {{"messages", conversation.messages()}, {"unanswered", conversation.unanswered()}});
  else if (!asks && conversation.unanswered() > 0)
    throw formats::Error(formats::joined(conversation.unanswered(), " of the messages could not be answered"));
}

}  // namespace bie::cli
