// Answers as Anthropic's messages.
#include "cli/net_main/serve/form.h"

namespace bie::cli {
namespace {

class MessageForm final : public Form {
 public:
  MessageForm(const Answers& answers, const text::Tokenizer& tokenizer) : Form(answers, tokenizer) {}

  Json whole() override {
    const Choice& choice = answers_.choices.front();
    Json message = head();
    for (const Piece& piece : choice.pieces) message["content"].push_back(block(piece.is_thought, piece.text));
    message.update(reason());
    message["usage"] = usage();
    return message;
  }

  std::string begin() override { return named_event_of({{"type", "message_start"}, {"message", head()}}); }

  std::string tell(std::size_t, const TextParts& parts, const Chances&) override {
    std::string events;
    for (const auto& part : parts) {
      if (!has_open_ || is_thought_ != part.is_thought) {
        events += close();
        has_open_ = true;
        is_thought_ = part.is_thought;
        events += named_event_of(
            {{"type", "content_block_start"}, {"index", blocks_}, {"content_block", block(is_thought_, "")}});
      }
      const Json delta = is_thought_ ? Json{{"type", "thinking_delta"}, {"thinking", part.text}}
                                     : Json{{"type", "text_delta"}, {"text", part.text}};
      events += named_event_of({{"type", "content_block_delta"}, {"index", blocks_}, {"delta", delta}});
    }
    return events;
  }

  std::string end_of(std::size_t) override { return close(); }

  std::string end() override {
    return named_event_of({{"type", "message_delta"}, {"delta", reason()}, {"usage", usage()}}) +
           named_event_of({{"type", "message_stop"}});
  }

  std::string failure(const ApiError& error) override { return named_event_of(anthropic_error(error)); }

 private:
  static Json block(bool is_thought, const std::string& text) {
    return is_thought ? Json{{"type", "thinking"}, {"thinking", text}, {"signature", ""}}
                      : Json{{"type", "text"}, {"text", text}};
  }

  /// A message without content.
  Json head() const {
    return {{"id", answers_.id},        {"type", "message"},        {"role", "assistant"},
            {"model", answers_.model},  {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}, {"usage", usage()},         {"seed", answers_.asked.seed}};
  }

  /// Tokens that were read count apart from those that kept pages held.
  Json usage() const {
    const Usage usage = answers_.usage();
    return {{"input_tokens", usage.prompt - usage.cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.cached},
            {"output_tokens", usage.written}};
  }

  Json reason() const {
    const Choice& choice = answers_.choices.front();
    if (choice.finish == "cancelled") return {{"stop_reason", "cancelled"}, {"stop_sequence", nullptr}};
    if (!choice.stop.empty()) return {{"stop_reason", "stop_sequence"}, {"stop_sequence", choice.stop}};
    const bool is_long = choice.finish == "length", had_room = choice.tokens < answers_.asked.request.tokens;
    return {{"stop_reason", !is_long   ? "end_turn"
                            : had_room ? "model_context_window_exceeded"
                                       : "max_tokens"},
            {"stop_sequence", nullptr}};
  }

  std::string close() {
    if (!has_open_) return "";
    has_open_ = false;
    return named_event_of({{"type", "content_block_stop"}, {"index", blocks_++}});
  }

  bool has_open_ = false, is_thought_ = false;  ///< the last block
  std::int64_t blocks_ = 0;                     ///< that have ended
};

}  // namespace

const Interface message_interface = {"msg_", "messages", asked_message,
                                     [](const Answers& answers, const text::Tokenizer& tokenizer) {
                                       return std::unique_ptr<Form>(std::make_unique<MessageForm>(answers, tokenizer));
                                     }};

}  // namespace bie::cli
