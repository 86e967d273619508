// A refusal that knows its line.
#pragma once

#include <string>

#include "text/chat_template/meter.h"

namespace bie::text::chat {

class RefusalAt : public Refusal {
 public:
  RefusalAt(int l, const std::string& what) : Refusal(what), line(l) {}
  const int line;
};

[[noreturn]] inline void refuse_at(int line, const std::string& what) { throw RefusalAt(line, what); }

}  // namespace bie::text::chat
