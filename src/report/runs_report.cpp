#include "report/runs_report.h"

#include <algorithm>
#include <set>

#include "report/class_scores.h"
#include "report/interval.h"
#include "report/line_chart.h"
#include "report/page.h"
#include "report/table.h"

namespace bie::report {
namespace {

constexpr std::size_t most_curves = 6;     // as there are colours
constexpr std::size_t most_classes = 100;  // of the table of classes

void draw_runs(Markup& page, const RunsReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const Run& run : report.runs)
    rows.push_back({run.name, score_with_interval(run.test_score, run.test_samples, report.metric),
                    with_unit(run.test_loss, Unit::number), std::to_string(run.test_samples),
                    run.model_bytes == 0 ? no_value : grouped(run.model_bytes),
                    run.weights == 0 ? no_value : grouped(run.weights), std::to_string(run.epochs.size()),
                    with_unit(run.seconds, Unit::seconds)});
  page.open("section", {{"class", "card"}}).element("h2", {}, "Runs");
  if (report.metric.unit == Unit::percent)
    page.element("p", {{"class", "remark"}},
                 "In brackets Wilson's interval of 95 %: what the test samples cannot tell apart.");
  draw_table(page, "runs",
             {{"run"},
              {"test " + report.metric.name, true},
              {"test loss", true},
              {"test samples", true},
              {"model bytes", true},
              {"weights", true},
              {"epochs", true},
              {"time", true}},
             rows);
  page.close();
}

void draw_differences(Markup& page, const RunsReport& report) {
  if (report.differences.empty()) return;
  std::vector<Column> columns{{"option"}};
  for (const Run& run : report.runs) columns.push_back({run.name});
  std::vector<std::vector<std::string>> rows;
  for (const Difference& difference : report.differences) {
    rows.push_back({difference.option});
    rows.back().insert(rows.back().end(), difference.values.begin(), difference.values.end());
  }
  page.open("section", {{"class", "card"}}).element("h2", {}, "What differs");
  draw_table(page, "options that differ", columns, rows);
  page.close();
}

/// The best runs, in the order of the report.
std::vector<const Run*> curves_of(const RunsReport& report) {
  std::vector<const Run*> runs;
  for (const Run& run : report.runs) runs.push_back(&run);
  std::stable_sort(runs.begin(), runs.end(), [](const Run* a, const Run* b) { return a->test_score > b->test_score; });
  runs.resize(std::min(runs.size(), most_curves));
  std::sort(runs.begin(), runs.end());  // they lie in one vector
  return runs;
}

void draw_curves(Markup& page, const RunsReport& report) {
  const std::vector<const Run*> runs = curves_of(report);
  std::set<std::int64_t> numbers;
  for (const Run* run : runs)
    for (const Epoch& epoch : run->epochs) numbers.insert(epoch.number);
  if (numbers.size() < 2) return;
  const std::vector<double> epochs(numbers.begin(), numbers.end());
  const auto curves = [&](double Epoch::*series) {
    std::vector<Curve> all;
    for (const Run* run : runs) {
      Curve curve{run->name, std::vector<double>(epochs.size(), unknown)};
      for (const Epoch& epoch : run->epochs)
        curve.y[static_cast<std::size_t>(std::distance(numbers.begin(), numbers.find(epoch.number)))] = epoch.*series;
      all.push_back(std::move(curve));
    }
    return all;
  };
  page.open("section", {{"class", "card"}}).element("h2", {}, "Curves");
  if (report.runs.size() > runs.size())
    page.element("p", {{"class", "remark"}},
                 "Of the " + std::to_string(runs.size()) + " best of " + std::to_string(report.runs.size()) + " runs.");
  page.open("div", {{"class", "charts"}});
  draw(page, {.title = "Test " + report.metric.name,
              .unit = report.metric.unit,
              .epochs = epochs,
              .curves = curves(&Epoch::test_score)});
  draw(page, {.title = "Training loss", .epochs = epochs, .curves = curves(&Epoch::loss)});
  page.close().close();
}

/// F1 of every class, a column a run; nothing where the runs have not the same classes.
void draw_classes(Markup& page, const RunsReport& report) {
  const std::vector<std::string>& names = report.runs.front().confusion.classes;
  if (names.empty() || names.size() > most_classes) return;
  std::vector<Column> columns{{"class"}, {"samples", true}};
  std::vector<std::vector<ClassScore>> scores;
  for (const Run& run : report.runs) {
    scores.push_back(class_scores(run.confusion));
    if (run.confusion.classes != names || scores.back().empty()) return;
    columns.push_back({run.name, true});
  }
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < names.size(); ++i) {
    rows.push_back({names[i], grouped(scores.front()[i].samples)});
    for (const auto& run : scores) rows.back().push_back(with_unit(run[i].f1, Unit::percent));
  }
  page.open("section", {{"class", "card"}}).element("h2", {}, "F1 by class");
  page.element("p", {{"class", "remark"}}, "The harmonic mean of precision and recall.");
  draw_table(page, "F1 by class", columns, rows);
  page.close();
}

}  // namespace

std::string score_with_interval(double score, std::int64_t samples, const Metric& metric) {
  const std::string text = with_unit(score, metric.unit);
  if (metric.unit != Unit::percent || !drawable(score) || samples <= 0) return text;
  const auto [low, high] = wilson(score, samples);
  return text + " (" + fixed(100 * low, 1) + " to " + fixed(100 * high, 1) + ")";
}

std::string html(const RunsReport& report) {
  Markup page;
  begin_page(page, report.title, report.when, report.command);
  draw_notes(page, report.notes);
  if (!report.runs.empty()) {
    draw_runs(page, report);
    draw_curves(page, report);
    draw_differences(page, report);
    draw_classes(page, report);
  }
  return end_page(page);
}

}  // namespace bie::report
