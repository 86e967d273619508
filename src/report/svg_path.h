// The `d` attribute of an SVG path, written step by step.
#pragma once

#include <string>

#include "report/number_text.h"

namespace bie::report {

class SvgPath {
 public:
  SvgPath& move(double x, double y) { return step('M', x).also(y); }
  SvgPath& line(double x, double y) { return step('L', x).also(y); }
  SvgPath& across_to(double x) { return step('H', x); }
  SvgPath& up_or_down_to(double y) { return step('V', y); }
  /// A round point, where line ends are round.
  SvgPath& dot(double x, double y) { return move(x, y).step('h', 0); }

  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  SvgPath& step(char command, double value) {
    text_ += command;
    text_ += coordinate(value);
    return *this;
  }
  SvgPath& also(double value) {
    text_ += ' ';
    text_ += coordinate(value);
    return *this;
  }

  std::string text_;
};

}  // namespace bie::report
