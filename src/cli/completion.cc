#include "cli/completion.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts::cli {
namespace {

struct OptionWords {
  std::vector<std::string> names;  ///< with dashes
  std::string description;
  bool takes_value = false;
  bool takes_file = false;
  std::string choices;  ///< separated by blanks; empty = free
};

struct CommandWords {
  std::string name;
  std::string description;
  std::vector<OptionWords> options;
};

std::string first_sentence(const std::string& text) {
  const size_t end = text.find_first_of(".:;(\n");
  return text.substr(0, end == std::string::npos ? text.size() : end);
}

std::vector<CommandWords> words_of(const Program& program) {
  std::vector<CommandWords> out;
  for (const auto& command : program.commands) {
    OutputOptions output;
    const auto parser = make_parser(program.name, *command, output);
    CommandWords words{command->name(), first_sentence(command->summary()), {}};
    for (const OptionDescription& option : parser->options()) {
      if (option.positional()) continue;
      OptionWords w;
      w.names = option.names;
      w.description = first_sentence(option.help);
      w.takes_value = !option.type.empty();
      w.takes_file = option.type.starts_with("FILE");
      if (option.type.find('|') != std::string::npos) {
        w.choices = option.type;
        std::replace(w.choices.begin(), w.choices.end(), '|', ' ');
      }
      words.options.push_back(std::move(w));
    }
    out.push_back(std::move(words));
  }
  return out;
}

/// First words of the commands, each once, and per first word the second ones.
std::vector<std::pair<std::string, std::string>> tree_of(
    const std::vector<CommandWords>& commands) {
  std::vector<std::pair<std::string, std::string>> tree;
  for (const CommandWords& command : commands) {
    const size_t blank = command.name.find(' ');
    const std::string first = command.name.substr(0, blank);
    const std::string second = blank == std::string::npos ? "" : command.name.substr(blank + 1);
    if (tree.empty() || tree.back().first != first) {
      tree.emplace_back(first, second);
    } else {
      tree.back().second += " " + second;
    }
  }
  return tree;
}

std::string identifier(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == ' '; }, '_');
  return name;
}

std::string bash_script(const std::string& program, const std::vector<CommandWords>& commands) {
  std::string firsts, groups, cases;
  for (const auto& [first, seconds] : tree_of(commands)) {
    firsts += " " + first;
    if (!seconds.empty()) groups += fmt::format("    {}) kinds=\"{}\" ;;\n", first, seconds);
  }
  for (const CommandWords& command : commands) {
    std::string options, values;
    for (const OptionWords& option : command.options) {
      std::string alternatives;
      for (const std::string& name : option.names) {
        options += " " + name;
        alternatives += (alternatives.empty() ? "" : "|") + name;
      }
      if (!option.choices.empty())
        values += fmt::format("        {}) values=\"{}\" ;;\n", alternatives, option.choices);
    }
    cases += fmt::format(
        "    \"{}\")\n      options=\"{}\"\n      case \"$previous\" in\n{}      esac\n      ;;\n",
        command.name, options.substr(std::min<size_t>(1, options.size())), values);
  }
  return fmt::format(
      R"(# bash completion for {0}: source this file, or put it into
# ~/.local/share/bash-completion/completions/{0}
_{1}() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="${{COMP_WORDS[1]}}" kinds="" options="" values=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "{2} --help --version" -- "$word")
    return
  fi
  case "$command" in
{3}  esac
  if [ -n "$kinds" ]; then
    if [ "$COMP_CWORD" -eq 2 ]; then
      mapfile -t COMPREPLY < <(compgen -W "$kinds" -- "$word")
      return
    fi
    command="$command ${{COMP_WORDS[2]}}"
  fi
  case "$command" in
{4}  esac
  if [ -n "$values" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
  elif [[ "$word" == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _{1} {0}
)",
      program, identifier(program), firsts.substr(1), groups, cases);
}

/// Text inside an _arguments specification in single quotes.
std::string zsh_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':') {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string zsh_script(const std::string& program, const std::vector<CommandWords>& commands) {
  std::string firsts, kinds, cases;
  for (const auto& [first, seconds] : tree_of(commands)) {
    firsts += " " + first;
    if (!seconds.empty())
      kinds += fmt::format(
          "    {})\n      if (( CURRENT == 3 )); then compadd {}; return; fi\n"
          "      command=\"$command $words[3]\"\n      skip=3 ;;\n",
          first, seconds);
  }
  for (const CommandWords& command : commands) {
    std::string specs;
    for (const OptionWords& option : command.options) {
      for (const std::string& name : option.names) {
        specs += fmt::format(" \\\n        '{}[{}]", name, zsh_quoted(option.description));
        if (option.takes_value) {
          specs += ":value:";
          if (!option.choices.empty()) {
            specs += "(" + option.choices + ")";
          } else if (option.takes_file) {
            specs += "_files";
          }
        }
        specs += "'";
      }
    }
    cases += fmt::format("    '{}')\n      _arguments{} \\\n        '*:file:_files' ;;\n",
                         command.name, specs);
  }
  return fmt::format(
      R"(#compdef {0}
# zsh completion for {0}: put this file into a folder of $fpath as _{0}
_{1}() {{
  local command="$words[2]" skip=2
  if (( CURRENT == 2 )); then
    compadd {2} --help --version
    return
  fi
  case "$command" in
{3}  esac
  shift $(( skip - 1 )) words
  (( CURRENT -= skip - 1 ))
  case "$command" in
{4}  esac
}}
_{1} "$@"
)",
      program, identifier(program), firsts.substr(1), kinds, cases);
}

std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_script(const std::string& program, const std::vector<CommandWords>& commands) {
  std::string out = fmt::format(
      "# fish completion for {0}: put this file into ~/.config/fish/completions/{0}.fish\n",
      program);
  for (const auto& [first, seconds] : tree_of(commands)) {
    out += fmt::format("complete -c {} -n __fish_use_subcommand -f -a {}\n", program, first);
    if (!seconds.empty())
      out += fmt::format(
          "complete -c {0} -n '__fish_seen_subcommand_from {1}; and not "
          "__fish_seen_subcommand_from {2}' -f -a {3}\n",
          program, first, seconds, fish_quoted(seconds));
  }
  for (const CommandWords& command : commands) {
    std::string condition;
    for (std::string rest = command.name; !rest.empty();) {
      const size_t end = std::min(rest.find(' '), rest.size());
      condition += (condition.empty() ? "" : "; and ") +
                   fmt::format("__fish_seen_subcommand_from {}", rest.substr(0, end));
      rest.erase(0, std::min(end + 1, rest.size()));
    }
    for (const OptionWords& option : command.options) {
      out += fmt::format("complete -c {} -n {}", program, fish_quoted(condition));
      for (const std::string& name : option.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value) out += option.takes_file ? " -r -F" : " -x";
      if (!option.choices.empty()) out += " -a " + fish_quoted(option.choices);
      out += " -d " + fish_quoted(option.description) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const Program& program, const std::string& shell) {
  const std::vector<CommandWords> commands = words_of(program);
  if (shell == "bash") return bash_script(program.name, commands);
  if (shell == "zsh") return zsh_script(program.name, commands);
  if (shell == "fish") return fish_script(program.name, commands);
  throw InvalidArgument(fmt::format("completion: no script for '{}'; bash, zsh, fish", shell));
}

}  // namespace ts::cli
