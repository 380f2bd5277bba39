/// The syntax tree of a template. Nodes live in one arena, so trees of any shape are freed without
/// recursion.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace ts::jinja {

struct Position {
  int line = 1, column = 1;
};

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kConcat,
  kAnd,
  kOr,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
};

struct Expr {
  enum class Kind : uint8_t {
    kNone,
    kBool,         // integer != 0
    kInt,          // integer
    kFloat,        // number
    kString,       // name holds the bytes
    kName,         // name
    kList,         // items
    kTuple,        // items
    kDict,         // items: key, value, key, value, ...
    kChain,        // items joined by ops (one fewer), left to right; ops of one precedence
    kCompare,      // items joined by comparison ops, Python's chaining
    kNot,          // items[0]
    kNegate,       // items[0]
    kPlus,         // items[0]
    kConditional,  // items: then, condition, else (may be null)
    kAttribute,    // items[0] . name
    kSubscript,    // items[0] [ items[1] ]
    kSlice,        // items[0] [ items[1] : items[2] : items[3] ], each may be null
    kCall,         // items[0] ( arguments )
    kFilter,       // items[0] | name ( arguments ); items[0] null = text of a filter block
    kTest,         // items[0] is name ( arguments )
  };
  Kind kind;
  Position at;
  std::string name;
  int64_t integer = 0;
  double number = 0;
  std::vector<const Expr*> items;
  std::vector<Op> ops;
  // Call, filter and test arguments.
  std::vector<const Expr*> arguments;
  std::vector<std::pair<std::string, const Expr*>> named_arguments;
  const Expr* star_arguments = nullptr;
  const Expr* star_named_arguments = nullptr;
};

struct Stmt;
using Block = std::vector<const Stmt*>;

struct MacroSignature {
  std::vector<std::string> names;
  std::vector<const Expr*> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  enum class Kind : uint8_t {
    kText,       // name holds the bytes
    kOutput,     // value
    kFor,        // target in value [if condition] body [else orelse]
    kIf,         // branches, orelse
    kSet,        // target = value
    kSetBlock,   // target = body through `value` (filters, may be null)
    kMacro,      // name, signature, body
    kCallBlock,  // value is the call; signature, body are the caller
    kFilter,     // value = filters over the body
    kWith,       // assignments, body
    kScope,      // body (generation tag)
    kBreak,
    kContinue,
  };
  Kind kind;
  Position at;
  std::string name;
  const Expr* value = nullptr;
  const Expr* target = nullptr;  // kName, kTuple of names, or kAttribute of a name (namespace)
  const Expr* condition = nullptr;
  Block body, orelse;
  std::vector<std::pair<const Expr*, Block>> branches;
  std::vector<std::pair<const Expr*, const Expr*>> assignments;
  MacroSignature signature;
};

struct Syntax {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  Block body;
};

/// Parses a template. Throws FormatError with line and column.
Syntax parse_template(const std::string& source, int max_depth);

}  // namespace ts::jinja
