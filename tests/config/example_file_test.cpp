#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "config/declaration.hpp"

using namespace mooncaf;

TEST_CASE("the example file is what the declarations say; MOONCAF_REWRITE_GOLDEN=1 rewrites it") {
  const std::string path = MOONCAF_CONFIG_DIR "/mooncaf.example.toml";
  if (std::getenv("MOONCAF_REWRITE_GOLDEN") != nullptr) std::ofstream(path) << example_toml();
  std::ifstream in(path);
  REQUIRE(in.good());
  std::stringstream text;
  text << in.rdbuf();
  CHECK(text.str() == example_toml());
}

TEST_CASE("the example file holds every option at its default") {
  const auto parsed = parse_options({}, example_toml(), "example");
  REQUIRE_MESSAGE(parsed.has_value(), (parsed ? "" : to_string(parsed.error())));
  CHECK(to_toml(parsed->values) == to_toml(default_options()));
  for (const auto& d : config::declarations())
    CHECK(example_toml().find("\n" + d.key + " = ") != std::string::npos);
}

TEST_CASE("every option has a name, a key, a meaning and a section of its own, and a default in its range") {
  std::set<std::string> names, keys;
  for (const auto& d : config::declarations()) {
    INFO(d.name);
    CHECK(names.insert(d.name).second);
    CHECK(keys.insert(d.toml_name()).second);
    CHECK(!d.meaning.empty());
    CHECK(d.meaning.back() != '.');
    CHECK(d.name.find('_') == std::string::npos);
    CHECK(d.key.find('-') == std::string::npos);
    bool section_known = false;
    for (const auto& s : config::sections()) section_known = section_known || s.name == d.section;
    CHECK(section_known);
    options o = default_options();
    CHECK(!d.set(o, d.show(o)));
    CHECK(to_toml(o) == to_toml(default_options()));
  }
}

TEST_CASE("help names every option and stays within the line") {
  const std::string help = help_text();
  for (const auto& d : config::declarations()) CHECK(help.find("  --" + d.name) != std::string::npos);
  std::stringstream lines(help);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 110, line);
}
