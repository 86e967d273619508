// Answers as OpenAI's responses.
#include <ctime>
#include <utility>

#include "cli/net_main/serve/form.h"

namespace bie::cli {
namespace {

class ResponseForm final : public Form {
 public:
  ResponseForm(const Answers& answers, const text::Tokenizer& tokenizer) : Form(answers, tokenizer) {}

  Json whole() override {
    const Choice& choice = answers_.choices.front();
    Json response = head(status());
    if (!choice.thoughts.empty())
      response["output"].push_back(item(true, Json::array({part_of(true, choice.thoughts, {})}), "completed"));
    if (!choice.content.empty() || choice.thoughts.empty())
      response["output"].push_back(
          item(false, Json::array({part_of(false, choice.content, choice.chances)}), status()));
    if (choice.finish == "length") response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response["usage"] = usage();
    return response;
  }

  std::string begin() override {
    const Json response = head("in_progress");
    return event({{"type", "response.created"}, {"response", response}}) +
           event({{"type", "response.in_progress"}, {"response", response}});
  }

  std::string tell(std::size_t, const TextParts& parts, const Chances& chances) override {
    chances_.insert(chances_.end(), chances.begin(), chances.end());
    std::string events;
    for (const auto& part : parts) events += tell_part(part, &part == &parts.back() ? chances : Chances());
    if (parts.empty() && !chances.empty() && has_open_) events += tell_part({"", is_thought_}, chances);
    return events;
  }

  std::string end_of(std::size_t) override { return close(status()); }

  std::string end() override {
    const bool is_whole = std::string(status()) == "completed";
    return event({{"type", is_whole ? "response.completed" : "response.incomplete"}, {"response", whole()}});
  }

  std::string failure(const ApiError& error) override {
    Json response = head("failed");
    response["error"] = {{"code", "server_error"}, {"message", error.what()}};
    return event({{"type", "response.failed"}, {"response", response}});
  }

 private:
  std::string event(Json json) {
    json["sequence_number"] = sequence_++;
    return named_event_of(json);
  }

  const char* status() const {
    const std::string& finish = answers_.choices.front().finish;
    return finish == "length" ? "incomplete" : finish == "cancelled" ? "cancelled" : "completed";
  }

  /// A response without output.
  Json head(const char* status) const {
    Json json = {{"id", answers_.id},
                 {"object", "response"},
                 {"created_at", answers_.created},
                 {"status", status},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"model", answers_.model},
                 {"output", Json::array()},
                 {"parallel_tool_calls", false},
                 {"previous_response_id", nullptr},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"store", false},
                 {"text", {{"format", {{"type", "text"}}}}},
                 {"tool_choice", "auto"},
                 {"tools", Json::array()},
                 {"truncation", "disabled"},
                 {"usage", nullptr},
                 {"seed", answers_.asked.seed}};
    json.update(answers_.asked.repeated);
    return json;
  }

  Json usage() const {
    const Usage usage = answers_.usage();
    return {{"input_tokens", usage.prompt},
            {"input_tokens_details", {{"cached_tokens", usage.cached}}},
            {"output_tokens", usage.written},
            {"output_tokens_details", {{"reasoning_tokens", usage.thought}}},
            {"total_tokens", usage.prompt + usage.written}};
  }

  std::string id_of_item(bool is_thought) const {
    return (is_thought ? "rs_" : "msg_") + answers_.id.substr(answers_.id.find('_') + 1);
  }

  Json part_of(bool is_thought, const std::string& text, const Chances& chances) const {
    if (is_thought) return {{"type", "reasoning_text"}, {"text", text}};
    return {
        {"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", chances_json(chances)}};
  }

  Json item(bool is_thought, const Json& content, const char* status) const {
    Json json = {{"id", id_of_item(is_thought)}, {"type", is_thought ? "reasoning" : "message"}, {"status", status}};
    json.update(is_thought ? Json{{"summary", Json::array()}} : Json{{"role", "assistant"}});
    json["content"] = content;
    return json;
  }

  /// The place of an event: which part of which item.
  Json at(const std::string& type) const {
    return {{"type", type}, {"item_id", id_of_item(is_thought_)}, {"output_index", items_}, {"content_index", 0}};
  }

  const char* kind() const { return is_thought_ ? "response.reasoning_text" : "response.output_text"; }

  std::string tell_part(const text::ThoughtStream::Part& told, const Chances& chances) {
    std::string events;
    if (!has_open_ || is_thought_ != told.is_thought) {
      events = close("completed");
      has_open_ = true;
      is_thought_ = told.is_thought;
      events += event({{"type", "response.output_item.added"},
                       {"output_index", items_},
                       {"item", item(is_thought_, Json::array(), "in_progress")}});
      Json added = at("response.content_part.added");
      added["part"] = part_of(is_thought_, "", {});
      events += event(added);
    }
    text_ += told.text;
    Json delta = at(kind() + std::string(".delta"));
    delta["delta"] = told.text;
    if (!is_thought_) delta["logprobs"] = chances_json(chances);
    return events + event(delta);
  }

  /// Ends the item that is open.
  std::string close(const char* status) {
    if (!has_open_) return "";
    has_open_ = false;
    const Chances chances = is_thought_ ? Chances() : std::exchange(chances_, {});
    Json done = at(kind() + std::string(".done"));
    done["text"] = text_;
    if (!is_thought_) done["logprobs"] = chances_json(chances);
    Json part = at("response.content_part.done");
    part["part"] = part_of(is_thought_, text_, chances);
    const Json last = {{"type", "response.output_item.done"},
                       {"output_index", items_},
                       {"item", item(is_thought_, Json::array({part["part"]}), status)}};
    const std::string events = event(done) + event(part) + event(last);
    text_.clear();
    ++items_;
    return events;
  }

  std::int64_t sequence_ = 0;
  bool has_open_ = false, is_thought_ = false;  ///< the last item
  std::int64_t items_ = 0;                      ///< that have ended
  std::string text_;                            ///< of the item that is open
  Chances chances_;                             ///< of tokens that no item has told of
};

}  // namespace

const Interface response_interface = {
    "resp_", "input", asked_response, [](const Answers& answers, const text::Tokenizer& tokenizer) {
      return std::unique_ptr<Form>(std::make_unique<ResponseForm>(answers, tokenizer));
    }};

}  // namespace bie::cli
