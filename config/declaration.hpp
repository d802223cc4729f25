#pragma once
// One option, declared once: its names, meaning, range and place. Reading, checking, help, --print-config and
// the example file all come from it.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "config/toml.hpp"

namespace mooncaf::config {

/// See the folder's README for how to add one.
struct declaration {
  std::string name;         ///< on the command line: --NAME
  std::string section;      ///< in TOML: [section]
  std::string key;          ///< in TOML: the name, less the section's, with underscores
  std::string placeholder;  ///< "N", "SIZE", "TIME", …; empty: a flag
  std::string meaning;      ///< one sentence, no full stop
  std::string allowed;      ///< "16 to 512 tokens"; "one of lru, lfu"; empty: any text
  std::string roles;        ///< roles that read it: "all", "prefill", …
  toml_type type = toml_type::string;
  /// Puts the value into the options. @returns a complaint ("8 is out of range"), or nothing.
  std::function<std::optional<std::string>(options&, std::string_view)> set;
  std::function<std::string(const options&)> show;  ///< the value as `set` reads it

  std::string toml_name() const { return section + "." + key; }
};

struct section_info {
  std::string name;
  std::string title;
};

/// All of them, sections in the order of the help.
const std::vector<declaration>& declarations();
const std::vector<section_info>& sections();

/// Null if there is none.
const declaration* find_option(std::string_view name);
const declaration* find_key(std::string_view section, std::string_view key);

}  // namespace mooncaf::config
