// What the parsers of expressions and of statements share: tokens, names and depth.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template/lines.h"
#include "text/chat_template/syntax.h"
#include "text/chat_template/token.h"

namespace bie::text::chat {

/// Recursive descent over the tokens; expressions as jinja2's own parser reads them.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  /// Names whose mention changes what a macro takes.
  struct Mentions {
    bool caller = false, kwargs = false, varargs = false;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& behind() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(TokenKind::sign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(TokenKind::name) && current().text == name; }
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect(TokenKind kind, std::string_view what);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  [[noreturn]] void fail(const std::string& what) const { refuse_at(current().line, what); }
  [[noreturn]] void fail_expected(std::string_view what) const;

  ExpressionPtr expression(bool with_condition = true);
  /// Expressions with commas between them are a tuple, one alone is not. `end` is a name that ends it.
  ExpressionPtr tuple(bool with_condition = true, std::string_view end = {}, bool in_parentheses = false);
  ExpressionPtr primary(bool with_attribute_names = false);
  /// Filters behind a value; of a block, whose value is not written, where that is null.
  ExpressionPtr filters(ExpressionPtr value, bool starts_inside = false);
  void call_arguments(CallArguments& arguments);

  bool is_tuple_end(std::string_view end) const;
  static std::unique_ptr<Expression> node(ExpressionKind kind, int line) {
    return std::make_unique<Expression>(Expression{kind, line});
  }
  /// Adds a part, and refuses a tree that is too deep.
  void add(Expression& parent, ExpressionPtr part) const;
  ExpressionPtr done(std::unique_ptr<Expression> expression) const;

  /// One level of recursion.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > deepest) parser_.fail(formats::joined("expected at most ", deepest, " levels, got more"));
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --parser_.depth_; }

   private:
    static constexpr int deepest = 250;
    ExpressionParser& parser_;
  };

  /// A filter or test that nobody knows. jinja2 refuses it at once unless a condition may keep it from being applied.
  struct Unknown {
    int line;
    std::string what;
  };

  Symbols symbols_;
  std::vector<Unknown> unknown_;
  bool is_optional_ = false;        // whether a condition decides if what is read is evaluated
  std::vector<Mentions> mentions_;  // of the macros that are open
  int depth_ = 0;

 private:
  ExpressionPtr condition();
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr binary(ExpressionPtr left, ExpressionPtr right, const Token& sign) const;
  ExpressionPtr constant(Value value, int line) const;
  ExpressionPtr strings();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr behind_filters(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  std::unique_ptr<Expression> subscribed(ExpressionPtr value);
  ExpressionPtr slice_part();
  ExpressionPtr call(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  void mention(const std::string& name);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace bie::text::chat
