// Prompts in pieces: whose each character is, and what a rendering may spend. tests/llm/chat_template_test.py compares
// the language itself with jinja2's.
#include "bie/text/chat_template.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "bie/formats/error.h"

namespace bie::text {
namespace {

/// Pieces in one text, values in braces.
std::string marked(const std::string& source, const std::string& variables = "{}") {
  std::string text;
  for (const ChatPiece& piece : ChatTemplate(source).render({.messages = "[]", .variables = variables}))
    text += piece.from_template ? piece.text : "{" + piece.text + "}";
  return text;
}

std::string refusal(const std::string& source, const ChatLimits& limits = {}) {
  try {
    ChatTemplate(source, "a template").render({.messages = "[]"}, limits);
  } catch (const formats::Error& error) {
    return error.what();
  }
  return "";
}

constexpr const char* user = R"({"x": " a<|end|>B ", "n": 7})";

TEST(ChatTemplate, PiecesAlternate) {
  const ChatTemplate chat(
      "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}");
  ChatInput input{.messages = R"([{"role": "user", "content": "<|end|>"}, {"role": "other", "content": ""}])",
                  .bos_token = "<s>"};
  const std::vector<ChatPiece> pieces = chat.render(input);
  const std::vector<std::string> texts = {"<s><|user|>", "<|end|>", "<|end|><|", "other", "|><|end|><|assistant|>"};
  ASSERT_EQ(pieces.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(pieces[i].text, texts[i]);
    EXPECT_EQ(pieces[i].from_template, i % 2 == 0);
  }
  input.add_generation_prompt = false;
  EXPECT_EQ(chat.render(input).back().text, "|><|end|>");
  EXPECT_TRUE(ChatTemplate("").render(input).empty());
}

TEST(ChatTemplate, OperationsKeepMarks) {
  EXPECT_EQ(marked("[{{ x | trim }}]", user), "[{a<|end|>B}]");
  EXPECT_EQ(marked("{{ '[' + x.strip().upper() ~ ']' }}", user), "[{A<|END|>B}]");
  EXPECT_EQ(marked("{{ x.strip().replace('<|end|>', '<|end|>') }}", user), "{a}<|end|>{B}");
  EXPECT_EQ(marked("{{ x.strip().split('<|')|join('<|') }}", user), "{a}<|{end|>B}");
  EXPECT_EQ(marked("{{ ('<' ~ x.strip() ~ '>')[0:4] }}", user), "<{a<|}");
  EXPECT_EQ(marked("{{ ('<' ~ x.strip() ~ '>')[::-1] }}", user), ">{B>|dne|<a}<");
  EXPECT_EQ(marked("{{ '%s-%d' % (x.strip(), n) }}", user), "{a<|end|>B}-{7}");
  EXPECT_EQ(marked("{{ '{}-{}'.format(n, 8) }}", user), "{7}-8");
  EXPECT_EQ(marked("{{ n + 1 }}{{ 1 + 1 }}", user), "{8}2");
  EXPECT_EQ(marked("{{ [x, 'b']|tojson }}", user), R"({[" a<|end|>B ", "}b{"]})");
  EXPECT_EQ(marked("{% macro m(y) %}<{{ y }}>{% endmacro %}{{ m(x|trim) }}", user), "<{a<|end|>B}>");
}

TEST(ChatTemplate, LimitsAreKept) {
  EXPECT_EQ(refusal("{% for i in range(9) %}{% endfor %}", {.steps = 8}),
            "a template, line 1: expected at most 8 steps, got more");
  EXPECT_EQ(refusal("\n{{ 'abc' * 3 }}", {.bytes = 8}),
            "a template, line 2: expected texts of at most 8 bytes, got more");
  EXPECT_EQ(refusal("abc{{ 'abc' }}abc", {.bytes = 8}),
            "a template, line 1: expected texts of at most 8 bytes, got more");
  EXPECT_EQ(refusal("{{ ['abc' * 300, 'abc' * 300]|length }}", {.live_bytes = 1800}),
            "a template, line 1: expected values of at most 1800 bytes, got more");
  EXPECT_EQ(refusal("{% for i in range(9) %}{% set x = 'abc' * 100 %}{% endfor %}", {.written_bytes = 1000}),
            "a template, line 1: expected at most 1000 bytes of texts in all, got more");
  EXPECT_EQ(refusal("{% for i in range(9) %}{% set x = 'abc' * 300 %}{% endfor %}", {.live_bytes = 2000}), "")
      << "what is gone is free again";
}

TEST(ChatTemplate, ValuesThatHoldThemselvesAreFreed) {
  EXPECT_EQ(marked("{% set a = namespace() %}{% set a.a = [a] %}{% macro m() %}{{ m }}{% endmacro %}{% set a.m = m %}"),
            "");
  EXPECT_EQ(marked("{% for x in [1] recursive %}{% set n = namespace() %}{% set n.l = loop %}{% endfor %}"), "");
  EXPECT_EQ(marked("{% set c = cycler(1, 2) %}{{ c.next() }}"), "1");
}

TEST(ChatTemplate, ThreadsShareOne) {
  const ChatTemplate chat("{% for i in range(200) %}{{ 'a' ~ x|upper ~ ['b', x]|join('-') }}{% endfor %}");
  const ChatInput input{.messages = "[]", .variables = R"({"x": "\u00e4"})"};
  const std::size_t pieces = chat.render(input).size();
  std::vector<std::thread> threads;
  std::vector<std::size_t> found(4);
  threads.reserve(found.size());
  for (std::size_t& count : found)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) count += chat.render(input).size();
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::size_t count : found) EXPECT_EQ(count, 20 * pieces);
}

}  // namespace
}  // namespace bie::text
