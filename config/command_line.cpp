#include "config/command_line.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/manual.hpp"
#include "config/value.hpp"

namespace mooncaf::cli {

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

tl::unexpected<error> refuse(std::string why) { return fail(ec::invalid_argument, std::move(why)); }

std::string unknown(const command_line& line, std::string_view name) {
  if (name == "help") return "--help takes no value but man and words";
  std::vector<std::string> names{"help"};
  for (const auto& a : line.arguments) names.push_back(a.name);
  const auto near = config::nearest(name, names);
  return "unknown option --" + std::string{name} +
         (near.empty() ? "; --help lists them" : "; did you mean --" + near + "?");
}

/// An option as it was written.
struct written {
  std::string_view name;
  std::optional<std::string_view> value;  ///< behind "="
};

/// The option that `w` means, and whether it is written as "--no-NAME".
std::pair<const argument*, bool> find(const command_line& line, const written& w) {
  const auto named = [&](std::string_view name) -> const argument* {
    const auto at = std::ranges::find(line.arguments, name, &argument::name);
    return at == line.arguments.end() ? nullptr : &*at;
  };
  if (const auto* a = named(w.name)) return {a, false};
  if (!w.name.starts_with("no-") || w.value) return {nullptr, false};
  const auto* a = named(w.name.substr(3));
  return {a != nullptr && a->negatable ? a : nullptr, true};
}

}  // namespace

result<parsed> parse(command_line& line, std::span<const std::string> args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    // Help is an answer whatever else is on the line, even where that is wrong further on.
    if (const auto form = help_asked(arg)) {
      line.form = *form;
      return parsed::help;
    }
    if (!arg.starts_with("--") || arg.size() == 2) {
      line.words.emplace_back(arg);
      continue;
    }
    const auto equals = std::min(arg.find('='), arg.size());
    written w{arg.substr(2, equals - 2), std::nullopt};
    if (equals < arg.size()) w.value = arg.substr(equals + 1);
    const auto [known, negated] = find(line, w);
    if (known == nullptr) return refuse(unknown(line, w.name));
    const auto name = "--" + known->name;
    if (known->placeholder.empty()) {
      if (w.value && !known->negatable) return refuse(name + " takes no value");
      if (!w.value) w.value = negated ? "false" : "true";
    } else if (!w.value) {
      if (i + 1 == args.size() || args[i + 1].starts_with("--"))
        return refuse(name + " needs a value: " + name + " " + known->placeholder +
                      (known->allowed.empty() ? "" : "; allowed: " + known->allowed));
      w.value = args[++i];
    }
    if (const auto wrong = known->set(*w.value)) return refuse(name + ": " + *wrong);
  }
  return parsed::run;
}

void print_help(const command_line& line, std::ostream& out) {
  if (line.form == help_form::man) return print_manual(line, out);
  if (line.form == help_form::words) return print_words(line, out);
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

}  // namespace mooncaf::cli
