#include "runtime/launch/launch_plan.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "config/toml.hpp"
#include "config/value.hpp"

namespace mooncaf::launch {

namespace {

/// Options that name a file of the operator, which the host gets a copy of.
const std::set<std::string, std::less<>> handed_over{"tls-certificate-file", "tls-key-file",
                                                     "api-key-file",         "api-keys-file",
                                                     "store-tenants-file",   "engine-key-file"};

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string absolute(const std::string& path, const std::string& folder) {
  return path.starts_with('/') ? path : folder + "/" + path;
}

/// The process's options by section and key; a later one takes the place of an earlier.
class node_options {
 public:
  void put(const setting& s) { values_[{s.option->section, s.option->key}] = s.value; }
  void put(const std::string& section, const std::string& key, std::string value) {
    values_[{section, key}] = std::move(value);
  }
  bool has(const std::string& section, const std::string& key) const {
    return values_.contains({section, key});
  }
  std::string* find(const std::string& section, const std::string& key) {
    const auto at = values_.find({section, key});
    return at == values_.end() ? nullptr : &at->second;
  }
  void drop(const std::string& section) {
    std::erase_if(values_, [&](const auto& value) { return value.first.first == section; });
  }
  void drop(const std::string& section, const std::string& key) { values_.erase({section, key}); }
  auto& all() { return values_; }

  std::string text() const {
    std::string out;
    for (const auto& section : config::sections()) {
      bool opened = false;
      for (const auto& [at, value] : values_) {
        if (at.first != section.name) continue;
        if (!opened) out += (out.empty() ? "[" : "\n[") + section.name + "]\n";
        opened = true;
        const auto* d = config::find_key(at.first, at.second);
        out += at.second + " = " +
               (d->type == config::toml_type::string ? config::toml_quoted(value) : value) + "\n";
      }
    }
    return out;
  }

 private:
  std::map<std::pair<std::string, std::string>, std::string> values_;
};

std::string nth_of_list(const std::string& list, std::uint32_t n) {
  const auto words = config::split_list(list);
  return words[n % words.size()];
}

std::string node_name(const host_entry& host, const part& p, std::uint32_t number) {
  return host.name + "-" + std::string{p.key} + (p.most > 1 ? "-" + std::to_string(number) : "");
}

/// A process with some layers of another process's group, or a share of them. It is no member of the cluster.
constexpr part rank_part{"rank", "rank", 64, 1};

struct planned_rank {
  std::string leader;  ///< name of the node
  std::string host;    ///< that carries the rank
  host_port at;
  std::uint32_t number = 0;  ///< in its group, from 1
  std::uint32_t stage = 0, stages = 0;
  std::uint32_t tensor = 1, tensor_rank = 0;
  std::uint32_t expert = 1;
};

/// A number of the model's settings for this host's groups, as the file says.
std::uint32_t of_groups(const cluster_spec& spec, const host_entry& h, const char* setting) {
  node_options o;
  for (const auto& s : spec.shared) o.put(s);
  for (const auto& s : h.settings) o.put(s);
  const auto* value = o.find("model", setting);
  std::uint32_t n = 1;
  if (value != nullptr) std::from_chars(value->data(), value->data() + value->size(), n);
  return std::max(n, 1u);
}

/// Ranks of all groups. Leaders reach them at ports behind the conductor's, in the order of the file.
/// @error `ec::invalid_argument`: there are no such ports, or stages of as many ranks.
result<std::vector<planned_rank>> ranks_of(const cluster_spec& spec) {
  std::vector<planned_rank> found;
  std::map<std::string, std::uint32_t> taken;  // by address: hosts may share one
  for (const auto& h : spec.hosts) {
    for (const auto& [key, hosts] : h.ranks) {
      const auto all = static_cast<std::uint32_t>(hosts.size()) + 1;
      const auto tensor = of_groups(spec, h, "tensor");
      if (all % tensor != 0)
        return fail(ec::invalid_argument, "[" + h.name + "] " + key + "_ranks names " +
                                              std::to_string(all - 1) + " hosts, which with its own are no " +
                                              "stages of " + std::to_string(tensor) + " ranks (tensor)");
      for (std::uint32_t i = 0; i < h.count(key); ++i) {
        for (std::uint32_t k = 0; k < hosts.size(); ++k) {
          const auto& on = *std::ranges::find(spec.hosts, hosts[k], &host_entry::name);
          const auto port = spec.port + ++taken[on.address];
          if (port > 65535)
            return fail(ec::invalid_argument, "launch.port " + std::to_string(spec.port) +
                                                  " leaves no ports behind it for the ranks at " +
                                                  on.address);
          // The first rank of the last stage is the leader.
          const auto at = k < all - tensor ? k : k + 1;
          found.push_back({node_name(h, *find_part(key), i),
                           on.name,
                           {on.address, static_cast<std::uint16_t>(port)},
                           k + 1,
                           at / tensor + 1,
                           all / tensor,
                           tensor,
                           at % tensor + 1,
                           of_groups(spec, h, "expert")});
        }
      }
    }
  }
  return found;
}

/// One host's processes.
class host_planner {
 public:
  host_planner(const cluster_spec& spec, const host_entry& entry, const std::string& conductors,
               const std::vector<planned_rank>& ranks, const std::string& folder)
      : spec_(spec), conductors_(conductors), ranks_(ranks), folder_(folder) {
    out.entry = entry;
  }

  result<void> plan() {
    const auto& h = out.entry;
    for (const auto& p : parts) {
      for (std::uint32_t i = 0; i < h.count(p.key); ++i) {
        node_options o;
        place(o, p, node_name(h, p, i));
        if (p.key == "engine")
          if (auto ok = pick_engine(o, i); !ok) return ok;
        if (auto ok = add(p, o); !ok) return ok;
      }
    }
    for (const auto& rank : ranks_) {
      if (rank.host != h.name) continue;
      node_options o;
      place_rank(o, rank);
      if (auto ok = add(rank_part, o); !ok) return ok;
      out.nodes.back().leader = rank.leader;
    }
    std::ranges::stable_sort(out.nodes, {}, &planned_node::stage);
    return {};
  }

  planned_host out;

 private:
  bool computes(const part& p) const { return p.stage == 2; }

  /// The options of the file, the host's own in place of those for all.
  void take_settings(node_options& o, const part& p, const std::string& name) {
    for (const auto& s : spec_.shared) o.put(s);
    for (const auto& s : out.entry.settings) o.put(s);
    if (auto* device = o.find("model", "device"))
      *device = nth_of_list(*device, computes(p) ? computing_++ : 0);
    if (p.key != "engine") o.drop("engine");
    o.put("cluster", "role", std::string{p.roles});
    o.put("cluster", "name", name);
    o.put("cluster", "secret_file", "secret");
    if (!o.has("transport", "listen"))
      o.put("transport", "listen", to_string(host_port{out.entry.address, 0}));
    if (p.key == "conductor") return;
    o.drop("store", "listen");  // the conductor alone carries the directory
    // The port of the file is the conductor's; processes beside it take any.
    if (auto* at = o.find("metrics", "listen"))
      *at = to_string(host_port{config::parse_endpoint(*at)->host, 0});
  }

  void place(node_options& o, const part& p, const std::string& name) {
    take_settings(o, p, name);
    const auto& address = out.entry.address;
    const auto own = p.key == "conductor" ? spec_.port : std::uint16_t{0};
    o.put("cluster", "listen", to_string(host_port{address, own}));
    if (p.key != "conductor" || conductors_.find(',') != std::string::npos)
      o.put("cluster", "join", conductors_);
    std::string ranks;
    for (const auto& rank : ranks_)
      if (rank.leader == name) ranks += (ranks.empty() ? "" : ",") + to_string(rank.at);
    if (!ranks.empty()) o.put("cluster", "ranks", ranks);
    // A count of processes is one of instances, unless the file says more.
    for (const auto* section : {"prefill", "decode"})
      if (!o.has(section, "instances")) o.put(section, "instances", "1");
    if (!o.has("gateway", "http"))
      o.put("gateway", "http", to_string(host_port{address, default_options().gateway.http.port}));
    if (p.key == "gateway") o.put("gateway", "http_handover", name + ".socket");  // in the run folder
  }

  /// The engine of the host's n-th worker: no two workers may stand before one.
  result<void> pick_engine(node_options& o, std::uint32_t n) const {
    for (const auto* key : {"at", "events", "replay"}) {
      auto* list = o.find("engine", key);
      if (list == nullptr || list->empty()) continue;
      const auto words = config::split_list(*list);
      if (n >= words.size())
        return fail(ec::invalid_argument, "[" + out.entry.name +
                                              "] engine = " + std::to_string(out.entry.count("engine")) +
                                              " is more than engine_" + key + " names: " + *list);
      *list = words[n];
    }
    return {};
  }

  void place_rank(node_options& o, const planned_rank& rank) {
    take_settings(o, rank_part, rank.leader + "-rank-" + std::to_string(rank.number));
    o.put("cluster", "listen", to_string(rank.at));
    o.put("model", "pipeline", std::to_string(rank.stages));
    o.put("model", "stage", std::to_string(rank.stage));
    if (rank.tensor == 1) return;
    o.put("model", "tensor", std::to_string(rank.tensor));
    o.put("model", "tensor_rank", std::to_string(rank.tensor_rank));
    if (rank.expert != 1) o.put("model", "expert", std::to_string(rank.expert));
  }

  /// Renames the operator's files to the names of their copies on the host.
  void hand_over(node_options& o) {
    for (auto& [at, value] : o.all()) {
      const auto* d = config::find_key(at.first, at.second);
      const bool profile = d->name == "device" && value.starts_with("model:") && value.ends_with(".toml");
      if (!profile && (value.empty() || !handed_over.contains(d->name))) continue;
      const auto path = profile ? value.substr(6) : value;
      const auto name = profile ? base_name(path) : d->name;
      out.files[name] = absolute(path, folder_);
      value = profile ? "model:" + name : name;
    }
  }

  result<void> add(const part& p, node_options& o) {
    const auto name = *o.find("cluster", "name");
    hand_over(o);
    for (const auto* section : {"cache", "store"})
      if (auto* path = o.find(section, "ssd_path"); path != nullptr && !path->empty()) *path += "/" + name;
    if (auto* path = o.find("model", "path"); path && !path->empty() && !path->starts_with("dummy:"))
      *path = absolute(*path, folder_);
    planned_node node{name, std::string{p.roles}, o.text(), p.stage, p.key == "gateway", {}, 0, {}, {}};
    const auto read = parse_options({}, node.text, name);
    if (!read) return fail(read.error());
    if (const auto fits = check_serving(read->values); !fits)
      return fail(ec::invalid_argument, name + ": " + fits.error().detail);
    add_needs(node, read->values);
    out.nodes.push_back(std::move(node));
    return {};
  }

  void add_needs(planned_node& node, const options& v) {
    const auto port = [&](bool has, const host_port& at) {
      if (has && at.port != 0) node.ports.push_back(to_string(at));
    };
    port(true, v.cluster.listen);
    port(v.metrics.enabled, v.metrics.listen);
    port(v.cluster.gateway, v.gateway.http);
    if (v.cluster.gateway)
      out.gateways.push_back((v.gateway.tls_certificate_file.empty() ? "http://" : "https://") +
                             to_string(v.gateway.http));
    // A modelled device's memory is what its profile says, in blocks of a few bytes.
    if (v.model.device.starts_with("model:")) return;
    if (v.cluster.rank) node.memory_bytes += v.model.device_kv_bytes;
    const bool blocks = v.cluster.cache || v.cluster.prefill || v.cluster.decode;
    if (blocks && serves_model(v)) node.memory_bytes += v.cache.dram_bytes + v.store.shared_bytes;
    // Beside a model's blocks, memory is mounted in a store only where there is one.
    const bool mounts = v.cluster.cache && (directory_listen(v) || !serves_model(v));
    if (mounts) node.memory_bytes += v.store.dram_bytes;
    if (v.cluster.cache && !v.cache.ssd_path.empty()) node.disks[v.cache.ssd_path] = v.cache.ssd_bytes;
    if (v.cluster.cache && !v.store.ssd_path.empty()) node.disks[v.store.ssd_path] = v.store.ssd_bytes;
    if (v.model.path.starts_with('/')) out.model = v.model.path;
  }

  const cluster_spec& spec_;
  const std::string& conductors_;
  const std::vector<planned_rank>& ranks_;
  const std::string& folder_;
  std::uint32_t computing_ = 0;
};

}  // namespace

result<launch_plan> plan_launch(const cluster_spec& spec, const std::string& name,
                                const std::string& folder) {
  launch_plan plan{spec.name.empty() ? name : spec.name, {}};
  std::string conductors;
  for (const auto& h : spec.hosts) {
    if (h.count("conductor") == 0) continue;
    conductors += (conductors.empty() ? "" : ",") + to_string(host_port{h.address, spec.port});
  }
  const auto ranks = ranks_of(spec);
  if (!ranks) return fail(ranks.error());
  for (const auto& entry : spec.hosts) {
    host_planner host{spec, entry, conductors, *ranks, folder};
    if (auto ok = host.plan(); !ok) return fail(ok.error());
    if (!host.out.nodes.empty()) plan.hosts.push_back(std::move(host.out));
  }
  return plan;
}

// Each line names the thing that lacks and how much of it is there.
std::vector<std::string> judge_host(const planned_host& host, const host_facts& facts,
                                    const std::string& version) {
  std::vector<std::string> lacks;
  if (facts.version != version)
    lacks.push_back("has mooncaf " + facts.version + ", and this is " + version + "; install the same");
  std::uint64_t memory = 0;
  for (const auto& node : host.nodes) {
    if (facts.nodes.contains(node.name)) continue;  // it holds its ports and memory already
    memory += node.memory_bytes;
    for (const auto& port : node.ports)
      if (std::ranges::find(facts.busy, port) != facts.busy.end())
        lacks.push_back(port + " is taken by another process; " + node.name + " wants to listen there");
    for (const auto& [folder, bytes] : node.disks) {
      const auto at = facts.disks.find(folder);
      if (at == facts.disks.end()) lacks.push_back("cannot make the folder " + folder);
      else if (at->second < bytes)
        lacks.push_back(folder + " has " + config::format_size(at->second) + " free, and " + node.name +
                        " may need " + config::format_size(bytes));
    }
  }
  if (memory > facts.memory_bytes)
    lacks.push_back("has " + config::format_size(facts.memory_bytes) + " of memory available, and " +
                    config::format_size(memory) +
                    " are wanted by cache-dram, store-dram and device-kv of ranks");
  return lacks;
}

}  // namespace mooncaf::launch
