// How a run's data were read, as its config.json keeps it.
#pragma once

#include <string>

#include "bie/data/dataset.h"
#include "cli/support/result.h"

namespace bie::cli {

Json data_options_json(const data::DataOptions& options);

/// The options that read a run's data once more for the model that it trained. They name the files, the parts and the
/// form of the text; the form of a table's columns is the model's, see use_form.
/// @param config  config.json; one of an older build lacks options, which then have their defaults.
/// @throws c10::ValueError, one sentence that names `path`, for an entry of another type.
data::DataOptions data_options_of(const Json& config, const std::string& path);

}  // namespace bie::cli
