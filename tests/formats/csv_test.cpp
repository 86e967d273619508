// Tables as text: RFC 4180, and what spreadsheets make of it.
#include "bie/formats/csv.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const std::string& text, char comment = 0) {
  const Scratch scratch;
  write_file(scratch.path("t.csv"), text);
  const CsvText csv = load_csv(scratch.path("t.csv"), {comment});
  Rows rows;
  for (std::int64_t row = 0; row < csv.rows(); ++row) {
    rows.emplace_back();
    for (std::int64_t column = 0; column < csv.columns(); ++column) rows.back().emplace_back(csv.at(row, column));
  }
  return rows;
}

TEST(Csv, FieldsOfRfc4180) {
  EXPECT_EQ(rows_of("a,b\r\nc,d\r\n"), (Rows{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(rows_of("a,b\nc,d"), (Rows{{"a", "b"}, {"c", "d"}})) << "no line break at the end";
  EXPECT_EQ(rows_of("\"a,1\",\"say \"\"b\"\"\"\nc,\n"), (Rows{{"a,1", "say \"b\""}, {"c", ""}}));
  EXPECT_EQ(rows_of("\"two\r\nlines\",b\n"), (Rows{{"two\r\nlines", "b"}}));
  EXPECT_EQ(rows_of("\"\",\"\"\n"), (Rows{{"", ""}}));
}

TEST(Csv, SeparatorsLinesAndMarks) {
  EXPECT_EQ(rows_of("a;b,c\n1;2,5\n"), (Rows{{"a", "b,c"}, {"1", "2,5"}}));
  EXPECT_EQ(rows_of("\"a,b\"\tc\n"), (Rows{{"a,b", "c"}}));
  EXPECT_EQ(rows_of("\xef\xbb\xbf a , \"b\" \n\n \t\nc,d\n"), (Rows{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(rows_of("a,b\rc,d\r\re,f"), (Rows{{"a", "b"}, {"c", "d"}, {"e", "f"}})) << "carriage returns alone";
  EXPECT_EQ(rows_of("# said\na,b\n#c,d\n\"x\n#y\",e\n", '#'), (Rows{{"a", "b"}, {"x\n#y", "e"}}));
}

TEST(Csv, TheSeparatorIsTheOneThatIsRegular) {
  EXPECT_EQ(rows_of("sep=;\na;b,c\n1;2\n"), (Rows{{"a", "b,c"}, {"1", "2"}}));
  EXPECT_EQ(rows_of("\xef\xbb\xbf\"sep=,\"\r\na;b,c\r\n"), (Rows{{"a;b", "c"}}));
  EXPECT_EQ(rows_of("Temp (C, mean);Hum;label\n1;2;a\n3;4;b\n"),
            (Rows{{"Temp (C, mean)", "Hum", "label"}, {"1", "2", "a"}, {"3", "4", "b"}}));
  EXPECT_EQ(rows_of("1,5;2,5;a\n3,5;4,5;b\n"), (Rows{{"1,5", "2,5", "a"}, {"3,5", "4,5", "b"}})) << "decimal commas";
  EXPECT_EQ(rows_of("a,b;c\n1,2;3\n"), (Rows{{"a", "b;c"}, {"1", "2;3"}})) << "the first, where both are regular";
}

TEST(Csv, ASeparatorBehindEachLineHasNoColumn) {
  EXPECT_EQ(rows_of("a,b,\n1,2,\n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows_of("a,b,\n1,2,3\n"), (Rows{{"a", "b", ""}, {"1", "2", "3"}}));
}

TEST(Csv, NumbersOfOtherCountries) {
  double number = 0;
  const NumberForm german{',', '.'}, british{'.', ','}, swiss{'.', '\''};
  EXPECT_TRUE(csv_number("-1.234.567,25", &number, german));
  EXPECT_EQ(number, -1234567.25);
  EXPECT_TRUE(csv_number("1,234", &number, british));
  EXPECT_EQ(number, 1234);
  EXPECT_TRUE(csv_number("12'345.5", &number, swiss));
  EXPECT_EQ(number, 12345.5);
  EXPECT_TRUE(csv_number("0,5", &number, {','}));
  EXPECT_EQ(number, 0.5);
  for (const char* text : {"1.5", "1.23.456,0", "1234.567", ".123"})
    EXPECT_FALSE(csv_number(text, &number, german)) << text;
  EXPECT_FALSE(csv_number("1.5", &number, {','})) << "no decimal sign, and no sign between thousands";
  EXPECT_FALSE(csv_number("1,23", &number, british));
}

TEST(Csv, RowsKnowTheirLines) {
  const Scratch scratch;
  write_file(scratch.path("t.csv"), "\na,b\n\"c\n\n\",d\ne,f\n");
  const CsvText csv = load_csv(scratch.path("t.csv"));
  EXPECT_EQ(csv.line(0), 2);
  EXPECT_EQ(csv.line(1), 3);
  EXPECT_EQ(csv.line(2), 6);
}

TEST(Csv, WhatIsNoTableIsRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("t.csv");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is empty"},
      {"\n \r\n", "is empty"},
      {"1,2,3\n4,5\n", "line 2 has 2 columns, the first has 3"},
      {"1,2\n3,4,5\n", "line 2 has 3 columns, the first has 2"},
      {std::string("1,0\n\0,1\n", 8), "zero byte"},
      {"\xff\xfe"
       "1\0",
       "is UTF-16"},
      {"a,b\ngr\xfcn,1\n", "line 2 is not UTF-8; iconv -f WINDOWS-1252"},
      {"a,b\n1,\"c\n2,d\n", "line 2 has a quote that does not end"},
      {"a,b\n1,\"c\"d\n", "line 2 has a quote inside of a field"},
      {"a,b\n1,5\" pipe\n", "line 2 has a quote inside of a field"},
      {std::string(200000, ',') + "\n", "expected at most 65536 numbers a row, got"},
  };
  for (const auto& [text, part] : cases) {
    write_file(path, text);
    expect_sentence(refusal([&] { load_csv(path); }), path, part);
  }
  expect_sentence(refusal([&] { load_csv(scratch.path("none")); }), scratch.path("none"), "cannot be opened");
}

TEST(Csv, NumbersAndWhatIsMissing) {
  double number = 0;
  for (const char* text : {"1", "+1", "1e0", "1.0"}) {
    EXPECT_TRUE(csv_number(text, &number)) << text;
    EXPECT_EQ(number, 1) << text;
  }
  EXPECT_TRUE(csv_number("1e-400", &number));
  EXPECT_EQ(number, 0);
  for (const char* text : {"", "1x", "0x1", "1,5", "1e39", "1e400", "nan", "inf", "--1", "1 2"})
    EXPECT_FALSE(csv_number(text, &number)) << text;
  for (const char* text : {"", "?", "NA", "n/a", "#N/A", "NaN", "null", "None", "-inf"})
    EXPECT_TRUE(csv_is_missing(text)) << text;
  EXPECT_FALSE(csv_is_missing("0"));
}

TEST(Csv, FieldsAreWrittenSoThatTheyAreReadAgain) {
  for (const std::string text : {"a", "", "a,b", "say \"b\"", "two\nlines", "x;y"}) {
    const Rows rows = rows_of("first," + csv_field(text) + "\n");
    EXPECT_EQ(rows, (Rows{{"first", text}}));
  }
}

}  // namespace
}  // namespace bie::formats::test
