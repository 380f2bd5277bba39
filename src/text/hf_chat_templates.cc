#include "text/hf_chat_templates.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"

namespace ts {
namespace {

using nlohmann::json;
using Templates = std::vector<std::pair<std::string, std::string>>;

Templates::iterator find(Templates& templates, const std::string& name) {
  return std::find_if(templates.begin(), templates.end(),
                      [&](const auto& t) { return t.first == name; });
}

/// A string; a list of {name, template}; or an object of names and templates.
Templates read_member(const json& object, const std::string& where) {
  Templates out;
  const json* value = json_member(object, "chat_template");
  if (value == nullptr) return out;
  if (value->is_string()) {
    out.emplace_back("default", value->get<std::string>());
  } else if (value->is_array()) {
    for (const json& entry : *value) {
      const auto name = json_string(entry, "name", where);
      const auto source = json_string(entry, "template", where);
      if (!name || !source) {
        throw FormatError(fmt::format(
            "{}: an entry of \"chat_template\" has no \"name\" or no \"template\"", where));
      }
      out.emplace_back(*name, *source);
    }
  } else if (value->is_object()) {
    for (const auto& [name, source] : value->items()) {
      out.emplace_back(name, json_string(*value, name.c_str(), where).value_or(""));
    }
  } else {
    throw FormatError(fmt::format("{}: \"chat_template\" is {}, expected a string or a list", where,
                                  json_kind(*value)));
  }
  return out;
}

std::string metadata_name(std::string name) {
  for (char& c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!plain) c = '_';
  }
  return name;
}

}  // namespace

void read_hf_chat_templates(const HfFiles& files, TokenizerData& data) {
  Templates all;
  const auto add = [&](const Templates& more, const char* file) {
    for (const auto& [name, source] : more) {
      const auto known = find(all, name);
      if (known == all.end()) {
        all.emplace_back(name, source);
      } else if (known->second != source) {
        log_warning(
            fmt::format("{}: the chat template \"{}\" in {} differs from the one in a file "
                        "that takes precedence, and is ignored",
                        files.source, name, file));
      }
    }
  };
  if (files.chat_template_jinja) {
    add({{"default", *files.chat_template_jinja}}, "chat_template.jinja");
  }
  add(files.additional_templates, "additional_chat_templates");
  add(read_member(files.tokenizer_config, files.name_of("tokenizer_config.json")),
      "tokenizer_config.json");
  add(read_member(files.chat_template_json, files.name_of("chat_template.json")),
      "chat_template.json");

  auto main = find(all, "default");
  if (main == all.end() && all.size() == 1) main = all.begin();
  if (main != all.end()) {
    data.chat_template = main->second;
    all.erase(main);
  }
  for (auto& [name, source] : all) {
    std::string key = metadata_name(name);
    while (find(data.extra_templates, key) != data.extra_templates.end())
      key += '_';
    data.extra_templates.emplace_back(std::move(key), std::move(source));
  }
}

}  // namespace ts
