// Statements of templates.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/expression_parser.h"

namespace ts::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  Parser(const std::string& source, int max_depth) : ExpressionParser(source, max_depth) {}

  Syntax run() {
    syntax_.body = block({}, {});
    return std::move(syntax_);
  }

 private:
  Stmt* stmt(Stmt::Kind kind, Position at) {
    Stmt& s = syntax_.stmts.emplace_back();
    s.kind = kind;
    s.at = at;
    return &s;
  }

  /// Statements up to a tag whose name is in `ends`, of which the name is the next token. An empty
  /// list: up to the end of the template. `opened`: the tag that starts the block.
  Block block(std::initializer_list<std::string_view> ends, Position opened) {
    const Nesting nesting(*this);
    Block result;
    for (;;) {
      const Token& t = token();
      switch (t.kind) {
        case Kind::kText: {
          Stmt* s = stmt(Stmt::Kind::kText, t.at);
          s->name = take().text;
          result.push_back(s);
          break;
        }
        case Kind::kOutputBegin: {
          Stmt* s = stmt(Stmt::Kind::kOutput, t.at);
          take();
          s->value = tuple();
          if (token().kind != Kind::kOutputEnd) fail_expected("the end of the tag (}})");
          take();
          result.push_back(s);
          break;
        }
        case Kind::kBlockBegin: {
          take();
          if (token().kind != Kind::kName) fail_expected("the name of a tag");
          if (std::find(ends.begin(), ends.end(), token().text) != ends.end()) return result;
          if (const Stmt* s = statement(t.at)) result.push_back(s);
          break;
        }
        default:
          if (ends.size() > 0)
            syntax_error(opened, fmt::format("the block is not closed; expected {{% {} %}}",
                                             *(ends.end() - 1)));
          return result;
      }
    }
  }
  /// A block and the rest of its closing tag.
  Block closed_block(std::string_view end, Position opened) {
    expect_block_end();
    Block result = block({end}, opened);
    take();
    expect_block_end();
    return result;
  }

  const Stmt* statement(Position at) {
    const std::string name = take().text;
    if (name == "for") return for_statement(at);
    if (name == "if") return if_statement(at);
    if (name == "set") return set_statement(at);
    if (name == "macro") return macro_statement(at);
    if (name == "call") return call_statement(at);
    if (name == "filter") {
      Stmt* s = stmt(Stmt::Kind::kFilter, at);
      s->value = filters(first_filter(), true);
      s->body = closed_block("endfilter", at);
      return s;
    }
    if (name == "with") return with_statement(at);
    if (name == "generation") {
      // Marks the assistant's tokens for training; what it holds is rendered as it is.
      Stmt* s = stmt(Stmt::Kind::kScope, at);
      s->body = closed_block("endgeneration", at);
      return s;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) syntax_error(at, fmt::format("'{}' outside of a loop", name));
      expect_block_end();
      return stmt(name == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue, at);
    }
    for (const std::string_view file_tag : {"include", "import", "from", "extends", "block"})
      if (name == file_tag)
        syntax_error(at, fmt::format("the tag '{}' is not supported: a chat template stands alone "
                                     "and reads no other files",
                                     name));
    syntax_error(at, fmt::format("unknown tag {}", quote_text(name, 40)));
  }

  const Stmt* for_statement(Position at) {
    Stmt* s = stmt(Stmt::Kind::kFor, at);
    s->target = target(false);
    if (!take_name("in")) fail_expected("'in'");
    s->value = tuple(false);
    if (take_name("if")) s->condition = expression();
    if (is_name("recursive"))
      syntax_error(token().at, "recursive loops are not supported; use a macro");
    expect_block_end();
    ++loops_;
    s->body = block({"else", "endfor"}, at);
    --loops_;
    if (take_name("else")) {
      expect_block_end();
      s->orelse = block({"endfor"}, at);
    }
    take();
    expect_block_end();
    return s;
  }

  const Stmt* if_statement(Position at) {
    Stmt* s = stmt(Stmt::Kind::kIf, at);
    for (;;) {
      const Expr* condition = tuple(false);
      expect_block_end();
      Block body = block({"elif", "else", "endif"}, at);
      s->branches.emplace_back(condition, std::move(body));
      if (take_name("elif")) continue;
      if (take_name("else")) {
        expect_block_end();
        s->orelse = block({"endif"}, at);
      }
      take();
      expect_block_end();
      return s;
    }
  }

  const Stmt* set_statement(Position at) {
    Stmt* s = stmt(Stmt::Kind::kSet, at);
    s->target = target(true);
    if (take_op("=")) {
      s->value = tuple();
      expect_block_end();
      return s;
    }
    s->kind = Stmt::Kind::kSetBlock;
    if (is_op("|")) s->value = filters(nullptr, true);
    s->body = closed_block("endset", at);
    return s;
  }

  void signature(MacroSignature& m) {
    expect_op("(");
    while (!take_op(")")) {
      if (!m.names.empty()) expect_op(",");
      m.names.push_back(expect_name("the name of a parameter"));
      if (std::count(m.names.begin(), m.names.end(), m.names.back()) > 1)
        syntax_error(token().at, fmt::format("two parameters named '{}'", m.names.back()));
      if (take_op("="))
        m.defaults.push_back(expression());
      else if (!m.defaults.empty())
        syntax_error(token().at, "a parameter without default follows one with default");
    }
  }
  Block macro_body(MacroSignature& m, std::string_view end, Position opened) {
    macros_.push_back(&m);
    const int loops = std::exchange(loops_, 0);
    Block body = closed_block(end, opened);
    loops_ = loops;
    macros_.pop_back();
    return body;
  }

  const Stmt* macro_statement(Position at) {
    Stmt* s = stmt(Stmt::Kind::kMacro, at);
    s->name = expect_name("the name of the macro");
    signature(s->signature);
    s->body = macro_body(s->signature, "endmacro", at);
    return s;
  }

  const Stmt* call_statement(Position at) {
    Stmt* s = stmt(Stmt::Kind::kCallBlock, at);
    if (is_op("(")) signature(s->signature);
    s->value = expression();
    if (s->value->kind != Expr::Kind::kCall) syntax_error(at, "expected a call after 'call'");
    s->body = macro_body(s->signature, "endcall", at);
    return s;
  }

  const Stmt* with_statement(Position at) {
    Stmt* s = stmt(Stmt::Kind::kWith, at);
    while (token().kind != Kind::kBlockEnd) {
      if (!s->assignments.empty()) expect_op(",");
      const Expr* name = target(false);
      expect_op("=");
      s->assignments.emplace_back(name, expression());
    }
    s->body = closed_block("endwith", at);
    return s;
  }

  /// name | name, name, ... | (name, name) | namespace.attribute
  const Expr* target(bool with_namespace) {
    const Position at = token().at;
    if (with_namespace && token().kind == Kind::kName && tokens_[next_ + 1].text == "." &&
        tokens_[next_ + 1].kind == Kind::kOperator) {
      Expr* base = expr(Expr::Kind::kName, at);
      base->name = take().text;
      take();
      Expr* e = expr(Expr::Kind::kAttribute, at, {base});
      e->name = expect_name("the name of an attribute");
      return e;
    }
    const Expr* first = target_item();
    if (!is_op(",")) return first;
    Expr* e = expr(Expr::Kind::kTuple, at, {first});
    while (take_op(",")) {
      if (is_name("in") || is_op("=") || is_op(")")) break;
      e->items.push_back(target_item());
    }
    return e;
  }
  const Expr* target_item() {
    const Nesting nesting(*this);
    if (take_op("(")) {
      const Expr* e = target(false);
      expect_op(")");
      return e;
    }
    Expr* e = expr(Expr::Kind::kName, token().at);
    e->name = expect_name("the name of a variable");
    static constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none",
                                                                   "True", "False", "None"};
    if (std::find(kConstants.begin(), kConstants.end(), e->name) != kConstants.end() ||
        e->name == "loop")
      syntax_error(e->at, fmt::format("cannot assign to '{}'", e->name));
    return e;
  }

  int loops_ = 0;  // open loops of the macro being parsed
};

}  // namespace

Syntax parse_template(const std::string& source, int max_depth) {
  return Parser(source, max_depth).run();
}

}  // namespace ts::jinja
