// Roles of a table's columns in a model.
#include "bie/formats/table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;
using Texts = std::vector<std::string>;

class Table {
 public:
  explicit Table(const std::string& text, const TableOptions& options = {}) : csv_(read(text)) {
    const LearntTable learnt = learn_table(csv_, options);
    form = learnt.form;
    classes = learnt.classes;
    notes = learnt.notes;
    rows = read_table(csv_, form, Labels::wanted);
  }
  CsvText read(const std::string& text) const {
    write_file(path(), text);
    return load_csv(path());
  }
  TableRows asked(const std::string& text, Labels labels = Labels::optional, const Texts& drop = {}) const {
    return read_table(read(text), form, labels, {.drop = drop});
  }
  std::string path() const { return scratch_.path("t.csv"); }

 private:
  Scratch scratch_;
  CsvText csv_;

 public:
  TableForm form;
  Texts classes, notes;
  TableRows rows;
};

TEST(Table, ClassesAreNamesOrNumbersAsTheyStand) {
  EXPECT_EQ(Table("x,label\n1,b\n2,a\n3,b\n").classes, (Texts{"a", "b"}));
  EXPECT_EQ(Table("x,label\n1,10\n2,9\n3,-1\n").classes, (Texts{"-1", "9", "10"}));
  EXPECT_EQ(Table("x,label\n1,1\n2,2\n3,1.0\n").classes, (Texts{"1", "2"}));
}

TEST(Table, TheLabelStandsAnywhere) {
  const Table table("Class;x;y2\ndog;1;2\ncat;+3;4\n");
  EXPECT_EQ(table.form.label, "Class");
  EXPECT_EQ(table.rows.values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(table.notes, (Texts{"the label is the column \"Class\"; --label NAME takes another"}));
  const Table surest("y,target,label,class\n1,2,u,3\n4,5,v,6\n");
  EXPECT_EQ(surest.form.label, "label") << "of several the surest name";
  EXPECT_EQ(surest.notes.size(), 1u);
  EXPECT_EQ(Table("x,y,class\n1,2,u\n4,5,v\n").form.label, "class");
  TableOptions options;
  for (const char* label : {"x", "2"}) {
    options.label = label;
    EXPECT_EQ(Table("kind;x;z\n1;1;2\n5;2;4\n", options).form.label, "x");
  }
  EXPECT_EQ(Table("a,kind\n1,u\n2,v\n").notes.size(), 1u) << "the last column is said to be the label";
}

TEST(Table, AFirstLineIsNamesOrARow) {
  const std::string rows = "1,2,a\n1,2,b\n1,2,a\n";
  for (const char* first : {"1e-50,2,a", "1e-400,2,b", "-0.00,+1E+2,a", "3,4,a"})
    EXPECT_EQ(Table(std::string(first) + "\n" + rows).rows.count, 4) << first;
  for (const char* first : {"x,z,kind", "x,,kind", ",x,kind", "\"\",\"x\",\"kind\"", "0,1,label", "2019,2020,class",
                            "id,2019,target", "NA,?,y"})
    EXPECT_EQ(Table(std::string(first) + "\n" + rows).rows.count, 3) << first;
  EXPECT_EQ(Table("colour,kind\nred,a\nblue,b\nred,a\n").rows.count, 3) << "words alone";
  EXPECT_EQ(Table("red,a\nblue,b\nred,a\nblue,a\n").rows.count, 4) << "words that come again";
}

TEST(Table, TextsHaveAFeatureEach) {
  const Table table("size,colour,label\n1,red,a\n2,blue,b\n3,red,a\n");
  EXPECT_EQ(table.form.columns[1].values, (Texts{"blue", "red"}));
  EXPECT_EQ(table.rows.values, (std::vector<float>{1, 0, 1, 2, 1, 0, 3, 0, 1}));
}

TEST(Table, MissingValues) {
  const std::string text = "x,c,label\n1,u,a\n,u,b\n3,NA,a\n";
  TableOptions options;
  options.missing = Missing::mean;
  const Table mean(text, options);
  EXPECT_EQ(mean.form.columns[0].mean, 2);
  // x, whether it is missing, is u, whether that is missing.
  EXPECT_EQ(mean.rows.values, (std::vector<float>{1, 0, 1, 0, 2, 1, 1, 0, 3, 0, 0, 1}));
  options.missing = Missing::drop;
  const Table drop(text, options);
  EXPECT_EQ(drop.rows.count, 1);
  EXPECT_EQ(drop.rows.dropped, 2);
  expect_sentence(refusal([&] { (void)Table(text); }), "line 3, column 1: expected a value, got \"\"", "--missing");
  expect_sentence(refusal([&] { drop.asked("x,c\n,u\n"); }), "line 2, column 1: expected a value, got \"\"",
                  "the model was trained without missing values");
  EXPECT_EQ(mean.asked("x,c\n,u\n").values, (std::vector<float>{2, 1, 1, 0}));
}

TEST(Table, ColumnsAreFoundByTheirNames) {
  const Table table("a,b,kind\n1,2,u\n3,4,v\n");
  const TableRows rows = table.asked("b,a\n20,10\n");
  EXPECT_EQ(rows.values, (std::vector<float>{10, 20}));
  EXPECT_TRUE(rows.labels.empty());
  EXPECT_EQ(table.asked("kind,b,a\nv,20,10\n").labels, (Texts{"v"}));
  EXPECT_EQ(table.asked("b,note,a\n20,yes,10\n", Labels::optional, {"note"}).values, (std::vector<float>{10, 20}));
  const auto refused = [&](const std::string& text, const char* part, Labels labels = Labels::optional) {
    expect_sentence(refusal([&] { table.asked(text, labels); }), table.path(), part);
  };
  refused("a,kind\n1,u\n", "has no column \"b\", which the model was trained with");
  refused("a,b,c\n1,2,3\n", "has a column \"c\", which the model was trained without; --drop");
  refused("1,2\n3,4\n", "line 1 names none of the model's columns; they are \"a\", \"b\"");
  refused("a,b\n1,2\n", "has no column \"kind\", the label", Labels::wanted);
  refused("a,b,a\n1,2,3\n", "line 1 names two columns \"a\"");
  refused("a,b\n1,x\n", "line 2, column 2: expected a number, got \"x\"");
  refused("a,b\n", "has a header and no rows");
}

TEST(Table, IdsTellRowsApart) {
  TableOptions options;
  options.id = "name";
  const Table table("name,x,kind\nann,1,u\nbob,2,v\n", options);
  EXPECT_EQ(table.rows.ids, (Texts{"ann", "bob"}));
  EXPECT_EQ(table.form.features(), 1);
  EXPECT_EQ(table.asked("x,name\n5,eve\n").ids, (Texts{"eve"}));
  EXPECT_TRUE(table.asked("x\n5\n").ids.empty());
  const Table counted("id,x,kind\n1,1,u\n2,2,v\n3,2,v\n");
  EXPECT_EQ(counted.form.left_out, (Texts{"id"}));
  EXPECT_EQ(counted.notes.size(), 2u);
}

TEST(Table, ATableWithoutNamesIsReadByPlace) {
  const Table table("1,2,a\n1,2,b\n3,4,a\n");
  EXPECT_FALSE(table.form.named);
  EXPECT_EQ(table.asked("5,6\n").values, (std::vector<float>{5, 6}));
  EXPECT_EQ(table.asked("5,6,b\n").labels, (Texts{"b"}));
  expect_sentence(refusal([&] { table.asked("5\n"); }), table.path(),
                  "expected 2 columns, or one more with labels, got 1");
}

TEST(Table, AFormIsKeptAsText) {
  TableOptions options;
  options.missing = Missing::mean;
  options.id = "name";
  options.drop = {"note"};
  const Table table("name,note,x,c,kind\nann,1,1,red,u\nbob,2,,blue,v\n", options);
  const TableForm again = parse_table(table_json(table.form));
  EXPECT_EQ(table_json(again), table_json(table.form));
  EXPECT_EQ(again.features(), table.form.features());
}

TEST(Table, ATextThatIsNoFormIsRefused) {
  const Table table("a,b,kind\n1,2,u\n3,4,v\n");
  const std::string json = table_json(table.form);
  for (std::size_t i = 0; i < json.size(); ++i) EXPECT_THROW(parse_table(json.substr(0, i)), Error);
  for (const char* field : {"inputs", "named", "split", "decimals", "decimal", "seed", "label", "label_place", "id",
                            "left_out", "missing", "regression", "mean", "scale", "test_share", "checksum"}) {
    std::string other = json;
    const std::string quoted = std::string(1, '"') + field + '"';
    other.replace(other.find(quoted), quoted.size(), "\"other\"");
    EXPECT_THROW(parse_table(other), Error) << field;
  }
}

struct Strange {
  const char* text;
  const char* part;
};

TEST(Table, WhatCannotBeLearntIsRefusedInASentence) {
  std::string prices = "x,price\n", names = "x,name\n", texts = "x,t,label\n";
  std::string counted = "x,label\n";
  for (int i = 0; i < 150; ++i) {
    counted += std::to_string(i * 7 % 150) + "," + std::to_string(i % 2) + "\n";
    prices += std::to_string(i) + "," + std::to_string(i * 7 % 150) + "\n";
    names += std::to_string(i) + ",person" + std::to_string(i) + "\n";
    texts += std::to_string(i) + ",text" + std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  }
  const Strange cases[] = {
      {"a,b,label\n", "has a header and no rows"},
      {"1\n2\n", "expected inputs and a label, got 1 column; commas, semicolons or tabs"},
      {"x;label\n0,5;a\n1,5;b\n", "line 2, column 1 is \"0,5\": numbers have a decimal point"},
      {"x,label\n12 %,a\n7 %,b\n", "line 2, column 1 is \"12 %\": numbers have a decimal point"},
      {"x,label\n\"1,200\",a\n\"-3,400\",b\n", "is \"1,200\": numbers have a decimal point"},
      {"x,label\n$3.50,a\n$4,b\n", "is \"$3.50\": numbers have a decimal point"},
      {"label\n1\n2\n", "expected inputs and a label, got 1 column;"},
      {"1,2,0\n1,apple,0\n2,3,1\n", "line 2, column 2: expected a number, got \"apple\""},
      {"a,label\n1,0\n\nnan,0\n2,1\n", "line 4, column 1: expected a value, got \"nan\""},
      {"1,a\n1,a\n", "expected two labels at least, got one, \"a\""},
      {"x,y\n1,\n2,a\n", "line 2, column 2: expected a label, got \"\""},
      {"a,a,label\n1,2,u\n3,4,v\n", "line 1 names two columns \"a\""},
      {"a,b,label\n1,,u\n2,,v\n", "column 2 has no value; --drop b"},
      {"1.5,2,y\n1,2,a\n1,2,b\n", "line 1 may be names or a row of numbers and its label"},
      {"1,2,y\n1,2,n\n1,2,y\n", "line 1 may be names or a row of numbers"},
      {prices.c_str(),
       "column \"price\" has 150 different labels in 150 rows: if it is a number to be predicted, "
       "add --task regression"},
      {names.c_str(), "column \"name\" has 150 different labels in 150 rows: texts that name rows are no classes"},
      {texts.c_str(),
       "has 150 different texts in 150 rows: they name rows, and are no kinds; --drop t leaves it out, --id t"},
      {counted.c_str(), "has a label and no inputs: ids are left out; --keep x takes them in"},
  };
  for (const Strange& strange : cases)
    expect_sentence(refusal([&] { (void)Table(strange.text); }), "t.csv", strange.part);
}

TEST(Table, WhatOptionsAskForMustBeThere) {
  const std::string text = "a,b,kind\n1,2,u\n3,4,v\n";
  const auto refused = [&](const TableOptions& options, const char* part, const std::string& table) {
    expect_sentence(refusal([&] { (void)Table(table, options); }), "t.csv", part);
  };
  TableOptions o;
  o.label = "c";
  refused(o, "has no column \"c\"; it has \"a\", \"b\", \"kind\"", text);
  o.label = "4";
  refused(o, "has no column \"4\"", text);
  o = {};
  o.drop = {"kind"};
  o.label = "kind";
  refused(o, "cannot be the label and be left out", text);
  o = {};
  o.drop = {"a", "b"};
  refused(o, "has a label and no inputs", text);
  o = {};
  o.id = "a";
  refused(o, "has no line of names, --id", "1,2,u\n3,4,v\n1,2,u\n");
  o = {};
  o.regression = true;
  refused(o, "line 2, column 3: expected the number to be predicted, of at most 3.4e38, got \"u\"", text);
  refused(o, "all labels are equal", "a,b\n1,5\n2,5\n");
}

}  // namespace
}  // namespace bie::formats::test
