#include "runtime/sim/cli/arguments.hpp"

#include <algorithm>
#include <cmath>

#include "config/value.hpp"

namespace mooncaf::sim {

namespace {

std::string quoted(std::string_view v) { return "'" + std::string{v} + "'"; }

template <class Int>
argument whole_number(std::string name, std::string meaning, Int& at, Int min, Int max) {
  const auto range = std::to_string(min) + " to " + std::to_string(max);
  meaning += " (" + range + "; default " + std::to_string(at) + ")";
  return {std::move(name), "N", std::move(meaning),
          [&at, min, max, range](std::string_view v) -> std::optional<std::string> {
            const auto n = config::parse_integer(v);
            if (!n || *n < min || *n > max) return quoted(v) + " is not a whole number from " + range;
            at = static_cast<Int>(*n);
            return std::nullopt;
          }};
}

std::string unknown(const command_line& line, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& a : line.arguments) names.push_back(a.name);
  const auto near = config::nearest(name, names);
  return "no option --" + std::string{name} +
         (near.empty() ? "; --help lists them" : "; did you mean --" + near + "?");
}

}  // namespace

result<parsed> parse(command_line& line, std::span<const std::string> args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    if (arg == "--help" || arg == "-h") return parsed::help;
    if (!arg.starts_with("--")) {
      line.words.emplace_back(arg);
      continue;
    }
    const auto equals = arg.find('=');
    const auto name = arg.substr(2, equals == std::string_view::npos ? equals : equals - 2);
    const auto known = std::ranges::find(line.arguments, name, &argument::name);
    if (known == line.arguments.end()) return fail(ec::invalid_argument, unknown(line, name));
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = arg.substr(equals + 1);
      if (known->placeholder.empty())
        return fail(ec::invalid_argument, "--" + known->name + " takes no value");
    } else if (!known->placeholder.empty()) {
      if (++i == args.size()) return fail(ec::invalid_argument, "--" + known->name + " needs a value");
      value = args[i];
    }
    if (const auto wrong = known->set(value)) {
      return fail(ec::invalid_argument, "--" + known->name + ": " + *wrong);
    }
  }
  return parsed::run;
}

void print_help(const command_line& line, std::ostream& out) {
  out << "usage: " << line.usage << "\n\n" << line.summary << "\n\n";
  for (const auto& a : line.arguments) {
    auto head = "  --" + a.name + (a.placeholder.empty() ? "" : " " + a.placeholder);
    if (head.size() < 26) head.resize(26, ' ');
    else head += "\n" + std::string(26, ' ');
    out << head << a.meaning << "\n";
  }
}

argument flag(std::string name, std::string meaning, bool& at) {
  return {std::move(name), "", std::move(meaning), [&at](std::string_view) -> std::optional<std::string> {
            at = true;
            return std::nullopt;
          }};
}

argument text(std::string name, std::string placeholder, std::string meaning, std::string& at) {
  return {std::move(name), std::move(placeholder), std::move(meaning),
          [&at](std::string_view v) -> std::optional<std::string> {
            at = std::string{v};
            return std::nullopt;
          }};
}

argument whole(std::string name, std::string meaning, std::uint64_t& at, std::uint64_t min,
               std::uint64_t max) {
  return whole_number(std::move(name), std::move(meaning), at, min, max);
}
argument whole(std::string name, std::string meaning, std::uint32_t& at, std::uint32_t min,
               std::uint32_t max) {
  return whole_number(std::move(name), std::move(meaning), at, min, max);
}

argument real(std::string name, std::string meaning, double& at, double min, double max) {
  const auto show = [](double v) { return std::isinf(v) ? std::string{"inf"} : config::format_real(v); };
  const auto range = show(min) + " to " + show(max);
  meaning += " (" + range + "; default " + show(at) + ")";
  return {std::move(name), "X", std::move(meaning),
          [&at, min, max, range](std::string_view v) -> std::optional<std::string> {
            const auto n = v == "inf" && std::isinf(max) ? max : config::parse_real(v);
            if (!n || *n < min || *n > max) return quoted(v) + " is not a number from " + range;
            at = *n;
            return std::nullopt;
          }};
}

argument seconds(std::string name, std::string meaning, double& at, double min, double max) {
  const auto show = [](double s) {
    return config::format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(s * 1e9)});
  };
  const auto range = show(min) + " to " + show(max);
  meaning += " (" + range + "; default " + show(at) + ")";
  return {std::move(name), "TIME", std::move(meaning),
          [&at, min, max, range](std::string_view v) -> std::optional<std::string> {
            const auto t = config::parse_duration(v);
            const double s = t ? static_cast<double>(t->count()) * 1e-9 : 0;
            if (!t || s < min || s > max) return quoted(v) + " is not a time with its unit from " + range;
            at = s;
            return std::nullopt;
          }};
}

argument seconds(std::string name, std::string meaning, duration& at, duration min, duration max) {
  const auto range = config::format_duration(min) + " to " + config::format_duration(max);
  meaning += " (" + range + "; default " + config::format_duration(at) + ")";
  return {std::move(name), "TIME", std::move(meaning),
          [&at, min, max, range](std::string_view v) -> std::optional<std::string> {
            const auto t = config::parse_duration(v);
            if (!t || *t < min || *t > max) return quoted(v) + " is not a time with its unit from " + range;
            at = *t;
            return std::nullopt;
          }};
}

argument choice(std::string name, std::string meaning, std::vector<std::string> words, std::size_t current,
                std::function<void(std::size_t)> take) {
  std::string all;
  for (const auto& w : words) all += (all.empty() ? "" : "|") + w;
  meaning += " (default " + words[current] + ")";
  return {std::move(name), all, std::move(meaning),
          [words = std::move(words), all,
           take = std::move(take)](std::string_view v) -> std::optional<std::string> {
            const auto i = std::ranges::find(words, v);
            if (i == words.end()) return quoted(v) + " is none of " + all;
            take(static_cast<std::size_t>(i - words.begin()));
            return std::nullopt;
          }};
}

}  // namespace mooncaf::sim
