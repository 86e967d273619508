// Options about tables that both programs have. Knows no torch.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "bie/formats/table.h"

namespace bie::cli {

/// --comment, --header, --decimal, --thousands and --missing-words of a command that trains on tables.
void add_table_form(CLI::App& command, formats::CsvForm& csv, formats::TableOptions& table, const std::string& group);

/// The same and --drop and --unseen of a command that asks a model about tables.
void add_asked_table(CLI::App& command, formats::CsvForm& csv, formats::AskedTable& asked, const std::string& group);

/// --drop and --keep take names or places of columns, and may be repeated.
CLI::Option* add_columns(CLI::App& command, const char* option, std::vector<std::string>& columns,
                         const std::string& what, const std::string& group);

}  // namespace bie::cli
