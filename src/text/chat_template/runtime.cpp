#include "text/chat_template/runtime.h"

namespace bie::text::chat {

Runtime::~Runtime() {
  for (const auto& names : all_names_) names->all.clear();
}

Value Runtime::string(MarkedText text) {
  meter.write(text.size());
  return Value::object(Kind::string, std::make_shared<String>(std::move(text), meter));
}

Value Runtime::sequence(Flavour flavour, std::vector<Value> values) {
  meter.step(values.size());
  return Value::object(Kind::sequence, std::make_shared<Sequence>(flavour, std::move(values), meter));
}

Value Runtime::dict(const Dict::Entries& entries) {
  meter.step(entries.size());
  for (const auto& entry : entries)
    if (entry.first.is(Kind::string)) meter.step(entry.first.text().size() / 16);
  return Value::object(Kind::dict, std::make_shared<Dict>(entries, meter));
}

Value Runtime::names() {
  all_names_.push_back(std::make_shared<Names>(meter));
  return Value::object(Kind::names, all_names_.back());
}

Value Runtime::undefined(std::string why) {
  return Value::object(Kind::undefined, std::make_shared<String>(MarkedText(std::move(why), false), meter));
}

Value Runtime::function(std::string name, Function::Body body) {
  return Value::object(Kind::function, std::make_shared<Function>(std::move(name), std::move(body)));
}

Value Runtime::call(const Value& callee, Arguments& arguments) {
  const Level level(*this);
  if (callee.is(Kind::function)) return callee.function().body(*this, arguments);
  if (callee.is(Kind::undefined)) refuse(callee.why());
  if (callee.is(Kind::loop)) {
    if (!callee.loop().recurse) refuse("the loop must have the 'recursive' marker to be called recursively");
    if (arguments.positional.size() != 1 || !arguments.named.empty()) refuse("expected one argument of loop()");
    return callee.loop().recurse(*this, arguments.positional[0]);
  }
  refuse("'", type_name(callee), "' object is not callable");
}

}  // namespace bie::text::chat
