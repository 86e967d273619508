#include "report/run_report.h"

#include <algorithm>
#include <iterator>

#include "report/confusion_table.h"
#include "report/layers_section.h"
#include "report/line_chart.h"
#include "report/page.h"
#include "report/png_data_uri.h"
#include "report/table.h"

namespace bie::report {
namespace {

constexpr std::size_t most_rows = 200;  // of the table of epochs

using Series = double Epoch::*;

std::vector<double> values(const std::vector<Epoch>& epochs, Series series) {
  std::vector<double> found;
  for (const Epoch& epoch : epochs) found.push_back(epoch.*series);
  return found;
}

bool known(const std::vector<Epoch>& epochs, Series series) {
  return std::any_of(epochs.begin(), epochs.end(), [&](const Epoch& epoch) { return drawable(epoch.*series); });
}

void draw_results(Markup& page, const std::vector<Fact>& results) {
  if (results.empty()) return;
  page.open("dl", {{"class", "results"}});
  for (const Fact& result : results)
    page.open("div").element("dt", {}, result.name).element("dd", {}, result.value).close();
  page.close();
}

/// "accuracy" as the title of a chart.
std::string capital(std::string name) {
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

/// "best 98.33 % after epoch 12"; the first of equals.
std::string best_score(const std::vector<Epoch>& epochs, Unit unit) {
  const Epoch* best = nullptr;
  for (const Epoch& epoch : epochs)
    if (drawable(epoch.test_score) && (!best || epoch.test_score > best->test_score)) best = &epoch;
  if (!best) return "";
  return "best " + with_unit(best->test_score, unit) + " after epoch " + std::to_string(best->number);
}

void draw_epoch_rows(Markup& page, const std::vector<Epoch>& epochs, const Metric& metric, std::size_t stride) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    const Epoch& e = epochs[i];
    if ((i + 1) % stride != 0 && i != 0 && i + 1 != epochs.size()) continue;
    rows.push_back({std::to_string(e.number), with_unit(e.loss, Unit::number), with_unit(e.train_score, metric.unit),
                    with_unit(e.validation_score, metric.unit), with_unit(e.test_score, metric.unit),
                    with_unit(e.rate, Unit::number), with_unit(e.integer_rate, Unit::number),
                    with_unit(e.flipped, Unit::percent), with_unit(e.seconds, Unit::seconds)});
  }
  draw_table(page, "epochs",
             {{"epoch", true},
              {"loss", true},
              {"training " + metric.name, true},
              {"validation " + metric.name, true},
              {"test " + metric.name, true},
              {"rate", true},
              {"rate of integers", true},
              {"flipped", true},
              {"time", true}},
             rows);
}

void draw_epoch_table(Markup& page, const std::vector<Epoch>& epochs, const Metric& metric) {
  const std::size_t stride = (epochs.size() + most_rows - 1) / most_rows;
  page.open("details").element(
      "summary", {}, stride == 1 ? "Every epoch in numbers" : "One epoch of " + std::to_string(stride) + " in numbers");
  draw_epoch_rows(page, epochs, metric, stride);
  page.close();
}

/// Curves of flipped weights: of all binary weights and, if there are several binary layers, of each one while the
/// colours last.
std::vector<Curve> flips(const RunReport& report) {
  constexpr std::size_t colours = 6;
  std::vector<Curve> curves;
  if (known(report.epochs, &Epoch::flipped)) curves.push_back({"all", values(report.epochs, &Epoch::flipped)});
  std::vector<Curve> layers;
  for (const Layer& layer : report.layers)
    if (std::any_of(layer.flipped.begin(), layer.flipped.end(), drawable))
      layers.push_back({layer.name, layer.flipped});
  if (layers.size() + curves.size() <= colours && layers.size() != 1)
    curves.insert(curves.end(), layers.begin(), layers.end());
  if (curves.size() == 1) curves[0].name.clear();
  return curves;
}

std::vector<Curve> score_curves(const std::vector<Epoch>& epochs) {
  std::vector<Curve> curves{{"test", values(epochs, &Epoch::test_score)},
                            {"training", values(epochs, &Epoch::train_score)}};
  if (known(epochs, &Epoch::validation_score))
    curves.push_back({"validation", values(epochs, &Epoch::validation_score)});
  return curves;
}

void draw_training(Markup& page, const RunReport& report, const std::vector<double>& epochs) {
  constexpr Series shown[] = {&Epoch::loss,         &Epoch::train_score, &Epoch::test_score, &Epoch::rate,
                              &Epoch::integer_rate, &Epoch::seconds,     &Epoch::flipped};
  const auto is_known = [&](Series series) { return known(report.epochs, series); };
  if (std::none_of(std::begin(shown), std::end(shown), is_known)) return;
  const auto of = [&](Series series) { return values(report.epochs, series); };
  page.open("section", {{"class", "card"}}).element("h2", {}, "Training");
  if (epochs.size() == 1) {  // a curve of one point says less than its number
    draw_epoch_rows(page, report.epochs, report.metric, 1);
    page.close();
    return;
  }
  page.open("div", {{"class", "charts"}});
  draw(page, {.title = capital(report.metric.name),
              .unit = report.metric.unit,
              .epochs = epochs,
              .curves = score_curves(report.epochs),
              .remark = best_score(report.epochs, report.metric.unit)});
  draw(page, {.title = "Loss",
              .epochs = epochs,
              .curves = {{"training", of(&Epoch::loss)}},
              .remark = "mean over the training samples"});
  draw(page, {.title = "Binary weights flipped since the start",
              .unit = Unit::percent,
              .epochs = epochs,
              .curves = flips(report),
              .from_zero = true});
  draw(page, {.title = "Learning rate",
              .epochs = epochs,
              .curves = {{"", of(&Epoch::rate)}},
              .remark = "of the float parameters",
              .from_zero = true});
  draw(page, {.title = "Learning rate of the int8 weights",
              .epochs = epochs,
              .curves = {{"", of(&Epoch::integer_rate)}},
              .from_zero = true});
  draw(page, {.title = "Time of an epoch",
              .unit = Unit::seconds,
              .epochs = epochs,
              .curves = {{"", of(&Epoch::seconds)}},
              .from_zero = true});
  page.close();
  draw_epoch_table(page, report.epochs, report.metric);
  page.close();
}

void draw_mistakes(Markup& page, const std::vector<Mistake>& mistakes) {
  if (std::none_of(mistakes.begin(), mistakes.end(), [](const Mistake& m) { return complete(m.picture); })) return;
  page.open("section", {{"class", "card"}}).element("h2", {}, "Worst mistakes").open("div", {{"class", "mistakes"}});
  for (const Mistake& mistake : mistakes) {
    if (!complete(mistake.picture)) continue;
    page.open("figure");
    page.single("img", {{"src", png_data_uri(mistake.picture)}, {"alt", "an image of class " + mistake.truth}});
    page.open("figcaption").element("b", {}, mistake.truth).text(" taken for ").element("b", {}, mistake.predicted);
    if (drawable(mistake.confidence)) page.text(", " + with_unit(mistake.confidence, Unit::percent));
    page.close().close();
  }
  page.close().close();
}

void draw_ranks(Markup& page, const std::vector<Rank>& ranks) {
  if (ranks.empty()) return;
  std::vector<std::vector<std::string>> rows;
  for (const Rank& rank : ranks)
    rows.push_back({std::to_string(rank.number), rank.host, rank.device, std::to_string(rank.images),
                    with_unit(rank.seconds, Unit::seconds),
                    with_unit(static_cast<double>(rank.images) / rank.seconds, Unit::number)});
  page.open("section", {{"class", "card"}}).element("h2", {}, "Ranks");
  draw_table(page, "ranks",
             {{"rank", true},
              {"host"},
              {"device"},
              {"samples trained with", true},
              {"time of its steps", true},
              {"samples a second", true}},
             rows);
  page.close();
}

}  // namespace

std::string html(const RunReport& report) {
  std::vector<double> epochs;
  for (const Epoch& epoch : report.epochs) epochs.push_back(static_cast<double>(epoch.number));
  Markup page;
  begin_page(page, report.title, report.when, report.command);
  draw_notes(page, report.notes);
  draw_results(page, report.results);
  draw_training(page, report, epochs);
  draw(page, report.layers, epochs);
  draw(page, report.confusion);
  draw(page, report.answers);
  draw_mistakes(page, report.mistakes);
  if (!report.importance.empty()) {
    page.open("section", {{"class", "card"}});
    draw_facts(page, "What the test " + report.metric.name + " loses when a column is shuffled", report.importance);
    page.close();
  }
  draw_ranks(page, report.ranks);
  draw_circumstances(page, report.configuration, report.machine);
  return end_page(page);
}

}  // namespace bie::report
