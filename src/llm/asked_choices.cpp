#include <string>

#include "bie/formats/error.h"
#include "bie/llm/choices.h"
#include "formats/json_text.h"

namespace bie::llm {
namespace {

/// The text that a line has under a key. @throws formats::Error
const std::string& text_at(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) throw formats::Error(formats::joined(formats::in_quotes(key), " is missing"));
  if (!found->is_string())
    throw formats::Error(formats::joined(formats::in_quotes(key), ": expected a text, got ", formats::shown(*found)));
  return found->get_ref<const std::string&>();
}

}  // namespace

AskedChoices asked_choices(const std::string& line) {
  const nlohmann::json json = formats::parse_json(line);
  if (!json.is_object()) throw formats::Error("expected an object of JSON, got none that can be read");
  AskedChoices asked{text_at(json, "context"), {}, 0};
  const auto choices = json.find("choices");
  if (choices == json.end() || !choices->is_array() || choices->size() < 2)
    throw formats::Error("\"choices\": expected a list of two texts at least, got " +
                         (choices == json.end() ? std::string("none") : formats::shown(*choices)));
  for (const nlohmann::json& choice : *choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
      throw formats::Error("\"choices\": expected texts that are not empty, got " + formats::shown(choice));
    asked.choices.push_back(choice.get<std::string>());
  }
  const auto answer = json.find("answer");
  if (answer == json.end()) throw formats::Error("\"answer\" is missing");
  if (!formats::is_whole(*answer, 0, std::ssize(asked.choices) - 1))
    throw formats::Error(
        formats::joined("\"answer\": expected 0 to ", asked.choices.size() - 1, ", got ", formats::shown(*answer)));
  asked.answer = answer->get<std::size_t>();
  return asked;
}

}  // namespace bie::llm
