#include "runtime/api/api_keys.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "config/toml.hpp"
#include "config/value.hpp"
#include "runtime/base/hash.hpp"

namespace mooncaf {

namespace {

/// Compares in a time that does not tell how much was right.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference |= static_cast<unsigned char>(b[i] ^ (a.empty() ? 0 : a[i % a.size()]));
  }
  return difference == 0;
}

tl::unexpected<error> cannot_open(const std::string& key, const std::string& path) {
  return fail(ec::io_error,
              "gateway." + key + ": cannot open " + path + ": " + std::generic_category().message(errno));
}

result<std::string> first_line(const std::string& path) {
  std::ifstream in{path};
  if (!in) return cannot_open("api_key_file", path);
  std::string key;
  if (!std::getline(in, key) || key.empty()) {
    return fail(ec::io_error, "gateway.api_key_file: no key on the first line of " + path);
  }
  return key;
}

/// @returns the complaint about the value, or nothing.
std::optional<std::string> set(tenant_settings& t, const config::toml_entry& e) {
  const auto number = [&](std::uint32_t& out) -> std::optional<std::string> {
    const auto value = config::parse_integer(e.value);
    if (!value || *value < 1 || *value > 1'000'000) return "must be a whole number from 1 to 1000000";
    out = static_cast<std::uint32_t>(*value);
    return std::nullopt;
  };
  const auto boolean = [&](bool& out) -> std::optional<std::string> {
    if (e.type != config::toml_type::boolean) return "must be true or false";
    out = e.value == "true";
    return std::nullopt;
  };
  if (e.key == "own_cache") return boolean(t.own_cache);
  if (e.key == "operates") return boolean(t.operates);
  if (e.key == "requests_per_minute") return number(t.per_minute);
  if (e.key == "max_concurrent") return number(t.concurrent);
  if (e.key == "share") return number(t.share);
  if (e.key == "priority") {
    constexpr std::string_view words[] = {"high", "normal", "low"};
    const auto i = std::ranges::find(words, e.value);
    if (i == std::end(words)) return "must be high, normal or low";
    t.priority = static_cast<std::uint8_t>(i - std::begin(words));
    return std::nullopt;
  }
  if (e.key != "key") {
    return "is unknown; known are key, own_cache, operates, priority, requests_per_minute, max_concurrent, "
           "share";
  }
  if (e.type != config::toml_type::string || e.value.empty()) return "must be a string that is not empty";
  t.key = e.value;
  return std::nullopt;
}

}  // namespace

std::string tenant::salt(std::string_view asked) const {
  if (settings_.own_cache) return "t" + settings_.name + '\0' + std::string{asked};
  return asked.empty() ? std::string{} : "c" + std::string{asked};
}

std::uint8_t tenant::priority(std::optional<std::uint8_t> asked) const {
  if (settings_.name.empty()) return asked.value_or(1);
  return std::max(asked.value_or(0), settings_.priority);
}

std::uint64_t tenant::number(std::string_view user) const {
  if (settings_.name.empty() && user.empty()) return 0;
  return hash_text128(settings_.name + '\0' + std::string{user}).low;
}

tl::expected<std::shared_ptr<void>, tenant::refusal> tenant::enter(time_point now, std::uint32_t answers) {
  const auto& s = settings_;
  for (const auto limit : {s.per_minute, s.concurrent}) {
    if (limit == 0 || answers <= limit) continue;
    return tl::unexpected(refusal{
        {ec::invalid_argument, "n: " + std::to_string(answers) +
                                   " answers are more than the limit of this key, " + std::to_string(limit)},
        {}});
  }
  const std::lock_guard lock{mutex_};
  if (s.concurrent > 0 && under_way_ + answers > s.concurrent) {
    return tl::unexpected(refusal{
        {ec::overloaded, "this key has its limit of " + std::to_string(s.concurrent) + " answers under way"},
        std::chrono::seconds(1)});
  }
  if (const auto wait = rate_.take(now, answers); wait > duration::zero()) {
    return tl::unexpected(refusal{
        {ec::overloaded, "this key has its limit of " + std::to_string(s.per_minute) + " answers a minute"},
        wait});
  }
  under_way_ += answers;
  return std::shared_ptr<void>(nullptr, [self = shared_from_this(), answers](void*) {
    const std::lock_guard held{self->mutex_};
    self->under_way_ -= answers;
  });
}

result<std::vector<tenant_settings>> api_keys::parse(std::string_view text, std::string_view name) {
  const auto entries = config::parse_toml(text, name);
  if (!entries) return fail(entries.error());
  std::vector<tenant_settings> out;
  const auto complain = [&](const config::toml_entry& e, const std::string& what) {
    return fail(ec::invalid_argument, std::string{name} + ":" + std::to_string(e.line) + ": " + e.section +
                                          "." + e.key + " " + what);
  };
  for (const auto& e : *entries) {
    if (e.section.empty()) return complain(e, "stands before the first [tenant]");
    if (out.empty() || out.back().name != e.section) {
      out.emplace_back();
      out.back().name = e.section;
    }
    if (const auto wrong = set(out.back(), e)) return complain(e, *wrong);
    const auto same = [&](const tenant_settings& t) { return t.key == e.value && &t != &out.back(); };
    if (e.key == "key" && std::ranges::any_of(out, same)) return complain(e, "is another tenant's key, too");
  }
  for (const auto& t : out) {
    if (t.key.empty())
      return fail(ec::invalid_argument, std::string{name} + ": tenant " + t.name + " has no key");
  }
  if (out.empty()) return fail(ec::invalid_argument, std::string{name} + ": has no tenant");
  return out;
}

result<api_keys> api_keys::load(const gateway_options& options) {
  std::vector<tenant_settings> all;
  const auto add = [&](std::string key) {
    tenant_settings t;
    t.key = std::move(key);
    t.operates = true;
    all.push_back(std::move(t));
  };
  if (!options.api_key_file.empty()) {
    auto key = first_line(options.api_key_file);
    if (!key) return fail(key.error());
    add(std::move(*key));
  } else if (!options.api_key.empty()) {
    add(options.api_key);
  } else if (const char* key = std::getenv("MOONCAF_API_KEY"); key && *key) {
    add(key);
  }
  if (!options.api_keys_file.empty()) {
    std::ifstream in{options.api_keys_file};
    if (!in) return cannot_open("api_keys_file", options.api_keys_file);
    const std::string text{std::istreambuf_iterator<char>{in}, {}};
    auto parsed = parse(text, options.api_keys_file);
    if (!parsed) return fail(parsed.error());
    std::ranges::move(*parsed, std::back_inserter(all));
  }
  return api_keys{std::move(all)};
}

api_keys::api_keys(std::vector<tenant_settings> tenants) {
  for (auto& t : tenants) tenants_.push_back(std::make_shared<tenant>(std::move(t)));
  tenant_settings open;
  open.operates = true;
  anybody_ = std::make_shared<tenant>(std::move(open));
}

std::shared_ptr<tenant> api_keys::find(std::string_view authorization) const {
  if (!needed()) return anybody_;
  constexpr std::string_view scheme = "Bearer ";
  if (!authorization.starts_with(scheme)) return nullptr;
  const auto given = authorization.substr(scheme.size());
  std::shared_ptr<tenant> found;
  for (const auto& t : tenants_) {
    if (same_secret(given, t->settings().key)) found = t;
  }
  return found;
}

}  // namespace mooncaf
