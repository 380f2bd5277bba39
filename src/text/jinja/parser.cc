// Recursive descent over the tokens, following Jinja's grammar (its precedences differ from
// Python's in places: ** is left-associative and binds weaker than unary minus).
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace ts::jinja {
namespace {

class Parser {
 public:
  Parser(const std::string& source, int max_depth)
      : tokens_(tokenize(source)), max_depth_(max_depth) {}

  Syntax run() {
    syntax_.body = block({}, {});
    return std::move(syntax_);
  }

 private:
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

  std::string found() const {
    switch (token().kind) {
      case Kind::kEnd:
        return "the end of the template";
      case Kind::kBlockEnd:
        return "the end of the tag (%})";
      case Kind::kOutputEnd:
        return "the end of the tag (}})";
      case Kind::kText:
      case Kind::kOutputBegin:
      case Kind::kBlockBegin:
        return "text";
      case Kind::kInteger:
      case Kind::kFloat:
        return "a number";
      case Kind::kString:
        return "the string " + quote_text(token().text, 40);
      default:
        return quote_text(token().text, 40);
    }
  }
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
  Stmt* stmt(Stmt::Kind kind, Position at) {
    Stmt& s = syntax_.stmts.emplace_back();
    s.kind = kind;
    s.at = at;
    return &s;
  }

  struct Nesting {
    explicit Nesting(Parser& parser) : p(parser) {
      if (++p.depth_ > p.max_depth_)
        syntax_error(p.token().at, fmt::format("nested deeper than {} levels", p.max_depth_));
    }
    ~Nesting() { --p.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    Parser& p;
  };

  // Statements ------------------------------------------------------------------------------

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

  // Expressions -----------------------------------------------------------------------------

  bool at_tuple_end() const {
    return token().kind == Kind::kOutputEnd || token().kind == Kind::kBlockEnd || is_op(")");
  }
  /// One expression, or several separated by commas: a tuple.
  const Expr* tuple(bool with_condition = true) {
    const Position at = token().at;
    const auto item = [&] { return with_condition ? expression() : binary(0); };
    const Expr* first = item();
    if (!is_op(",")) return first;
    Expr* e = expr(Expr::Kind::kTuple, at, {first});
    while (take_op(",")) {
      if (at_tuple_end()) break;
      e->items.push_back(item());
    }
    return e;
  }

  const Expr* expression() {
    const Nesting nesting(*this);
    const Position at = token().at;
    const Expr* value = binary(0);
    while (take_name("if")) {
      const Expr* condition = binary(0);
      const Expr* orelse = take_name("else") ? expression() : nullptr;
      value = expr(Expr::Kind::kConditional, at, {value, condition, orelse});
    }
    return value;
  }

  /// Weakest first. Level 2 is `not`, level 3 the comparisons.
  bool take_binary(int level, Op& op) {
    const auto take_if = [&](std::string_view text, Op value) {
      const bool hit =
          (text == "or" || text == "and" || text == "in") ? take_name(text) : take_op(text);
      if (hit) op = value;
      return hit;
    };
    switch (level) {
      case 0:
        return take_if("or", Op::kOr);
      case 1:
        return take_if("and", Op::kAnd);
      case 3:
        if (is_name("not") && tokens_[next_ + 1].kind == Kind::kName &&
            tokens_[next_ + 1].text == "in") {
          take();
          take();
          op = Op::kNotIn;
          return true;
        }
        return take_if("==", Op::kEq) || take_if("!=", Op::kNe) || take_if("<", Op::kLt) ||
               take_if("<=", Op::kLe) || take_if(">", Op::kGt) || take_if(">=", Op::kGe) ||
               take_if("in", Op::kIn);
      case 4:
        return take_if("+", Op::kAdd) || take_if("-", Op::kSub);
      case 5:
        return take_if("~", Op::kConcat);
      case 6:
        return take_if("*", Op::kMul) || take_if("//", Op::kFloorDiv) || take_if("/", Op::kDiv) ||
               take_if("%", Op::kMod);
      case 7:
        return take_if("**", Op::kPow);
      default:
        return false;
    }
  }

  const Expr* binary(int level) {
    if (level == 2) {
      if (!is_name("not")) return binary(3);
      const Nesting nesting(*this);
      const Position at = take().at;
      return expr(Expr::Kind::kNot, at, {binary(2)});
    }
    if (level == 8) return unary(true);
    const Position at = token().at;
    const Expr* first = binary(level + 1);
    Expr* chain = nullptr;
    Op op{};
    while (take_binary(level, op)) {
      if (!chain) chain = expr(level == 3 ? Expr::Kind::kCompare : Expr::Kind::kChain, at, {first});
      chain->ops.push_back(op);
      chain->items.push_back(binary(level + 1));
    }
    return chain ? chain : first;
  }

  const Expr* unary(bool with_filters) {
    const Nesting nesting(*this);
    const Position at = token().at;
    const Expr* value = nullptr;
    if (take_op("-"))
      value = expr(Expr::Kind::kNegate, at, {unary(false)});
    else if (take_op("+"))
      value = expr(Expr::Kind::kPlus, at, {unary(false)});
    else
      value = primary();
    value = postfix(value);
    return with_filters ? filters(value, false) : value;
  }

  const Expr* primary() {
    const Token& t = take();
    switch (t.kind) {
      case Kind::kName: {
        if (t.text == "true" || t.text == "True" || t.text == "false" || t.text == "False") {
          Expr* e = expr(Expr::Kind::kBool, t.at);
          e->integer = t.text == "true" || t.text == "True";
          return e;
        }
        if (t.text == "none" || t.text == "None") return expr(Expr::Kind::kNone, t.at);
        Expr* e = expr(Expr::Kind::kName, t.at);
        e->name = t.text;
        if (!macros_.empty()) {
          MacroSignature& m = *macros_.back();
          m.uses_varargs = m.uses_varargs || t.text == "varargs";
          m.uses_kwargs = m.uses_kwargs || t.text == "kwargs";
          m.uses_caller = m.uses_caller || t.text == "caller";
        }
        return e;
      }
      case Kind::kInteger: {
        Expr* e = expr(Expr::Kind::kInt, t.at);
        e->integer = t.integer;
        return e;
      }
      case Kind::kFloat: {
        Expr* e = expr(Expr::Kind::kFloat, t.at);
        e->number = t.number;
        return e;
      }
      case Kind::kString: {
        Expr* e = expr(Expr::Kind::kString, t.at);
        e->name = t.text;
        while (token().kind == Kind::kString)
          e->name += take().text;
        return e;
      }
      case Kind::kOperator:
        if (t.text == "(") {
          if (take_op(")")) return expr(Expr::Kind::kTuple, t.at);
          const Expr* e = tuple();
          expect_op(")");
          return e;
        }
        if (t.text == "[") {
          Expr* e = expr(Expr::Kind::kList, t.at);
          while (!take_op("]")) {
            if (!e->items.empty()) expect_op(",");
            if (take_op("]")) break;
            e->items.push_back(expression());
          }
          return e;
        }
        if (t.text == "{") {
          Expr* e = expr(Expr::Kind::kDict, t.at);
          while (!take_op("}")) {
            if (!e->items.empty()) expect_op(",");
            if (take_op("}")) break;
            e->items.push_back(expression());
            expect_op(":");
            e->items.push_back(expression());
          }
          return e;
        }
        break;
      default:
        break;
    }
    if (next_ > 0 && &t != &token()) --next_;
    fail_expected("an expression");
  }

  const Expr* postfix(const Expr* value) {
    for (;;) {
      const Position at = token().at;
      if (take_op(".")) {
        if (token().kind == Kind::kInteger) {
          Expr* index = expr(Expr::Kind::kInt, token().at);
          index->integer = take().integer;
          value = expr(Expr::Kind::kSubscript, at, {value, index});
        } else {
          Expr* e = expr(Expr::Kind::kAttribute, at, {value});
          e->name = expect_name("the name of an attribute");
          value = e;
        }
      } else if (take_op("[")) {
        value = subscript(value, at);
        expect_op("]");
      } else if (is_op("(")) {
        value = call(value);
      } else {
        return value;
      }
    }
  }

  const Expr* subscript(const Expr* value, Position at) {
    const auto part = [&]() -> const Expr* {
      return is_op(":") || is_op("]") || is_op(",") ? nullptr : expression();
    };
    const Expr* first = part();
    if (!is_op(":")) {
      if (!first) fail_expected("an index");
      if (is_op(",")) syntax_error(token().at, "an index of several parts is not supported");
      return expr(Expr::Kind::kSubscript, at, {value, first});
    }
    take();
    const Expr* stop = part();
    const Expr* step = take_op(":") ? part() : nullptr;
    return expr(Expr::Kind::kSlice, at, {value, first, stop, step});
  }

  void arguments(Expr* e) {
    expect_op("(");
    bool first = true;
    while (!take_op(")")) {
      if (!first) expect_op(",");
      if (take_op(")")) return;
      first = false;
      if (take_op("*")) {
        if (e->star_arguments) syntax_error(token().at, "two * arguments");
        e->star_arguments = expression();
      } else if (take_op("**")) {
        if (e->star_named_arguments) syntax_error(token().at, "two ** arguments");
        e->star_named_arguments = expression();
      } else if (token().kind == Kind::kName && tokens_[next_ + 1].kind == Kind::kOperator &&
                 tokens_[next_ + 1].text == "=") {
        std::string name = take().text;
        take();
        e->named_arguments.emplace_back(std::move(name), expression());
      } else {
        if (!e->named_arguments.empty() || e->star_named_arguments)
          syntax_error(token().at, "a positional argument follows a named one");
        e->arguments.push_back(expression());
      }
    }
  }
  const Expr* call(const Expr* value) {
    Expr* e = expr(Expr::Kind::kCall, token().at, {value});
    arguments(e);
    return e;
  }

  Expr* named_filter(const Expr* value) {
    Expr* e = expr(Expr::Kind::kFilter, token().at, {value});
    e->name = expect_name("the name of a filter");
    while (take_op("."))
      e->name += "." + expect_name("the name of a filter");
    if (is_op("(")) arguments(e);
    return e;
  }
  /// The first filter of a filter block, which has no '|' before it.
  const Expr* first_filter() { return named_filter(nullptr); }

  const Expr* filters(const Expr* value, bool only_filters) {
    for (;;) {
      if (take_op("|")) {
        value = named_filter(value);
      } else if (!only_filters && is_name("is")) {
        value = test(value);
      } else if (!only_filters && is_op("(")) {
        value = call(value);
      } else {
        return value;
      }
    }
  }

  const Expr* test(const Expr* value) {
    const Position at = take().at;
    const bool negated = take_name("not");
    Expr* e = expr(Expr::Kind::kTest, token().at, {value});
    e->name = expect_name("the name of a test");
    static constexpr std::array<std::string_view, 7> kEnds = {"else", "or",  "and",      "if",
                                                              "in",   "not", "recursive"};
    const Token& t = token();
    if (is_op("(")) {
      arguments(e);
    } else if (is_name("is")) {
      syntax_error(t.at, "tests cannot be chained with 'is'");
    } else if (t.kind == Kind::kString || t.kind == Kind::kInteger || t.kind == Kind::kFloat ||
               is_op("[") || is_op("{") ||
               (t.kind == Kind::kName &&
                std::find(kEnds.begin(), kEnds.end(), t.text) == kEnds.end())) {
      e->arguments.push_back(postfix(primary()));
    }
    return negated ? expr(Expr::Kind::kNot, at, {e}) : e;
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int max_depth_;
  int depth_ = 0;
  int loops_ = 0;
  std::vector<MacroSignature*> macros_;
  Syntax syntax_;
};

}  // namespace

Syntax parse_template(const std::string& source, int max_depth) {
  return Parser(source, max_depth).run();
}

}  // namespace ts::jinja
