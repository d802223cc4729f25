#include "runtime/launch/cluster_file.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "config/toml.hpp"
#include "config/value.hpp"

namespace mooncaf::launch {

namespace {

using namespace std::chrono_literals;

constexpr std::string_view own_section = "launch";

/// Options that `up` gives every process by itself.
const std::set<std::string, std::less<>> given_by_up{
    "role", "join", "listen", "advertise", "name", "cluster-secret-file", "http-handover", "ranks", "stage"};

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// The option that a host's section names: `cache_dram` is --cache-dram.
const config::declaration* host_option(std::string_view key) {
  for (const auto& d : config::declarations())
    if (underscored(d.name) == key) return &d;
  return nullptr;
}

bool is_server_section(std::string_view name) {
  return std::ranges::any_of(config::sections(), [&](const auto& s) { return s.name == name; });
}

/// The part whose groups' ranks a host's section places by this key: prefill_ranks, decode_ranks.
const part* ranks_part(std::string_view key) {
  constexpr std::string_view end = "_ranks";
  if (!key.ends_with(end)) return nullptr;
  key.remove_suffix(end.size());
  return key == "prefill" || key == "decode" ? find_part(key) : nullptr;
}

bool is_here(std::string_view address) { return address == "localhost" || address == "127.0.0.1"; }

/// Takes the file's entries one by one; the first that is wrong ends it.
class reader {
 public:
  explicit reader(std::string_view file) : file_(file) {
    spec.port = 7400;
    spec.ready_within = 120s;
    spec.stop_within = 60s;
  }

  result<void> take(const config::toml_entry& e) {
    if (e.section.empty()) return wrong(e, "belongs into a section: [launch], [model] … or a host's");
    if (e.section == own_section) return take_own(e);
    if (is_server_section(e.section)) {
      const auto* option = config::find_key(e.section, e.key);
      if (option == nullptr)
        return wrong(e, "is unknown; --help lists the options" +
                            std::string{e.key == "address" ? ", and a host needs another name" : ""});
      return take_option(e, *option, spec.shared);
    }
    return take_host(e);
  }

  result<void> finish() {
    const auto bad = [&](const std::string& why) {
      return fail(ec::invalid_argument, std::string{file_} + ": " + why);
    };
    if (spec.hosts.empty())
      return bad("no host; a host is a section with an address and counts of processes");
    std::uint32_t conductors = 0, gateways = 0;
    std::map<std::string, std::string> conductor_at;  // hosts by address: all listen on the port of the file
    for (auto& h : spec.hosts) {
      if (h.address.empty()) return bad("[" + h.name + "] has no address");
      if (h.ssh.empty()) h.ssh = h.address;
      if (!runner_given_.contains(h.name) && is_here(h.ssh)) h.local = true;
      conductors += h.count("conductor");
      if (h.count("conductor") > 0 && !conductor_at.emplace(h.address, h.name).second)
        return bad("[" + h.name + "] and [" + conductor_at[h.address] + "] have a conductor each at " +
                   h.address + ": conductors need addresses of their own");
      gateways += h.count("gateway");
      for (const auto& [key, names] : h.ranks)
        for (const auto& name : names)
          if (std::ranges::find(spec.hosts, name, &host_entry::name) == spec.hosts.end())
            return bad("[" + h.name + "] " + key + "_ranks names " + name + ", and no host is called so");
    }
    if (conductors == 0) return bad("conductor = 1 is needed on one host at least");
    const bool computes = std::ranges::any_of(spec.hosts, [](const host_entry& h) {
      return h.count("prefill") + h.count("decode") + h.count("coupled") + h.count("engine") > 0;
    });
    if (computes && gateways == 0) return bad("gateway = 1 is needed on one host at least");
    return {};
  }

  cluster_spec spec;

 private:
  tl::unexpected<error> wrong(const config::toml_entry& e, const std::string& why) const {
    return fail(ec::invalid_argument, std::string{file_} + ":" + std::to_string(e.line) + ": " + e.section +
                                          "." + e.key + " " + why);
  }

  result<void> take_own(const config::toml_entry& e) {
    if (e.key == "name" || e.key == "binary" || e.key == "secret_file") {
      if (e.type != config::toml_type::string || e.value.empty()) return wrong(e, "must be text in quotes");
      if (e.key == "name" && e.value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                       "0123456789_-") != std::string::npos)
        return wrong(e, "must be of letters, digits, _ and -");
      (e.key == "name" ? spec.name : e.key == "binary" ? spec.binary : spec.secret_file) = e.value;
      return {};
    }
    if (e.key == "port") {
      const auto n = config::parse_integer(e.value);
      if (!n || *n < 1 || *n > 65535) return wrong(e, e.value + " is out of range; allowed: 1 to 65535");
      spec.port = static_cast<std::uint16_t>(*n);
      return {};
    }
    if (e.key == "ready_within" || e.key == "stop_within") {
      const auto t = config::parse_duration(e.value);
      if (!t || *t < 1s || *t > 24h) return wrong(e, e.value + " is no time in range; allowed: 1s to 24h");
      (e.key == "ready_within" ? spec.ready_within : spec.stop_within) = *t;
      return {};
    }
    return wrong(e, "is unknown; allowed: name, binary, secret_file, port, ready_within, stop_within");
  }

  result<void> take_host(const config::toml_entry& e) {
    if (spec.hosts.empty() || spec.hosts.back().name != e.section) spec.hosts.push_back({.name = e.section});
    auto& host = spec.hosts.back();
    if (e.key == "address" || e.key == "ssh" || e.key == "runner") return take_place(e, host);
    if (const auto* p = find_part(e.key)) {
      const auto n = config::parse_integer(e.value);
      if (e.type != config::toml_type::number || !n || *n > p->most)
        return wrong(e, e.value + " is out of range; allowed: 0 to " + std::to_string(p->most));
      host.counts.insert_or_assign(e.key, static_cast<std::uint32_t>(*n));
      return {};
    }
    if (const auto* p = ranks_part(e.key)) return take_ranks(e, host.ranks[std::string{p->key}]);
    if (const auto* option = host_option(e.key)) return take_option(e, *option, host.settings);
    std::vector<std::string> names{"address", "ssh", "runner"};
    for (const auto& p : parts) names.emplace_back(p.key);
    for (const auto* ranks : {"prefill_ranks", "decode_ranks"}) names.emplace_back(ranks);
    for (const auto& d : config::declarations()) names.push_back(underscored(d.name));
    const auto near = config::nearest(e.key, names);
    return wrong(
        e, "is unknown" + (near.empty() ? "; allowed: address, ssh, runner, counts of conductor, "
                                          "gateway, cache, prefill, decode, coupled, engine, and options"
                                        : "; did you mean " + near + "?"));
  }

  result<void> take_ranks(const config::toml_entry& e, std::vector<std::string>& into) {
    into = config::split_list(e.value);
    const bool all = std::ranges::none_of(into, &std::string::empty);
    if (e.type == config::toml_type::string && all && into.size() <= ranks_most) return {};
    return wrong(
        e, "must be names of hosts in quotes, with commas, one for each stage but the last; allowed: 1 to " +
               std::to_string(ranks_most));
  }

  result<void> take_place(const config::toml_entry& e, host_entry& host) {
    // An ssh destination that begins with a dash would be an option of the client.
    if (e.type != config::toml_type::string || e.value.empty() || e.value.starts_with('-'))
      return wrong(e, "must be text in quotes that does not begin with -");
    if (e.key == "address") host.address = e.value;
    if (e.key == "ssh") host.ssh = e.value;
    if (e.key != "runner") return {};
    if (e.value != "ssh" && e.value != "local") return wrong(e, e.value + " is none of ssh, local");
    host.local = e.value == "local";
    runner_given_.insert(host.name);
    return {};
  }

  result<void> take_option(const config::toml_entry& e, const config::declaration& d,
                           std::vector<setting>& into) {
    if (d.name == "cluster-secret-file") return wrong(e, "is launch.secret_file here");
    if (given_by_up.contains(d.name)) return wrong(e, "is given by `mooncaf up` itself");
    if (d.name == "log-level" && (e.value == "warn" || e.value == "error"))
      return wrong(e, e.value + " hides that a process is ready; allowed: info and below");
    if (d.type != e.type)
      return wrong(e, "is of another type" + (d.allowed.empty() ? "" : "; allowed: " + d.allowed));
    if ((d.name == "ssd-path" || d.name == "store-ssd-path") && !e.value.empty() && e.value.front() != '/')
      return wrong(e, "must begin with /: it is a folder of the host");
    std::string_view rest = e.value;
    // One for each process, in turn.
    const bool list =
        d.name == "device" || d.name == "engine-at" || d.name == "engine-events" || d.name == "engine-replay";
    do {
      const auto end = list ? std::min(rest.find(','), rest.size()) : rest.size();
      auto scratch = default_options();
      if (const auto complaint = d.set(scratch, rest.substr(0, end)))
        return wrong(e, *complaint + (d.allowed.empty() ? "" : "; allowed: " + d.allowed));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    } while (!rest.empty());
    into.push_back({&d, e.value});
    return {};
  }

  std::string_view file_;
  std::set<std::string> runner_given_;
};

/// Chooses the host where a process comes or goes, unless the user names one.
const host_entry* host_to_scale(const cluster_spec& spec, std::string_view key, bool fewer) {
  const host_entry* chosen = nullptr;
  for (const auto& h : spec.hosts) {
    if (h.count(key) == 0) continue;
    if (chosen == nullptr || (fewer ? h.count(key) > chosen->count(key) : h.count(key) < chosen->count(key)))
      chosen = &h;
  }
  return chosen;
}

}  // namespace

const part* find_part(std::string_view key) {
  const auto at = std::ranges::find(parts, key, &part::key);
  return at == parts.end() ? nullptr : &*at;
}

std::uint32_t host_entry::count(std::string_view key) const {
  const auto at = counts.find(key);
  return at == counts.end() ? 0 : at->second;
}

result<cluster_spec> read_cluster(std::string_view text, std::string_view file) {
  const auto entries = config::parse_toml(text, file);
  if (!entries) return fail(entries.error());
  reader all{file};
  for (const auto& e : *entries)
    if (auto ok = all.take(e); !ok) return fail(ok.error());
  if (auto ok = all.finish(); !ok) return fail(ok.error());
  return std::move(all.spec);
}

// The line of the count is written anew, and all others stay as they are: the file is a person's, with
// comments.
result<std::string> scaled(std::string_view text, std::string_view file, std::string_view part_key, int more,
                           std::string_view host_name) {
  const auto bad = [](std::string why) { return fail(ec::invalid_argument, std::move(why)); };
  const auto spec = read_cluster(text, file);
  if (!spec) return fail(spec.error());
  const auto* p = find_part(part_key);
  if (p == nullptr || p->most == 1)
    return bad("'" + std::string{part_key} +
               "' cannot be scaled; allowed: cache, prefill, decode, coupled, engine");
  const auto named = std::ranges::find(spec->hosts, host_name, &host_entry::name);
  const auto* host = !host_name.empty() ? (named == spec->hosts.end() ? nullptr : &*named)
                                        : host_to_scale(*spec, part_key, more < 0);
  if (host == nullptr)
    return bad(host_name.empty() ? "no host of " + std::string{file} + " has " + std::string{part_key} +
                                       "; name one with --host"
                                 : std::string{file} + " has no host " + std::string{host_name});
  const auto count = static_cast<std::int64_t>(host->count(part_key)) + more;
  if (count < 0 || count > static_cast<std::int64_t>(p->most))
    return bad(std::string{part_key} + " of " + host->name + " would be " + std::to_string(count) +
               "; allowed: 0 to " + std::to_string(p->most));
  const auto entries = config::parse_toml(text, file);
  std::size_t line = 0, above = 0;
  for (const auto& e : *entries) {
    if (e.section != host->name) continue;
    above = e.line;
    if (e.key == part_key) line = e.line;
  }
  const auto written = std::string{part_key} + " = " + std::to_string(count);
  std::string out;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto old = text.substr(0, end);
    const auto comment = number == line ? old.find('#') : std::string_view::npos;
    out += number != line
               ? std::string{old}
               : written + (comment == std::string_view::npos ? "" : "  " + std::string{old.substr(comment)});
    out += '\n';
    if (line == 0 && number == above) out += written + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

result<std::string> scaled_to(std::string_view text, std::string_view file, std::string_view part_key,
                              std::uint32_t count, std::string_view host) {
  std::string out{text};
  for (;;) {
    const auto spec = read_cluster(out, file);
    if (!spec) return fail(spec.error());
    std::uint32_t there = 0;
    for (const auto& h : spec->hosts)
      if (host.empty() || h.name == host) there += h.count(part_key);
    // Without a change it still says whether there is such a part and host.
    const int more = there < count ? 1 : there > count ? -1 : 0;
    auto next = scaled(out, file, part_key, more, host);
    if (!next || more == 0) return next;
    out = std::move(*next);
  }
}

}  // namespace mooncaf::launch
