// This program goes on with a text: generate MODEL TEXT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bie/llm/bie_llm.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  bie_llm_model* model;
  bie_llm_session* session;
  bie_llm_sequence* sequence;
  bie_llm_info info;
  if (bie_llm_model_load(argv[1], NULL, &model) || bie_llm_model_info(model, &info) ||
      bie_llm_session_create(model, NULL, &session) || bie_llm_sequence_create(session, &sequence)) {
    puts(bie_llm_last_error());
    return 1;
  }
  int32_t tokens[512];
  int64_t count;
  float* logits = malloc(sizeof(float) * (size_t)info.vocabulary);
  if (logits == NULL || bie_llm_tokenize(model, argv[2], (int64_t)strlen(argv[2]), 1, 1, tokens, 512, &count)) {
    puts(bie_llm_last_error());
    return 1;
  }
  bie_llm_feed feed = {sequence, tokens, count, 0};
  for (int i = 0; i < 32 && bie_llm_read(session, &feed, 1, logits) == BIE_LLM_OK; ++i) {
    const char* text;
    int64_t bytes;
    bie_llm_choose(sequence, logits, NULL, &tokens[0]);
    if (bie_llm_is_end(model, tokens[0])) break;
    bie_llm_token_bytes(model, tokens[0], 0, &text, &bytes);
    fwrite(text, 1, (size_t)bytes, stdout);
    feed.count = 1;
  }
  puts("");
  free(logits);
  bie_llm_sequence_free(sequence);
  bie_llm_session_free(session);
  bie_llm_model_free(model);
  return 0;
}
