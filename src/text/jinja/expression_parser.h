/// The expression half of the parser; parser.cc adds the statements.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace ts::jinja {

/// Recursive descent over the tokens, following Jinja's grammar (its precedences differ from
/// Python's in places: ** is left-associative and binds weaker than unary minus).
class ExpressionParser {
 protected:
  ExpressionParser(const std::string& source, int max_depth)
      : tokens_(tokenize(source)), max_depth_(max_depth) {}

  using Kind = Token::Kind;

  const Token& token() const { return tokens_[next_]; }
  const Token& take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  bool is_op(std::string_view op) const {
    return token().kind == Kind::kOperator && token().text == op;
  }
  bool is_name(std::string_view name) const {
    return token().kind == Kind::kName && token().text == name;
  }
  bool take_op(std::string_view op) { return is_op(op) && (take(), true); }
  bool take_name(std::string_view name) { return is_name(name) && (take(), true); }

  std::string found() const;
  [[noreturn]] void fail_expected(std::string_view expected) const {
    syntax_error(token().at, fmt::format("found {}, expected {}", found(), expected));
  }
  void expect_op(std::string_view op) {
    if (!take_op(op)) fail_expected(fmt::format("'{}'", op));
  }
  std::string expect_name(std::string_view what) {
    if (token().kind != Kind::kName) fail_expected(what);
    return take().text;
  }
  void expect_block_end() {
    if (token().kind != Kind::kBlockEnd) fail_expected("the end of the tag (%})");
    take();
  }

  Expr* expr(Expr::Kind kind, Position at) {
    Expr& e = syntax_.exprs.emplace_back();
    e.kind = kind;
    e.at = at;
    return &e;
  }
  Expr* expr(Expr::Kind kind, Position at, std::initializer_list<const Expr*> items) {
    Expr* e = expr(kind, at);
    e->items = items;
    return e;
  }
  struct Nesting {
    explicit Nesting(ExpressionParser& parser) : p(parser) {
      if (++p.depth_ > p.max_depth_)
        syntax_error(p.token().at, fmt::format("nested deeper than {} levels", p.max_depth_));
    }
    ~Nesting() { --p.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ExpressionParser& p;
  };

  bool at_tuple_end() const;
  /// One expression, or several separated by commas: a tuple.
  const Expr* tuple(bool with_condition = true);
  const Expr* expression();
  /// Weakest first. Level 2 is `not`, level 3 the comparisons.
  bool take_binary(int level, Op& op);
  const Expr* binary(int level);
  const Expr* unary(bool with_filters);
  const Expr* primary();
  const Expr* postfix(const Expr* value);
  const Expr* subscript(const Expr* value, Position at);
  void arguments(Expr* e);
  const Expr* call(const Expr* value);
  Expr* named_filter(const Expr* value);
  /// The first filter of a filter block, which has no '|' before it.
  const Expr* first_filter();
  const Expr* filters(const Expr* value, bool only_filters);
  const Expr* test(const Expr* value);

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int max_depth_;
  int depth_ = 0;
  std::vector<MacroSignature*> macros_;
  Syntax syntax_;
};

}  // namespace ts::jinja
