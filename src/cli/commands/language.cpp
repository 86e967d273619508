// The commands on language models in the half that has torch: the other one does their work.
#include "cli/llm/language.h"

#include <stdexcept>

namespace bie::cli {
namespace {

[[noreturn]] void refuse(const char* command) {
  throw std::runtime_error(std::string("bie ") + command +
                           " needs the half of bie without torch: cmake --preset runtime, or cmake --install");
}

}  // namespace

void generate_text(const GenerateArguments&, const Global&) { refuse("generate"); }
void chat(const ChatArguments&, const Global&) { refuse("chat"); }
void serve(const ServeArguments&, const Global&) { refuse("serve"); }
void tokenize_text(const TokenizeArguments&, const Global&) { refuse("tokenize"); }
void tell_perplexity(const PerplexityArguments&, const Global&) { refuse("perplexity"); }
void quantize_language(const QuantizeArguments&, const Global&) { refuse("quantize of a language model"); }
void evaluate(const EvaluateArguments&, const Global&) { refuse("evaluate"); }
void convert_folder(const ConvertArguments&, const Global&) { refuse("convert"); }

}  // namespace bie::cli
