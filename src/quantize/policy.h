/// Which weight type each matrix of a model gets: rules by name pattern, from a file or built in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/ternary_options.h"

namespace ts {

/// What to do with the matrices whose names match. Unset fields follow the command's options.
struct PolicyRule {
  std::string match;  ///< a tensor name with * (any characters) and ? (one character)
  /// A codec name, or "main" (the type asked for), "keep" (as in the source), "auto" (what suits
  /// embeddings and output matrices: see docs/quantize.md).
  std::string scheme = "main";
  std::optional<int> planes;
  std::optional<bool> rotate;
  std::optional<TernaryMethod> method;
  std::optional<Sparsity> sparsity;
};

struct Policy {
  std::string name;  ///< of the built-in policy, or the file
  std::vector<PolicyRule> rules;

  /// The first rule that matches, or null.
  const PolicyRule* find(std::string_view tensor) const noexcept;
};

/// Layers get the type asked for, embedding and output matrix what suits them.
Policy default_policy();
/// `name_or_file`: "all", "ffn-only", "keep-down", "attention-f16", or a JSON file of the form
///   {"rules": [{"match": "blk.*.ffn_down.weight", "scheme": "pq2_0", "planes": 2, "rotate": true,
///               "method": "gptq", "sparsity": "none"}, ...]}
/// Errors: InvalidArgument (no such policy), FormatError (file, rule and key are named), IoError.
Policy read_policy(const std::string& name_or_file);

}  // namespace ts
