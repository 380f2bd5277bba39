// HellaSwag (Zellers et al. 2019), original fields. Marks of the crawled texts are removed as the
// usual harness does: " [title]" ends a sentence, other bracketed marks vanish, and the context is
// "activity: ctx_a Ctx_b".
#include "eval/tasks/formats.h"

namespace ts {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::string clean_wikihow(std::string_view raw) {
  std::string text = trimmed(raw);
  replace_all(text, " [title]", ". ");
  for (size_t open = 0; (open = text.find('[', open)) != std::string::npos;) {
    const size_t close = text.find_first_of("]\n", open);
    if (close == std::string::npos) break;
    if (text[close] == ']')
      text.erase(open, close - open + 1);
    else
      ++open;
  }
  replace_all(text, "  ", " ");
  return text;
}

/// First letter large, the others small, of ASCII letters.
std::string capitalized(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    char& c = text[i];
    if (i == 0 && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    if (i > 0 && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return text;
}

bool is_hellaswag(const TaskRecord& first) {
  return first.has_all({"ctx_a", "ctx_b", "activity_label", "endings", "label"});
}

ChoiceItem read_hellaswag(const TaskRecord& record) {
  ChoiceItem item;
  item.contexts = {clean_wikihow(record.text("activity_label") + ": " + record.text("ctx_a") + " " +
                                 capitalized(record.text_or_empty("ctx_b")))};
  for (const std::string& ending : record.texts("endings")) {
    const std::string text = clean_wikihow(ending);
    if (trimmed(text).empty()) record.fail("endings", "texts of more than marks in brackets");
    item.continuations.push_back(" " + text);
  }
  item.answer = record.index("label", item.continuations.size());
  return item;
}

}  // namespace

const TaskFormat kHellaSwagFormat = {"hellaswag",
                                     "HellaSwag records: the ending after \"activity: context\"",
                                     is_hellaswag, read_hellaswag};

}  // namespace ts
