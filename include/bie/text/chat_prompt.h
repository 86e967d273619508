// The tokens of a conversation, as a model's chat template writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/text/chat_template.h"
#include "bie/text/tokenizer.h"

namespace bie::text {

bool has_chat_template(const formats::GgufFile& file);

/// The chat template of a file; the one for tools, where it has one and they are wanted.
/// @throws formats::Error naming the file: it has none, or none that is read.
ChatTemplate gguf_chat_template(const formats::GgufFile& file, bool for_tools = false);

/// The template of a file that ranks documents, with the variables `query` and `document`; none where it has none.
/// @throws formats::Error naming the file: it is not read.
std::optional<ChatTemplate> gguf_rank_template(const formats::GgufFile& file);

struct ChatPrompt {
  std::vector<std::int32_t> tokens;  ///< the template alone says whether a token begins the text
  bool ends_in_thought;              ///< whether the answer begins behind a `<think>`
};

/// Writes the prompt and reads its tokens: control tokens come from the template, never from what it writes of the
/// messages. The texts of BOS and EOS are the tokenizer's, unless
/// the input has others.
/// @throws formats::Error as ChatTemplate::render does, and for a prompt without tokens.
ChatPrompt chat_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat_template, ChatInput input);

}  // namespace bie::text
