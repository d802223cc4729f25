// Any bytes are a configuration file, or a command line, to somebody: reading ends in an error that says
// where, or in options that print and read back to themselves.

#include <cstdlib>

#include "config/options.hpp"

using namespace mooncaf;

namespace {

void check_round_trip(const options& values) {
  const std::string printed = to_toml(values);
  const auto again = parse_options({}, printed, "printed.toml");
  if (!again || to_toml(again->values) != printed) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  if (size > 0 && data[0] == '-') {  // a command line, one argument a line
    std::vector<std::string> args;
    for (std::size_t begin = 0; begin <= size;) {
      const std::size_t end = std::min(text.find('\n', begin), size);
      args.emplace_back(text.substr(begin, end - begin));
      if (args.back().starts_with("--config")) return 0;  // no files here
      begin = end + 1;
    }
    const auto parsed = parse_options(args);
    if (parsed) check_round_trip(parsed->values);
    if (!parsed && parsed.error().detail.empty()) std::abort();
    return 0;
  }
  const auto parsed = parse_options({}, text, "fuzz.toml");
  if (parsed) check_round_trip(parsed->values);
  if (!parsed && parsed.error().detail.empty()) std::abort();
  return 0;
}
