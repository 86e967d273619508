// Properties of a table that are detected, how they are reported, and the options that overrule them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/table.h"
#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;
using Texts = std::vector<std::string>;

class TableGuesses : public testing::Test {
 protected:
  CsvText read(const std::string& text) const {
    write_file(path(), text);
    return load_csv(path());
  }
  LearntTable learn(const std::string& text, const TableOptions& options = {}) const {
    return learn_table(read(text), options);
  }
  /// How many rows there are behind the header.
  std::int64_t rows(const std::string& text, const TableOptions& options = {}) const {
    const CsvText csv = read(text);
    const LearntTable learnt = learn_table(csv, options);
    return read_table(csv, learnt.form, Labels::wanted, {.header = options.header}).count;
  }
  std::string path() const { return scratch_.path("t.csv"); }
  static bool says(const Texts& notes, const std::string& part) {
    for (const std::string& note : notes)
      if (note.find(part) != std::string::npos) return true;
    return false;
  }

 private:
  Scratch scratch_;
};

TEST_F(TableGuesses, NumbersThatCountUpAreNames) {
  const std::string text = "0,1,2\n0.5,0.1,0\n0.7,0.9,1\n0.2,0.3,1\n0.9,0.2,0\n";
  const LearntTable learnt = learn(text);
  EXPECT_EQ(learnt.classes, (Texts{"0", "1"})) << "not a third class";
  EXPECT_EQ(learnt.form.label, "2");
  EXPECT_TRUE(says(learnt.notes, "line 1 (\"0\", \"1\", ...) is taken for names; --header no takes it for a row"));
  TableOptions row;
  row.header = false;
  EXPECT_EQ(learn(text, row).classes, (Texts{"0", "1", "2"}));
  EXPECT_EQ(rows(text, row), 5);
  EXPECT_EQ(rows("0,1\n1,0\n0,1\n1,1\n"), 4) << "values that come again";
  EXPECT_EQ(rows("0,1,2\n0.5,0.1,a\n0.7,0.9,b\n0.2,0.3,a\n"), 3) << "texts below a number";
}

TEST_F(TableGuesses, AFirstLineThatMayBeEitherIsAQuestion) {
  std::string far = "100,200,300\n";
  for (int i = 0; i < 12; ++i)
    far += std::to_string(i % 5) + "," + std::to_string(i % 3) + "," + std::to_string(i % 2) + "\n";
  for (const std::string& text : {std::string("0,1,2\n3,4,5\n6,7,5\n3,5,8\n"), far}) {
    expect_sentence(refusal([&] { (void)learn(text); }), path(), "--header yes or --header no settles that");
    for (const bool header : {true, false}) {
      TableOptions options;
      options.header = header;
      EXPECT_EQ(learn(text, options).form.named, header);
    }
  }
}

std::string numbered(const char* header, int rows, int step, const std::string& rest) {
  std::string text = header;
  for (int i = 0; i < rows; ++i)
    text += std::to_string(1000 + i * step % 101) + "," + std::to_string(i % 4) + "," +
            rest[static_cast<std::size_t>(i) % rest.size()] + "\n";
  return text;
}

TEST_F(TableGuesses, NearlyDistinctWholeNumbersAreIds) {
  const std::string text = numbered("customer,x,label\n", 100, 37, "ab");
  const LearntTable learnt = learn(text);
  EXPECT_EQ(learnt.form.left_out, (Texts{"customer"}));
  EXPECT_TRUE(
      says(learnt.notes, "\"customer\" has 100 different whole numbers in 100 rows and is left out; --keep customer"));
  TableOptions keep;
  keep.keep = {"customer"};
  EXPECT_EQ(learn(text, keep).form.features(), 2);
  EXPECT_EQ(learn(numbered("customer,x,label\n", 29, 37, "ab")).form.features(), 2) << "too few rows to tell";
  keep.keep = {"label"};
  expect_sentence(refusal([&] { (void)learn(text, keep); }), path(), "cannot be kept as an input and be the label");
  const CsvText nameless = read(numbered("", 100, 37, "ab"));
  const LearntTable by_place = learn_table(nameless, {});
  EXPECT_EQ(by_place.form.places, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(read_table(read("5,3\n7,2\n"), by_place.form, Labels::optional).values, (std::vector<float>{3, 2}));
  EXPECT_EQ(read_table(read("5,3,a\n7,2,b\n"), by_place.form, Labels::wanted).values, (std::vector<float>{3, 2}));
  EXPECT_EQ(table_json(parse_table(table_json(by_place.form))), table_json(by_place.form));
}

TEST_F(TableGuesses, NumbersWithExponentsAreNoIds) {
  std::string text = "energy,label\n";  // all whole, as each number beyond 2^53 is
  for (int i = 0; i < 40; ++i) text += std::to_string(1 + i) + ".25e+30," + std::to_string(i % 2) + "\n";
  EXPECT_EQ(learn(text).form.left_out, Texts{});
}

TEST_F(TableGuesses, ATextForEachRowIsNoKind) {
  std::string text = "x,name,label\n";
  for (int i = 0; i < 40; ++i)
    text += std::to_string(i % 5) + ",n" + std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  expect_sentence(refusal([&] { (void)learn(text); }), path(),
                  "40 different texts in 40 rows: they name rows, and are no kinds; --drop name");
  TableOptions keep;
  keep.keep = {"name"};
  EXPECT_EQ(learn(text, keep).form.features(), 41);
}

TEST_F(TableGuesses, TheMostFrequentTextsHaveAnInputEach) {
  std::string text = "town,label\n";
  for (int i = 0; i < 600; ++i)
    text.append("t").append(std::to_string(i < 300 ? i % 60 : i % 150)).append(i % 2 ? ",1\n" : ",0\n");
  const LearntTable learnt = learn(text);
  const TableColumn& town = learnt.form.columns[0];
  EXPECT_EQ(town.values.size(), 100u);
  EXPECT_TRUE(town.others);
  EXPECT_TRUE(
      says(learnt.notes, "\"town\" has 150 different texts: the 100 most frequent ones have an input each, the"));
  const TableRows rows = read_table(read("town\nt1\nelsewhere\n"), learnt.form, Labels::optional);
  EXPECT_EQ(rows.values[100], 0);
  EXPECT_EQ(rows.values[201], 1) << "a text that is none of the frequent ones";
  EXPECT_TRUE(rows.notes.empty());
}

TEST_F(TableGuesses, AnUnseenTextIsToldAndTheFileIsRead) {
  const LearntTable learnt = learn("size,town,label\n1,Ulm,a\n2,Bonn,b\n3,Ulm,a\n");
  const CsvText asked = read("size,town\n1,Ulm\n2,Rom\n3,Oslo\n");
  const TableRows rows = read_table(asked, learnt.form, Labels::optional);
  EXPECT_EQ(rows.values, (std::vector<float>{1, 0, 1, 2, 0, 0, 3, 0, 0}));
  ASSERT_EQ(rows.notes.size(), 1u);
  EXPECT_TRUE(says(rows.notes, "column \"town\" has 2 values that the training rows lack"));
  EXPECT_TRUE(says(rows.notes, "line 3 has \"Rom\""));
  expect_sentence(refusal([&] { read_table(asked, learnt.form, Labels::optional, {.refuse_unseen = true}); }), path(),
                  "line 3, column 2 is \"Rom\", the model was trained with \"Bonn\", \"Ulm\"");
}

TEST_F(TableGuesses, DecimalCommasAreNoKinds) {
  std::string text = "x;label\n";
  for (int i = 0; i < 20; ++i)
    text += (i % 10 == 3 ? std::string("-") : std::to_string(i) + ",5") + (i % 2 ? ";a\n" : ";b\n");
  expect_sentence(refusal([&] { (void)learn(text); }), path(), "is \"0,5\": numbers have a decimal point");
  expect_sentence(refusal([&] { (void)learn(text); }), path(), "--decimal , or --thousands , says what a comma is");
  TableOptions options;
  options.numbers.decimal = ',';
  expect_sentence(refusal([&] { (void)learn(text, options); }), path(),
                  "expected a number, got \"-\"; --missing-words \"-\"");
  options.numbers.missing = Texts{"-", "N.A."};
  options.missing = Missing::mean;
  const LearntTable learnt = learn(text, options);
  EXPECT_TRUE(learnt.form.columns[0].values.empty());
  const TableForm again = parse_table(table_json(learnt.form));
  EXPECT_EQ(read_table(read("x;label\n1,25;a\nn.a.;b\n"), again, Labels::optional).values[0], 1.25f);
  EXPECT_EQ(read_table(read("x;label\n1.25;a\n"), again, Labels::optional, {.decimal = '.'}).values[0], 1.25f);
  options.numbers.thousands = ',';
  expect_sentence(refusal([&] { (void)learn(text, options); }), "--decimal and --thousands are both \",\"", "");
}

TEST_F(TableGuesses, OnlyAnEmptyLabelIsMissing) {
  EXPECT_EQ(learn("x,label\n1,None\n2,NA\n3,None\n").classes, (Texts{"NA", "None"}));
  TableOptions options;
  options.numbers.missing = Texts{"NA"};
  expect_sentence(refusal([&] { (void)learn("x,label\n1,None\n2,NA\n", options); }), path(), "expected a label, got");
}

TEST_F(TableGuesses, AnEmptyFieldIsToldWithoutAnOptionThatIsNotThere) {
  const LearntTable learnt = learn("x,label\n1,a\n2,b\n");
  const std::string sentence = refusal([&] { read_table(read("x\n\"\"\n"), learnt.form, Labels::optional); });
  expect_sentence(sentence, path(),
                  "the model was trained without missing values (bie train --missing mean takes them)");
}

TEST_F(TableGuesses, ACommaBehindEachLineIsNoColumn) {
  const LearntTable learnt = learn("x,z,label,\n1,2,a,\n3,4,b,\n");
  EXPECT_EQ(learnt.form.label, "label");
  EXPECT_TRUE(says(learnt.notes, "each line ends in a separator"));
  EXPECT_EQ(read_table(read("x,z,\n1,2,\n"), learnt.form, Labels::optional).count, 1);
}

TEST_F(TableGuesses, ColumnsOfTablesWithoutNamesCanBeDropped) {
  TableOptions options;
  options.drop = {"2"};
  const LearntTable learnt = learn("1,,a\n2,,b\n1,,a\n", options);
  EXPECT_EQ(learnt.form.places, (std::vector<std::int64_t>{0}));
}

}  // namespace
}  // namespace bie::formats::test
