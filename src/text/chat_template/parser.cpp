// Statements.
#include "text/chat_template/parser.h"

#include <algorithm>

namespace bie::text::chat {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(tokens_of(source)) {}

  Program program() {
    Program result;
    result.body = block({});
    result.loop = symbols_.of("loop");
    result.caller = symbols_.of("caller");
    result.varargs = symbols_.of("varargs");
    result.kwargs = symbols_.of("kwargs");
    result.symbols = std::move(symbols_);
    if (!unknown_.empty()) refuse_at(unknown_[0].line, unknown_[0].what);
    return result;
  }

 private:
  using StatementPtr = std::unique_ptr<Statement>;

  static StatementPtr statement(StatementKind kind, int line) {
    return std::make_unique<Statement>(Statement{kind, line});
  }

  /// Statements up to a tag whose name is one of `ends`; the name is the next token then.
  Block block(Names ends) {
    const Deeper deeper(*this);
    Block body;
    while (!is(TokenKind::end)) {
      const int line = current().line;
      if (is(TokenKind::data)) {
        auto text = statement(StatementKind::text, line);
        const auto shared = std::make_shared<String>(MarkedText(take().text, true));
        text->text = Value::object(Kind::string, shared);
        body.push_back(std::move(text));
      } else if (is(TokenKind::variable_begin)) {
        take();
        auto output = statement(StatementKind::output, line);
        output->expressions.push_back(tuple());
        expect(TokenKind::variable_end, "\"}}\"");
        body.push_back(std::move(output));
      } else {
        expect(TokenKind::block_begin, "a tag");
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return is_name(end); })) return body;
        body.push_back(tag());
        expect(TokenKind::block_end, "\"%}\"");
      }
    }
    if (ends.size() != 0) fail_expected(formats::joined("the tag ", formats::in_quotes(*(ends.end() - 1))));
    return body;
  }

  /// The rest of a tag and its statements.
  Block body(Names ends) {
    skip_sign(":");
    expect(TokenKind::block_end, "\"%}\"");
    return block(ends);
  }

  Block whole_body(std::string_view end) {
    Block all = body({end});
    take();
    return all;
  }

  /// A body that `break` does not leave.
  Block function_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Block all = scope_body(end);
    loops_ = loops;
    return all;
  }

  /// A body with a scope of its own.
  Block scope_body(std::string_view end) {
    const bool is_optional = std::exchange(is_optional_, false);
    Block all = whole_body(end);
    is_optional_ = is_optional;
    return all;
  }

  StatementPtr tag() {
    if (!is(TokenKind::name)) fail_expected("the name of a tag");
    const Token name = take();
    const std::string& n = name.text;
    if (n == "if") return condition(name.line);
    if (n == "for") return loop(name.line);
    if (n == "set") return set(name.line);
    if (n == "macro") return macro(name.line);
    if (n == "call") return call_block(name.line);
    if (n == "filter") return filter_block(name.line);
    if (n == "with") return with(name.line);
    if (n == "print") return print(name.line);
    if (n == "generation") return generation(name.line);
    if (n == "break" || n == "continue") return leave(name);
    for (const std::string_view file : {"include", "import", "extends", "from", "block"})
      if (n == file)
        refuse_at(name.line, formats::joined("expected a template that is whole, got the tag \"", n, "\""));
    refuse_at(name.line, formats::joined("expected a tag that is read, got ", formats::in_quotes(n)));
  }

  StatementPtr condition(int line) {
    auto result = statement(StatementKind::condition, line);
    const bool is_optional = std::exchange(is_optional_, true);
    for (bool goes_on = true; goes_on;) {
      result->expressions.push_back(tuple(/*with_condition=*/false));
      result->blocks.push_back(body({"elif", "else", "endif"}));
      const std::string end = take().text;
      goes_on = end == "elif";
      if (end == "else") result->blocks.push_back(whole_body("endif"));
    }
    is_optional_ = is_optional;
    return result;
  }

  StatementPtr loop(int line) {
    auto result = statement(StatementKind::loop, line);
    result->targets.push_back(target("in", /*with_attributes=*/false));
    expect_name("in");
    result->expressions.push_back(tuple(/*with_condition=*/false, "recursive"));
    const bool is_optional = std::exchange(is_optional_, false);
    result->expressions.push_back(skip_name("if") ? expression() : nullptr);
    result->is_recursive = skip_name("recursive");
    ++loops_;
    ++all_loops_;
    if (sets_loop(result->targets[0])) refuse_at(line, "expected another name than loop");
    result->blocks.push_back(body({"endfor", "else"}));
    --loops_;
    if (take().text == "else") result->blocks.push_back(whole_body("endfor"));
    --all_loops_;
    is_optional_ = is_optional;
    return result;
  }

  bool sets_loop(const Target& target) {
    return target.symbol == symbols_.of("loop") ||
           std::any_of(target.parts.begin(), target.parts.end(), [&](const Target& part) { return sets_loop(part); });
  }

  StatementPtr leave(const Token& name) {
    if (loops_ == 0) refuse_at(name.line, formats::joined("expected \"", name.text, "\" in a loop, got it outside"));
    return statement(name.text == "break" ? StatementKind::leave : StatementKind::next, name.line);
  }

  StatementPtr set(int line) {
    auto result = statement(StatementKind::set, line);
    result->targets.push_back(target({}, /*with_attributes=*/true));
    if (all_loops_ > 0 && sets_loop(result->targets[0])) refuse_at(line, "expected another name than loop");
    if (skip_sign("=")) {
      result->expressions.push_back(tuple());
      return result;
    }
    result->kind = StatementKind::set_block;
    const bool is_optional = std::exchange(is_optional_, false);
    result->expressions.push_back(filters(nullptr));
    is_optional_ = is_optional;
    result->blocks.push_back(scope_body("endset"));
    return result;
  }

  /// Names up to `end`, a tuple of them, and attributes of namespaces where these are allowed.
  Target target(std::string_view end, bool with_attributes) {
    std::vector<ExpressionPtr> parts;
    bool is_tuple = false;
    for (;;) {
      if (!parts.empty()) expect_sign(",");
      if (is_tuple_end(end)) break;
      parts.push_back(primary(with_attributes));
      if (!is_sign(",")) break;
      is_tuple = true;
    }
    if (parts.empty()) fail_expected("a name");
    if (!is_tuple) return target_of(*parts[0]);
    Target result;
    result.is_tuple = true;
    for (const auto& part : parts) result.parts.push_back(target_of(*part));
    return result;
  }

  static Target target_of(const Expression& expression) {
    Target result;
    result.symbol = expression.symbol;
    if (expression.kind == ExpressionKind::attribute_name) result.attribute = expression.text;
    result.is_tuple = expression.kind == ExpressionKind::tuple;
    if (expression.symbol < 0 && !result.is_tuple) refuse_at(expression.line, "expected a name that can be set");
    for (const auto& part : expression.parts) result.parts.push_back(target_of(*part));
    return result;
  }

  void signature(Macro& macro) {
    expect_sign("(");
    while (!is_sign(")")) {
      if (!macro.parameters.empty()) expect_sign(",");
      const std::string name = expect_any_name();
      if (macro.parameters.size() >= 255) fail("expected at most 255 parameters, got more");
      for (const auto& [symbol, other] : macro.parameters)
        if (other == name) fail(formats::joined("expected a parameter once, got ", formats::in_quotes(name), " twice"));
      if (skip_sign("="))
        macro.defaults.push_back(expression());
      else if (!macro.defaults.empty())
        fail("expected a default behind one, got none");
      macro.parameters.emplace_back(symbols_.of(name), name);
    }
    take();
  }

  void macro_body(Macro& macro, std::string_view end) {
    mentions_.emplace_back();
    macro.body = function_body(end);
    const Mentions mentions = mentions_.back();
    mentions_.pop_back();
    const auto has = [&](std::string_view name) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [&](const auto& p) { return p.second == name; });
    };
    const std::size_t required = macro.parameters.size() - macro.defaults.size();
    for (std::size_t i = 0; i < required; ++i)
      if (mentions.caller && macro.parameters[i].second == "caller") fail("expected a default of \"caller\", got none");
    macro.uses_caller = mentions.caller && !has("caller");
    macro.uses_kwargs = mentions.kwargs && !has("kwargs");
    macro.uses_varargs = mentions.varargs && !has("varargs");
  }

  StatementPtr macro(int line) {
    auto result = statement(StatementKind::macro, line);
    auto macro = std::make_unique<Macro>();
    macro->name = expect_any_name();
    result->symbol = symbols_.of(macro->name);
    signature(*macro);
    macro_body(*macro, "endmacro");
    result->macro = std::move(macro);
    return result;
  }

  StatementPtr call_block(int line) {
    auto result = statement(StatementKind::call_block, line);
    auto macro = std::make_unique<Macro>();
    macro->name = "caller";
    if (is_sign("(")) signature(*macro);
    result->expressions.push_back(expression());
    if (result->expressions[0]->kind != ExpressionKind::call) refuse_at(line, "expected a call");
    macro_body(*macro, "endcall");
    result->macro = std::move(macro);
    return result;
  }

  StatementPtr filter_block(int line) {
    auto result = statement(StatementKind::filter_block, line);
    const bool is_optional = std::exchange(is_optional_, false);
    result->expressions.push_back(filters(nullptr, /*starts_inside=*/true));
    is_optional_ = is_optional;
    result->blocks.push_back(scope_body("endfilter"));
    return result;
  }

  StatementPtr with(int line) {
    auto result = statement(StatementKind::with, line);
    while (!is(TokenKind::block_end) && !is_sign(":")) {
      if (!result->targets.empty()) expect_sign(",");
      result->targets.push_back(target({}, /*with_attributes=*/false));
      expect_sign("=");
      result->expressions.push_back(expression());
    }
    result->blocks.push_back(scope_body("endwith"));
    return result;
  }

  StatementPtr print(int line) {
    auto result = statement(StatementKind::output, line);
    while (!is(TokenKind::block_end)) {
      if (!result->expressions.empty()) expect_sign(",");
      result->expressions.push_back(expression());
    }
    return result;
  }

  StatementPtr generation(int line) {
    auto result = statement(StatementKind::scope, line);
    result->blocks.push_back(function_body("endgeneration"));
    return result;
  }

  int loops_ = 0;      // that `break` would leave
  int all_loops_ = 0;  // that are open
};

}  // namespace

Program parse(std::string_view source) { return Parser(source).program(); }

}  // namespace bie::text::chat
