// `bie train --run DIR --resume`: the rest of the command is in the folder.
#pragma once

#include <string>
#include <vector>

namespace bie::cli {

/// The words of a command line. Of one that says of a training nothing but --run, --resume and --epochs, and the
/// options that stand before any command, those of the run itself with what is said in their place.
/// @throws c10::ValueError where the run's config.json does not say its command.
std::vector<std::string> resumed_words(const std::vector<std::string>& words);

/// Takes an option and its value out.
void take_out(std::vector<std::string>& words, const std::string& name);

}  // namespace bie::cli
