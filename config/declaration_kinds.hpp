#pragma once
// The kinds of option that declarations.cpp builds its table from. Each ties text, range and place together.

#include <algorithm>
#include <array>
#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "config/declaration.hpp"
#include "config/device_name.hpp"
#include "config/value.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/base/words.hpp"

namespace mooncaf::config {

/// The part of a declaration that every kind of option has.
struct naming {
  std::string name;
  std::string key;
  std::string meaning;
  std::string roles = "all";
};

template <class Section, class Value>
struct place {
  Section options::*section;
  Value Section::*field;

  Value& in(options& o) const { return o.*section.*field; }
  const Value& in(const options& o) const { return o.*section.*field; }
};

template <class Section, class Value>
place<Section, Value> at(Section options::*section, Value Section::*field) {
  return {section, field};
}

using table = std::vector<declaration>;

inline std::string quoted(std::string_view text) { return "\"" + std::string{text} + "\""; }

inline declaration make_declaration(naming n, std::string section, std::string placeholder,
                                    std::string allowed, toml_type type) {
  declaration d;
  d.name = std::move(n.name);
  d.section = std::move(section);
  d.key = std::move(n.key);
  d.placeholder = std::move(placeholder);
  d.meaning = std::move(n.meaning);
  d.allowed = std::move(allowed);
  d.roles = std::move(n.roles);
  d.type = type;
  return d;
}

/// A whole number in [min, max]. @param unit  may be empty.
template <class Section, std::unsigned_integral Value>
declaration integer(naming n, const std::string& section, place<Section, Value> at, Value min, Value max,
                    const std::string& unit) {
  const std::string range =
      std::to_string(min) + " to " + std::to_string(max) + (unit.empty() ? "" : " " + unit);
  declaration d = make_declaration(std::move(n), section, "N", range, toml_type::number);
  d.set = [=](options& o, std::string_view text) -> std::optional<std::string> {
    const auto value = parse_integer(text);
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
    if (!value && !digits) return quoted(text) + " is not a whole number";
    if (!value || *value < min || *value > max) return std::string{text} + " is out of range";
    at.in(o) = static_cast<Value>(*value);
    return std::nullopt;
  };
  d.show = [=](const options& o) { return std::to_string(at.in(o)); };
  return d;
}

/// A number in [min, max], or in (min, max] with `above_min`.
template <class Section>
declaration real(naming n, const std::string& section, place<Section, double> at, double min, double max,
                 bool above_min) {
  const std::string range =
      (above_min ? "above " : "") + format_real(min) + (above_min ? ", at most " : " to ") + format_real(max);
  declaration d = make_declaration(std::move(n), section, "X", range, toml_type::number);
  d.set = [=](options& o, std::string_view text) -> std::optional<std::string> {
    const auto value = parse_real(text);
    if (!value) return quoted(text) + " is not a number";
    if (*value < min || *value > max || (above_min && *value == min))
      return std::string{text} + " is out of range";
    at.in(o) = *value;
    return std::nullopt;
  };
  d.show = [=](const options& o) { return format_real(at.in(o)); };
  return d;
}

/// Bounds of a count: "2-8".
template <class Section>
declaration range(naming n, const std::string& section, place<Section, instance_range> at) {
  declaration d = make_declaration(std::move(n), section, "MIN-MAX",
                                   "1 to 8191 each, the less first, or empty", toml_type::string);
  d.set = [=](options& o, std::string_view text) -> std::optional<std::string> {
    const auto value = text.empty() ? instance_range{} : parse_range(text);
    if (!value) return quoted(text) + " is not two numbers with a dash between them, such as 2-8";
    at.in(o) = *value;
    return std::nullopt;
  };
  d.show = [=](const options& o) -> std::string {
    const auto& r = at.in(o);
    return r.scales() ? std::to_string(r.least) + "-" + std::to_string(r.most) : "";
  };
  return d;
}

template <class Section>
declaration flag(naming n, const std::string& section, place<Section, bool> at) {
  declaration d = make_declaration(std::move(n), section, "", "true or false", toml_type::boolean);
  d.set = [=](options& o, std::string_view text) -> std::optional<std::string> {
    const auto value = parse_flag(text);
    if (!value) return quoted(text) + " is neither true nor false";
    at.in(o) = *value;
    return std::nullopt;
  };
  d.show = [=](const options& o) -> std::string { return at.in(o) ? "true" : "false"; };
  return d;
}

/// A number of bytes with its unit.
template <class Section>
declaration size(naming n, const std::string& section, place<Section, std::uint64_t> at, std::uint64_t min,
                 std::uint64_t max) {
  declaration d = make_declaration(std::move(n), section, "SIZE",
                                   format_size(min) + " to " + format_size(max), toml_type::string);
  d.set = [=](options& o, std::string_view text) -> std::optional<std::string> {
    const auto value = parse_size(text);
    if (!value) return quoted(text) + " is not a size with its unit, such as 512MiB or 2GiB";
    if (*value < min || *value > max) return std::string{text} + " is out of range";
    at.in(o) = *value;
    return std::nullopt;
  };
  d.show = [=](const options& o) { return format_size(at.in(o)); };
  return d;
}

template <class Section>
declaration time(naming n, const std::string& section, place<Section, std::chrono::nanoseconds> at,
                 std::chrono::nanoseconds min, std::chrono::nanoseconds max) {
  declaration d = make_declaration(std::move(n), section, "TIME",
                                   format_duration(min) + " to " + format_duration(max), toml_type::string);
  d.set = [=](options& o, std::string_view text) -> std::optional<std::string> {
    const auto value = parse_duration(text);
    if (!value) return quoted(text) + " is not a time with its unit, such as 250ms or 30s";
    if (*value < min || *value > max) return std::string{text} + " is out of range";
    at.in(o) = *value;
    return std::nullopt;
  };
  d.show = [=](const options& o) { return format_duration(at.in(o)); };
  return d;
}

template <class Value>
using named_values = std::vector<std::pair<std::string, Value>>;

/// One of a few words. Strings are their own value.
template <class Section, class Value>
declaration choice(naming n, const std::string& section, place<Section, Value> at,
                   named_values<Value> choices) {
  std::string allowed;
  for (const auto& [word, value] : choices) allowed += (allowed.empty() ? "one of " : ", ") + word;
  declaration d = make_declaration(std::move(n), section, "WORD", allowed, toml_type::string);
  d.set = [=](options& o, std::string_view text) -> std::optional<std::string> {
    for (const auto& [word, value] : choices) {
      if (word != text) continue;
      at.in(o) = value;
      return std::nullopt;
    }
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) words.push_back(word);
    const std::string near = nearest(text, words);
    return quoted(text) + " is not among the choices" + (near.empty() ? "" : " (did you mean " + near + "?)");
  };
  d.show = [=](const options& o) {
    for (const auto& [word, value] : choices)
      if (value == at.in(o)) return word;
    return std::string{};
  };
  return d;
}

/// One of an enumeration's values. @param among  all of them by default
template <class Section, worded Value>
declaration choice(naming n, const std::string& section, place<Section, Value> at,
                   const std::vector<Value>& among = all_values<Value>()) {
  named_values<Value> choices;
  for (const auto value : among) choices.emplace_back(to_string(value), value);
  return choice<Section, Value>(std::move(n), section, at, std::move(choices));
}

/// Any UTF-8 text without control characters: it ends up in logs, labels and JSON.
template <class Section>
declaration text(naming n, const std::string& section, place<Section, std::string> at,
                 const std::string& placeholder) {
  declaration d = make_declaration(std::move(n), section, placeholder, "", toml_type::string);
  d.set = [=](options& o, std::string_view given) -> std::optional<std::string> {
    for (const char c : given)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return "control characters are not allowed";
    if (!utf8::is_well_formed(given)) return "the text is not UTF-8";
    at.in(o) = std::string{given};
    return std::nullopt;
  };
  d.show = [=](const options& o) { return at.in(o); };
  return d;
}

/// The device that computes. Whether a profile can be read shows when it is read.
template <class Section>
declaration device(naming n, const std::string& section, place<Section, std::string> at) {
  declaration d = text(std::move(n), section, at, "DEVICE");
  d.allowed = "auto, host, linked, cuda, cuda:N or model:PROFILE";
  d.set = [set = d.set](options& o, std::string_view given) -> std::optional<std::string> {
    const bool modelled = given.starts_with("model:") && given.size() > 6;
    if (given != "auto" && given != "host" && given != "linked" && !cuda_ordinal(given) && !modelled)
      return quoted(given) + " is no device";
    return set(o, given);
  };
  return d;
}

inline constexpr const char* endpoint_form = "HOST:PORT, port 0 to 65535 (0: the system picks one)";

template <class Section>
declaration endpoint(naming n, const std::string& section, place<Section, host_port> at) {
  declaration d = make_declaration(std::move(n), section, "HOST:PORT", endpoint_form, toml_type::string);
  d.set = [=](options& o, std::string_view given) -> std::optional<std::string> {
    const auto value = parse_endpoint(given);
    if (!value) return quoted(given) + " is not an endpoint, such as 127.0.0.1:8000 or [::1]:8000";
    at.in(o) = *value;
    return std::nullopt;
  };
  d.show = [=](const options& o) { return to_string(at.in(o)); };
  return d;
}

/// An endpoint, or nothing for an empty text. @param port_min  1 where others have to find it.
template <class Section>
declaration optional_endpoint(naming n, const std::string& section,
                              place<Section, std::optional<host_port>> at, std::uint16_t port_min) {
  const auto range = "HOST:PORT, port " + std::to_string(port_min) + " to 65535, or empty";
  declaration d = make_declaration(std::move(n), section, "HOST:PORT", range, toml_type::string);
  d.set = [=](options& o, std::string_view given) -> std::optional<std::string> {
    const auto value = parse_endpoint(given);
    if (!given.empty() && (!value || value->port < port_min))
      return quoted(given) + " is not an endpoint, such as 10.0.0.1:7400";
    at.in(o) = value;
    return std::nullopt;
  };
  d.show = [=](const options& o) { return at.in(o) ? to_string(*at.in(o)) : std::string{}; };
  return d;
}

/// Endpoints that others have to find, one or more, or none.
template <class Section>
declaration endpoint_list(naming n, const std::string& section, place<Section, std::vector<host_port>> at) {
  declaration d =
      make_declaration(std::move(n), section, "HOST:PORT,…",
                       "HOST:PORT, or several with commas, port 1 to 65535; or empty", toml_type::string);
  d.set = [=](options& o, std::string_view given) -> std::optional<std::string> {
    std::vector<host_port> all;
    while (!given.empty()) {
      const auto one = given.substr(0, given.find(','));
      const auto value = parse_endpoint(one);
      if (!value || value->port == 0) return quoted(one) + " is not an endpoint, such as 10.0.0.1:7400";
      if (std::ranges::find(all, *value) != all.end()) return quoted(one) + " is there twice";
      all.push_back(*value);
      given.remove_prefix(std::min(one.size() + 1, given.size()));
    }
    at.in(o) = std::move(all);
    return std::nullopt;
  };
  d.show = [=](const options& o) {
    std::string out;
    for (const auto& one : at.in(o)) out += (out.empty() ? "" : ",") + to_string(one);
    return out;
  };
  return d;
}

/// Of the object store (store_declarations.cpp).
void add_store(table& t);

}  // namespace mooncaf::config
