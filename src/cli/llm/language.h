// The commands on language models: their options, which both halves of the program know, and what they do, which the
// half without torch does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/commands.h"

namespace bie::cli {

struct GenerateArguments {
  std::string model, prompt_file, batch_file;
  std::optional<std::string> prompt;
  std::int64_t tokens = -1, context = 0, top_k = 0, logprobs = 0;
  double temperature = 0, top_p = 1, min_p = 0, repeat_penalty = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> stops;
  std::string arithmetic = "int8", kv, cache;
};

struct TokenizeArguments {
  std::string model, file;
  std::optional<std::string> text;
  std::vector<std::int32_t> tokens;
  bool decode = false, no_special = false;
};

// Each half has its own. @throws formats::Error; the half with torch says where the other one is.
void generate_text(const GenerateArguments& arguments, const Global& global);
void tokenize_text(const TokenizeArguments& arguments, const Global& global);

}  // namespace bie::cli
