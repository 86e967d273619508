// This program goes on with a text: generate MODEL TEXT
#include <cstdio>
#include <vector>

#include "bie/llm/language_model.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const bie::language::LanguageModel model(argv[1]);
    bie::language::Reader reader(model);
    bie::language::Text text = reader.text();
    std::vector<float> logits = reader.read(text, model.tokens(argv[2]));
    for (int i = 0; i < 32; ++i) {
      const std::int32_t token = bie::language::Reader::choose(text, logits);
      if (model.is_end(token)) break;
      const std::string_view bytes = model.text(token);
      std::fwrite(bytes.data(), 1, bytes.size(), stdout);
      logits = reader.read(text, {token});
    }
    std::puts("");
  } catch (const bie::language::ModelError& error) {
    std::puts(error.what());
    return 1;
  }
}
