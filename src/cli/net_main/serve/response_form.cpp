// Answers as OpenAI's responses.
#include <string>

#include "cli/net_main/serve/form.h"

namespace bie::cli {
namespace {

class ResponseForm final : public Form {
 public:
  ResponseForm(const Answers& answers, const text::Tokenizer& tokenizer) : Form(answers, tokenizer) {}

  Json whole() override {
    const Choice& choice = answers_.choices.front();
    Json response = head(status());
    for (std::size_t i = 0; i < choice.pieces.size(); ++i)
      response["output"].push_back(
          item(i, parts_of(choice.pieces[i]), i + 1 < choice.pieces.size() ? "completed" : item_status()));
    if (choice.pieces.empty()) response["output"].push_back(item(0, parts_of({}), item_status()));
    if (choice.finish == "length") response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response["usage"] = usage();
    return response;
  }

  std::string begin() override {
    const Json response = head("in_progress");
    std::string events = event({{"type", "response.created"}, {"response", response}});
    events += event({{"type", "response.in_progress"}, {"response", response}});
    return events;
  }

  std::string tell(std::size_t, const TextParts&, const Chances&) override {
    const std::vector<Piece>& pieces = answers_.choices.front().pieces;
    std::string events;
    for (; items_ < pieces.size(); events += close(pieces[items_], "completed")) {
      if (!has_open_) events += open(pieces[items_]);
      if (told_ < pieces[items_].text.size()) events += delta(pieces[items_]);
      if (items_ + 1 == pieces.size()) break;
    }
    return events;
  }

  std::string end_of(std::size_t) override {
    const std::vector<Piece>& pieces = answers_.choices.front().pieces;
    if (!pieces.empty()) return close(pieces.back(), item_status());
    std::string events = open({});
    events += close({}, item_status());
    return events;
  }

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
  /// Numbers it: each call is a statement of its own, as operands have no order.
  std::string event(Json json) {
    json["sequence_number"] = sequence_++;
    return named_event_of(json);
  }

  const char* status() const {
    const std::string& finish = answers_.choices.front().finish;
    return finish == "length" ? "incomplete" : finish == "cancelled" ? "cancelled" : "completed";
  }

  const char* item_status() const { return std::string(status()) == "completed" ? "completed" : "incomplete"; }

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
            {"input_tokens_details", {{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
            {"output_tokens", usage.written},
            {"output_tokens_details", {{"reasoning_tokens", usage.thought}}},
            {"total_tokens", usage.prompt + usage.written}};
  }

  bool is_thought(std::size_t i) const {
    const std::vector<Piece>& pieces = answers_.choices.front().pieces;
    return i < pieces.size() && pieces[i].is_thought;
  }

  std::string id_of_item(std::size_t i) const {
    return (is_thought(i) ? "rs_" : "msg_") + answers_.id.substr(answers_.id.find('_') + 1) +
           (i == 0 ? "" : "_" + std::to_string(i));
  }

  Json part_of(const Piece& piece) const {
    if (piece.is_thought) return {{"type", "reasoning_text"}, {"text", piece.text}};
    return {{"type", "output_text"},
            {"text", piece.text},
            {"annotations", Json::array()},
            {"logprobs", chances_json(piece.chances)}};
  }
  Json parts_of(const Piece& piece) const { return Json::array({part_of(piece)}); }

  Json item(std::size_t i, const Json& content, const char* status) const {
    Json json = {{"id", id_of_item(i)}, {"type", is_thought(i) ? "reasoning" : "message"}, {"status", status}};
    json.update(is_thought(i) ? Json{{"summary", Json::array()}} : Json{{"role", "assistant"}});
    json["content"] = content;
    return json;
  }

  /// The place of an event: which part of which item.
  Json at(const std::string& type) const {
    return {{"type", type}, {"item_id", id_of_item(items_)}, {"output_index", items_}, {"content_index", 0}};
  }

  std::string kind() const { return is_thought(items_) ? "response.reasoning_text" : "response.output_text"; }

  std::string open(const Piece& piece) {
    has_open_ = true;
    std::string events = event({{"type", "response.output_item.added"},
                                {"output_index", items_},
                                {"item", item(items_, Json::array(), "in_progress")}});
    Json added = at("response.content_part.added");
    added["part"] = part_of({"", piece.is_thought, {}});
    events += event(added);
    return events;
  }

  /// Tells what no event has told of an item.
  std::string delta(const Piece& piece) {
    Json json = at(kind() + ".delta");
    json["delta"] = piece.text.substr(told_);
    if (!piece.is_thought)
      json["logprobs"] =
          chances_json({piece.chances.begin() + static_cast<std::ptrdiff_t>(told_chances_), piece.chances.end()});
    told_ = piece.text.size();
    told_chances_ = piece.chances.size();
    return event(json);
  }

  /// Ends the item that is open.
  std::string close(const Piece& piece, const char* status) {
    Json done = at(kind() + ".done");
    done["text"] = piece.text;
    if (!piece.is_thought) done["logprobs"] = chances_json(piece.chances);
    std::string events = event(done);
    Json part = at("response.content_part.done");
    part["part"] = part_of(piece);
    events += event(part);
    events += event({{"type", "response.output_item.done"},
                     {"output_index", items_},
                     {"item", item(items_, parts_of(piece), status)}});
    has_open_ = false;
    told_ = told_chances_ = 0;
    ++items_;
    return events;
  }

  std::int64_t sequence_ = 0;
  bool has_open_ = false;
  std::size_t items_ = 0;                    ///< that have ended
  std::size_t told_ = 0, told_chances_ = 0;  ///< of the item that is open
};

}  // namespace

const Interface response_interface = {
    "resp_", "input", asked_response, [](const Answers& answers, const text::Tokenizer& tokenizer) {
      return std::unique_ptr<Form>(std::make_unique<ResponseForm>(answers, tokenizer));
    }};

}  // namespace bie::cli
