#include "runtime/sim/profile.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <variant>

#include "config/toml.hpp"
#include "config/value.hpp"
#include "runtime/sim/builtin_profiles.hpp"
#include "runtime/sim/derived_profile.hpp"

namespace mooncaf::sim {

namespace {

/// One number of a profile: its place and its bounds. Times are written in the unit of the key.
struct profile_field {
  const char* section;
  const char* key;
  std::variant<std::uint32_t profile::*, std::uint64_t profile::*, double profile::*, double step_costs::*>
      at;
  double scale;  ///< of the written number, to get ours
  double min, max;
  bool can_be_left_out = false;  ///< its default is right wherever nothing is said
};

constexpr double ms = 1e-3, us = 1e-6, ns = 1e-9;

const std::array profile_fields{
    profile_field{"model", "layers", &profile::layers, 1, 1, 10'000},
    profile_field{"model", "kv_bytes_per_token", &profile::kv_bytes_per_token, 1, 1, 1e9},
    profile_field{"model", "block_tokens", &profile::block_tokens, 1, 1, 65'536},
    profile_field{"prefill", "constant_ms", &step_costs::prefill_constant_s, ms, 0, 1e6},
    profile_field{"prefill", "token_us", &step_costs::prefill_token_s, us, 0, 1e9},
    profile_field{"prefill", "pair_ns", &step_costs::prefill_pair_s, ns, 0, 1e9},
    profile_field{"prefill", "cached_token_us", &step_costs::prefill_cached_token_s, us, 0, 1e9},
    profile_field{"prefill", "beside_decode", &step_costs::prefill_beside_decode, 1, 1, 1000, true},
    profile_field{"prefill", "chunk_tokens", &profile::chunk_tokens, 1, 1, 1e8},
    profile_field{"decode", "constant_ms", &step_costs::decode_constant_s, ms, 0, 1e6},
    profile_field{"decode", "sequence_us", &step_costs::decode_sequence_s, us, 0, 1e9},
    profile_field{"decode", "context_token_ns", &step_costs::decode_context_token_s, ns, 0, 1e9},
    profile_field{"decode", "beside_prefill", &step_costs::decode_beside_prefill, 1, 1, 1000, true},
    profile_field{"decode", "max_batch", &profile::max_batch, 1, 1, 1e6},
    profile_field{"decode", "device_kv_tokens", &profile::device_kv_tokens, 1, 1, 1e12},
    profile_field{"node", "device_link_gb_per_s", &profile::device_link_bytes_per_s, 1e9, 0, 1e6, true},
    profile_field{"node", "nic_gbit_per_s", &profile::nic_bytes_per_s, 1e9 / 8, 1e-3, 1e6},
    profile_field{"node", "network_latency_us", &profile::network_latency_s, us, 0, 1e9},
    profile_field{"node", "ssd_gb_per_s", &profile::ssd_bytes_per_s, 1e9, 1e-3, 1e6},
    profile_field{"node", "dram_tokens", &profile::dram_tokens, 1, 0, 1e12},
    profile_field{"node", "ssd_tokens", &profile::ssd_tokens, 1, 0, 1e12},
};

double written(const profile& p, const profile_field& f) {
  const double value = std::visit(
      [&](auto at) -> double {
        if constexpr (std::is_same_v<decltype(at), double step_costs::*>) return p.costs.*at;
        else return static_cast<double>(p.*at);
      },
      f.at);
  return value / f.scale;
}

void store(profile& p, const profile_field& f, double value) {
  std::visit(
      [&](auto at) {
        if constexpr (std::is_same_v<decltype(at), double step_costs::*>) {
          p.costs.*at = value * f.scale;
        } else {
          using number = std::remove_reference_t<decltype(p.*at)>;
          p.*at = static_cast<number>(value * f.scale);
        }
      },
      f.at);
}

bool is_whole(const profile_field& f) {
  return std::holds_alternative<std::uint32_t profile::*>(f.at) ||
         std::holds_alternative<std::uint64_t profile::*>(f.at);
}

/// @returns an error text, or nothing.
std::string read_field(profile& p, const profile_field& f, const config::toml_entry& e) {
  const auto value = config::parse_real(e.value);
  if (e.type != config::toml_type::number || !value) return "a number expected";
  if (*value < f.min || *value > f.max) {
    return e.value + " is out of range (" + config::format_real(f.min) + " to " + config::format_real(f.max) +
           ")";
  }
  if (is_whole(f) && *value != std::floor(*value)) return "a whole number expected";
  store(p, f, *value);
  return {};
}

/// A number as a profile's file has it.
std::string shown(const profile& p, const profile_field& f) {
  char number[40];
  std::snprintf(number, sizeof number, is_whole(f) ? "%.0f" : "%.9g", written(p, f));
  return number;
}

}  // namespace

bool serve_one_model(const profile& a, const profile& b) {
  if (!a.model.empty() && !b.model.empty()) return a.model == b.model;
  // KV of 8 bits is half of KV of 16.
  const auto more = std::max(a.kv_bytes_per_token, b.kv_bytes_per_token);
  const auto less = std::min(a.kv_bytes_per_token, b.kv_bytes_per_token);
  return a.layers == b.layers && (more == less || more == 2 * less);
}

std::vector<std::string> builtin_profiles() {
  std::vector<std::string> names;
  for (const auto& [name, text] : builtin_profile_texts) names.emplace_back(name);
  return names;
}

result<profile> builtin_profile(std::string_view name, std::vector<std::string>* assumed) {
  std::string known;
  for (const auto& [mine, text] : builtin_profile_texts) {
    if (mine == name) return parse_profile(text, mine, assumed);
    known += (known.empty() ? "" : ", ") + std::string{mine};
  }
  if (names_a_device(name)) {
    const auto computed = parse_deployment(name);
    return computed ? derive_profile(*computed, name) : fail(computed.error());
  }
  return fail(ec::not_found, "no profile '" + std::string{name} + "'; there are " + known +
                                 ", computed ones (" + deployments_known() +
                                 ") and any path that ends in .toml");
}

/// Numbers that a file leaves out are listed as assumed, so that no report hides a guess.
result<profile> parse_profile(std::string_view text, std::string_view file,
                              std::vector<std::string>* assumed) {
  const auto entries = config::parse_toml(text, file);
  if (!entries) return fail(entries.error());
  profile p;
  p.name = file;
  std::array<bool, profile_fields.size()> given{};
  for (const auto& e : *entries) {
    const auto bad = [&](const std::string& reason) {
      return fail(ec::invalid_argument, std::string{file} + ":" + std::to_string(e.line) + ": " + e.section +
                                            "." + e.key + ": " + reason);
    };
    const bool model = e.section == "model" && e.key == "name";
    if (model || (e.section.empty() && e.key == "name")) {
      if (e.type != config::toml_type::string) return bad("a string expected");
      (model ? p.model : p.name) = e.value;
      continue;
    }
    const profile_field* known = nullptr;
    for (const auto& f : profile_fields) {
      if (e.section == f.section && e.key == f.key) known = &f;
    }
    if (known == nullptr) return bad("no such key");
    if (const auto reason = read_field(p, *known, e); !reason.empty()) return bad(reason);
    given[static_cast<std::size_t>(known - profile_fields.data())] = true;
  }
  for (std::size_t i = 0; assumed != nullptr && i < profile_fields.size(); ++i) {
    const auto& f = profile_fields[i];
    if (given[i] || f.can_be_left_out) continue;
    assumed->push_back(std::string{f.section} + "." + f.key + " = " + shown(p, f));
  }
  return p;
}

result<profile> load_profile(const std::string& name, std::vector<std::string>* assumed) {
  if (!name.ends_with(".toml")) return builtin_profile(name, assumed);
  std::ifstream file{name, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(ec::io_error, "cannot read " + name + ": " + std::strerror(errno));
  return parse_profile(text.str(), name, assumed);
}

std::string to_toml(const profile& p) {
  std::string out = "name = " + config::toml_quoted(p.name) + "\n";
  std::string_view section;
  for (const auto& f : profile_fields) {
    if (section != f.section) {
      out += "\n[" + std::string{section = f.section} + "]\n";
      if (section == "model" && !p.model.empty()) out += "name = " + config::toml_quoted(p.model) + "\n";
    }
    out += std::string{f.key} + " = " + shown(p, f) + "\n";
  }
  return out;
}

void visit_numbers(const profile& p, const std::function<void(const std::string&, double)>& visit) {
  for (const auto& f : profile_fields) visit(std::string{f.section} + "_" + f.key, written(p, f));
}

fit_error error_of(const step_costs& c, std::span<const timing_point> passes,
                   std::span<const timing_point> steps) {
  const auto off = [](std::span<const timing_point> points, auto&& fitted, double& mean, double& most) {
    for (const auto& p : points) {
      const double e = std::abs(fitted(p) / std::max(p.seconds, 1e-9) - 1);
      mean += e / static_cast<double>(points.size());
      most = std::max(most, e);
    }
  };
  fit_error out;
  off(
      passes,
      [&](const timing_point& p) {
        return c.prefill_constant_s + c.prefill_token_s * p.a +
               c.prefill_pair_s * (p.a * p.b + p.a * p.a / 2);
      },
      out.prefill_mean, out.prefill_most);
  off(
      steps,
      [&](const timing_point& p) {
        return c.decode_constant_s + c.decode_sequence_s * p.a + c.decode_context_token_s * p.b;
      },
      out.decode_mean, out.decode_most);
  return out;
}

step_costs fit_costs(std::span<const timing_point> passes, std::span<const timing_point> steps) {
  const auto fit = [](std::span<const timing_point> points, auto&& features_of) {
    std::vector<std::array<double, 3>> x;
    std::vector<double> t;
    for (const auto& p : points) {
      // Relative errors count: absolute ones would let the largest steps decide over everyday ones.
      const double weight = 1 / std::max(p.seconds, 1e-9);
      auto& row = x.emplace_back(features_of(p));
      for (auto& value : row) value *= weight;
      t.push_back(p.seconds * weight);
    }
    return fit_nonnegative(x, t);
  };
  using row = std::array<double, 3>;
  const auto prefill = fit(passes, [](const timing_point& p) {
    return row{1, p.a, p.a * p.b + p.a * p.a / 2};
  });
  const auto decode = fit(steps, [](const timing_point& p) { return row{1, p.a, p.b}; });
  return {.prefill_constant_s = prefill[0],
          .prefill_token_s = prefill[1],
          .prefill_pair_s = prefill[2],
          .decode_constant_s = decode[0],
          .decode_sequence_s = decode[1],
          .decode_context_token_s = decode[2]};
}

std::vector<timing_point> prefill_samples(const profile& p, std::uint32_t stages) {
  std::vector<timing_point> points;
  const auto& c = p.costs;
  for (const double n : {256.0, 1024.0, 4096.0, 16384.0, 65536.0}) {
    for (const double cached : {0.0, 4096.0, 65536.0}) {
      const double steps = std::ceil(n / p.chunk_tokens);
      const double compute = c.prefill_constant_s * steps + c.prefill_token_s * n +
                             c.prefill_pair_s * (n * cached + n * n / 2) + c.prefill_cached_token_s * cached;
      points.push_back({n, cached, compute / stages});
    }
  }
  return points;
}

std::vector<timing_point> decode_samples(const profile& p) {
  std::vector<timing_point> points;
  const auto& c = p.costs;
  for (const double batch : {1.0, 8.0, 64.0}) {
    for (const double each : {512.0, 4096.0, 16384.0}) {
      points.push_back(
          {batch, batch * each,
           c.decode_constant_s + c.decode_sequence_s * batch + c.decode_context_token_s * batch * each});
    }
  }
  return points;
}

}  // namespace mooncaf::sim
