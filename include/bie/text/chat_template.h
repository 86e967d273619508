// Chat templates: the messages of a chat become the prompt that a model was trained on.
// Source: docs/spec/language-models.md#chat-templates.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bie::text {

/// A piece of a prompt. Names of control tokens are tokens in what the template wrote, and text in what a value holds.
struct ChatPiece {
  std::string text;
  bool from_template = false;
};

/// A prompt is made of these. All texts but the tokens are JSON; an empty one is a variable that is not defined.
struct ChatInput {
  std::string messages;               ///< a list of objects: role, content, tool_calls, ...
  std::string tools = {};             ///< a list, or null
  std::string documents = {};         ///< a list, or null
  std::string variables = {};         ///< an object whose members are variables too; the others take precedence
  bool add_generation_prompt = true;  ///< whether the answer's beginning ends the prompt
  std::string bos_token = {};         ///< counts as the template's
  std::string eos_token = {};         ///< counts as the template's
  std::optional<std::tm> now = {};    ///< the time that strftime_now writes; it is refused where there is none
};

/// Bounds of one rendering; a template that exceeds one is refused.
struct ChatLimits {
  std::int64_t steps = 20'000'000;                     ///< nodes that are evaluated, and elements that are touched
  std::int64_t bytes = std::int64_t{64} << 20;         ///< of the prompt, and of a text on the way to it
  std::int64_t live_bytes = std::int64_t{256} << 20;   ///< of all values at a time
  std::int64_t written_bytes = std::int64_t{1} << 30;  ///< of all texts that are made
};

/// A compiled template. It never changes; threads share it.
class ChatTemplate {
 public:
  /// @param name  what sentences call the template.
  /// @throws formats::Error, one sentence with a line: syntax that is not read, more than 1 MiB, nested too deeply.
  explicit ChatTemplate(std::string_view source, std::string name = "the chat template");
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Neighbouring pieces differ in from_template, and none is empty.
  /// @throws formats::Error, one sentence: input that is no such JSON, the words of raise_exception, an operation that
  /// the values do not have, a limit.
  std::vector<ChatPiece> render(const ChatInput& input, const ChatLimits& limits = {}) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace bie::text
