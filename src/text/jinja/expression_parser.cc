#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/quote_text.h"

namespace ts::jinja {

std::string ExpressionParser::found() const {
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
bool ExpressionParser::at_tuple_end() const {
  return token().kind == Kind::kOutputEnd || token().kind == Kind::kBlockEnd || is_op(")");
}
const Expr* ExpressionParser::tuple(bool with_condition) {
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

const Expr* ExpressionParser::expression() {
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

bool ExpressionParser::take_binary(int level, Op& op) {
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

const Expr* ExpressionParser::binary(int level) {
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

const Expr* ExpressionParser::unary(bool with_filters) {
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

const Expr* ExpressionParser::primary() {
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

const Expr* ExpressionParser::postfix(const Expr* value) {
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

const Expr* ExpressionParser::subscript(const Expr* value, Position at) {
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

void ExpressionParser::arguments(Expr* e) {
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
const Expr* ExpressionParser::call(const Expr* value) {
  Expr* e = expr(Expr::Kind::kCall, token().at, {value});
  arguments(e);
  return e;
}

Expr* ExpressionParser::named_filter(const Expr* value) {
  Expr* e = expr(Expr::Kind::kFilter, token().at, {value});
  e->name = expect_name("the name of a filter");
  while (take_op("."))
    e->name += "." + expect_name("the name of a filter");
  if (is_op("(")) arguments(e);
  return e;
}
const Expr* ExpressionParser::first_filter() {
  return named_filter(nullptr);
}

const Expr* ExpressionParser::filters(const Expr* value, bool only_filters) {
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

const Expr* ExpressionParser::test(const Expr* value) {
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

}  // namespace ts::jinja
