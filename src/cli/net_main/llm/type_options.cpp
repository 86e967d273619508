#include "cli/net_main/llm/type_options.h"

#include <CLI/Error.hpp>

#include "bie/formats/error.h"
#include "bie/formats/written_types.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {

llm::TypePlan named_types(const QuantizeArguments& a) {
  llm::TypePlan plan{nullptr, formats::written_type(a.embedding), formats::written_type(a.head), {}, a.fit};
  for (const std::string& keep : a.keep) {
    const std::size_t at = keep.rfind('=');
    const formats::GgufType* const type =
        at == std::string::npos ? nullptr : formats::written_type(keep.substr(at + 1));
    if (type == nullptr || at == 0)
      throw CLI::ValidationError("--keep", "expected PATTERN=TYPE, of a type among " + formats::written_type_names() +
                                               ", got " + formats::in_quotes(keep));
    plan.keep.emplace_back(keep.substr(0, at), type);
  }
  return plan;
}

void check_type_options(const QuantizeArguments& a) {
  const int ways =
      (a.type.empty() ? 0 : 1) + (a.size.empty() ? 0 : 1) + (a.bits > 0 ? 1 : 0) + (a.plan.empty() ? 0 : 1);
  if (ways == 0)
    throw CLI::ValidationError(
        "--type", "expected one of " + formats::written_type_names() + ", or --size, --bpw or --plan, got none");
  if (ways > 1) throw CLI::ValidationError("--type", "expected one of --type, --size, --bpw and --plan, got several");
  if (has_size(a) && a.texts.empty())
    throw CLI::ValidationError(a.bits > 0 ? "--bpw" : "--size",
                               "needs the text of --calibrate, on which types are compared");
  if (has_size(a) && a.fit) throw CLI::ValidationError("--fit", "needs --type; a plan for a size takes types that fit");
  if (writes_plan(a) && !has_size(a)) throw CLI::ValidationError("--out", "needs --size or --bpw to write a plan");
  if (!a.format.empty() && a.out.ends_with(".gguf"))
    throw CLI::ValidationError("--format", "expected a folder or a plan as --out, got " + formats::in_quotes(a.out));
}

llm::TypePlan read_plan(const QuantizeArguments& a) {
  const auto fail = [&](const std::string& sentence) { throw formats::Error("plan " + a.plan + ": " + sentence); };
  constexpr std::size_t most_bytes = 64 << 20;
  const std::string text = text_of_file(a.plan);
  if (text.size() > most_bytes) fail("expected at most 64 MiB, got more");
  llm::TypePlan plan = named_types(a);
  try {
    for (auto& entry : llm::planned_types(text)) plan.keep.push_back(std::move(entry));
  } catch (const formats::Error& error) {
    fail(error.what());
  }
  return plan;
}

}  // namespace bie::cli
