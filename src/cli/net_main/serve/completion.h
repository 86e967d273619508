// A request for answers: what the scheduler tells of them goes to the client, by the form of its interface.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cli/net_main/serve/form.h"
#include "cli/net_main/serve/work.h"

namespace bie::cli {

class Completion final : public Work {
 public:
  Completion(Service& service, const ServedModel& model, const Interface& interface, Asked asked,
             std::vector<ReadPrompt> prompts, Origin origin);

  void cancel() override;

 private:
  std::vector<llm::Request> requests() const override;
  void hear(std::size_t at, const llm::News& news) override;
  void take_cached(std::size_t at, std::int64_t tokens) override { answers_.choices[at].cached = tokens; }
  void fail(const ApiError& error) override;
  Usage usage() const override { return answers_.usage(); }

  void time(Choice& choice);
  void tell(std::size_t at, const TextParts& parts, const Chances& chances, bool is_of_thought = false);
  void begin_stream();
  void finish_choice(std::size_t at);
  void finish();

  Answers answers_;
  std::unique_ptr<Form> form_;
  std::size_t open_;
  bool has_begun_ = false;
};

}  // namespace bie::cli
