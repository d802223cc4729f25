#include "runtime/sim/cluster_files.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "config/declaration.hpp"
#include "config/value.hpp"

namespace mooncaf::sim {

namespace {

constexpr std::string_view here = "127.0.0.1";

/// One node's configuration, option by option. Options at the server's defaults are left out.
class node_config {
 public:
  explicit node_config(std::string name) : name_(std::move(name)) { text("cluster", "name", name_); }

  void text(std::string section, std::string key, std::string value) {
    values_.push_back({std::move(section), std::move(key), std::move(value)});
  }
  void count(std::string section, std::string key, std::uint64_t n) {
    text(std::move(section), std::move(key), std::to_string(n));
  }
  void time(std::string section, std::string key, double seconds) {
    text(std::move(section), std::move(key),
         config::format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9 + 0.5)}));
  }
  /// Whole MiB, and not less than the option's least.
  void size(std::string section, std::string key, double bytes) {
    constexpr double mib = 1 << 20;
    text(std::move(section), std::move(key),
         std::to_string(std::max<std::uint64_t>(static_cast<std::uint64_t>(bytes / mib), 1)) + "MiB");
  }

  /// @error `ec::invalid_argument` with the node, the option and its bounds.
  result<cluster_file> file() const {
    const auto usual = default_options();
    cluster_file out{name_ + ".toml", {}};
    for (const auto& section : config::sections()) {
      bool opened = false;
      for (const auto& [of, key, value] : values_) {
        const auto* option = config::find_key(of, key);
        if (of != section.name || option->show(usual) == value) continue;
        if (!opened) out.text += (out.text.empty() ? "[" : "\n[") + section.name + "]\n";
        opened = true;
        out.text += key + " = " +
                    (option->type == config::toml_type::string ? config::toml_quoted(value) : value) + "\n";
      }
    }
    if (const auto read = parse_options({}, out.text, out.name); !read) {
      return fail(ec::invalid_argument, "the server cannot run this plan: " + read.error().detail);
    }
    return out;
  }

 private:
  std::string name_;
  std::vector<std::array<std::string, 3>> values_;
};

/// The options that all processes of the cluster share, and the address until the file hosts has another.
node_config begin_node(const std::string& name, const std::string& role, const simulation_options& o) {
  node_config c{name};
  c.text("cluster", "role", role);
  c.text("cluster", "listen", std::string{here} + ":0");
  if (name != "front") c.text("metrics", "listen", std::string{here} + ":0");
  c.count("model", "block_tokens", o.hardware.block_tokens);
  return c;
}

void add_scheduler(node_config& c, const simulation_options& o) {
  c.text("scheduler", "policy", std::string{to_string(o.policy)});
  c.text("scheduler", "admission", std::string{to_string(o.admission)});
  c.count("scheduler", "max_queued", o.max_queued);
  c.time("scheduler", "ttft_slo", o.ttft_slo_s);
  c.time("scheduler", "tbt_slo", o.tbt_slo_s);
  // The server wants a number above 1; never is a million times.
  constexpr double barely = 1.000001, never = 1e6;
  c.text("scheduler", "kvcache_balancing_threshold",
         config::format_real(std::min(std::max(o.balancing_threshold, barely), never)));
  c.time("scheduler", "predicted_decode_time", o.decode_span_s);
  c.count("scheduler", "seed", o.seed);
  c.text("scheduler", "hot_copy_share", config::format_real(o.hot_copy_share));
}

void add_prefill(node_config& c, const simulation_options& o) {
  const auto chunk = o.coupled == coupled_mode::off ? o.hardware.chunk_tokens : o.coupled_chunk;
  c.count("prefill", "instances", 1);
  c.count("prefill", "chunk_tokens", chunk);
  c.count("prefill", "max_batch_tokens", chunk);
  c.text("prefill", "kv_transfer", o.layerwise ? "layerwise" : "after_prefill");
  c.text("prefill", "prefetch", std::string{to_string(o.prefetch.mode)});
  c.time("prefill", "prefetch_timeout_base", to_seconds(o.prefetch.base));
  c.time("prefill", "prefetch_timeout_per_ki_token", to_seconds(o.prefetch.per_1024_tokens));
  c.count("prefill", "prefetch_threshold", o.prefetch.threshold_tokens);
}

/// @param tokens  of KV that the process holds in memory.
void add_memory(node_config& c, const simulation_options& o, double tokens, const std::string& node) {
  const auto token = static_cast<double>(o.hardware.kv_bytes_per_token);
  c.size("cache", "dram", tokens * token);
  c.text("cache", "eviction", std::string{to_string(o.eviction)});
  c.text("cache", "write_policy", std::string{to_string(o.write)});
  c.count("cache", "selective_hits", o.selective_hits);
  if (o.hardware.ssd_tokens == 0) return;
  c.text("cache", "ssd_path", node + "-ssd");
  c.size("cache", "ssd", static_cast<double>(o.hardware.ssd_tokens) * token);
}

node_config prefill_node(std::uint32_t number, const simulation_options& o) {
  const auto name = "prefill-" + std::to_string(number);
  auto c = begin_node(name, "prefill,cache", o);
  add_prefill(c, o);
  add_memory(c, o, static_cast<double>(o.hardware.dram_tokens), name);
  return c;
}

node_config decode_node(std::uint32_t number, const simulation_options& o) {
  const auto name = "decode-" + std::to_string(number);
  auto c = begin_node(name, "decode", o);
  const auto& machine = o.decode_profile();
  c.count("decode", "instances", 1);
  c.count("decode", "max_batch", machine.max_batch);
  c.size("cache", "dram",
         static_cast<double>(machine.device_kv_tokens) * static_cast<double>(machine.kv_bytes_per_token));
  return c;
}

/// A machine that does both. @param role  the roles of its process.
node_config coupled_node(const std::string& name, const std::string& role, const simulation_options& o) {
  auto c = begin_node(name, role, o);
  c.text("cluster", "mode", "coupled");
  add_prefill(c, o);
  c.count("decode", "instances", 1);
  c.count("decode", "max_batch", o.hardware.max_batch);
  add_memory(c, o, static_cast<double>(o.hardware.dram_tokens + o.hardware.device_kv_tokens), name);
  return c;
}

/// The front, which conducts and talks to clients, and a node per machine; of one machine the node is both.
std::vector<node_config> nodes_of(const plan_cluster& cluster, const simulation_options& o) {
  std::vector<node_config> nodes;
  if (cluster.coupled() && cluster.machines() == 1) {
    nodes.push_back(coupled_node("front", "all", o));
    return nodes;
  }
  nodes.push_back(begin_node("front", "conductor,gateway", o));
  if (cluster.coupled()) {
    nodes.front().text("cluster", "mode", "coupled");
    for (std::uint32_t i = 0; i < cluster.machines(); ++i)
      nodes.push_back(coupled_node("node-" + std::to_string(i), "prefill,decode,cache", o));
    return nodes;
  }
  for (std::uint32_t i = 0; i < cluster.prefill; ++i) nodes.push_back(prefill_node(i, o));
  for (std::uint32_t i = 0; i < cluster.decode; ++i) nodes.push_back(decode_node(i, o));
  return nodes;
}

constexpr std::string_view start_script = R"sh(#!/bin/sh
# Starts the nodes that the file hosts has on one host, and ends them when it is told to end:
#
#   ./start.sh HOST [options that every node gets]      HOST as in hosts; 127.0.0.1 if nothing is given
#
#   ./start.sh 127.0.0.1 --model M.gguf
#   ./start.sh 10.0.0.2 --model M.gguf --cluster-secret-file /etc/mooncaf.secret
#   ./start.sh 127.0.0.1 --device "model:$PWD/prefill.toml" --time-scale 10     a rehearsal: nothing is computed
#
# With several hosts: edit hosts, copy this folder to each of them, run this there. MOONCAF names the program.
set -eu
cd "$(dirname "$0")"
host=${1:-127.0.0.1}
[ $# -eq 0 ] || shift
front=$(sed -n 's/^front  *//p' hosts)
pids=
trap 'kill $pids 2>/dev/null || :' INT TERM
while read -r node at; do
  case $at in "$host" | "$host":*) ;; *) continue ;; esac
  if [ "$node" = front ]; then set -- --listen "$front" "$@"; else set -- --join "$front" --listen "$host:0" "$@"; fi
  "${MOONCAF:-mooncaf}" --config "$node.toml" --data-listen "$host:0" "$@" >>"$node.log" 2>&1 &
  pids="$pids $!"
  echo "$node: process $!, log $node.log"
  if [ "$node" = front ]; then shift 2; else shift 4; fi
done <hosts
[ -n "$pids" ] || { echo "start.sh: hosts has no node on $host" >&2; exit 1; }
for pid in $pids; do wait "$pid" || :; done
wait
)sh";

result<void> check(const plan_cluster& c) {
  const auto no = [](std::string why) { return fail(ec::unsupported, std::move(why)); };
  if (c.pipeline > 1)
    return no("the server has no pipeline groups: plan without --pipeline for files that it can run");
  if (c.admission == admission_policy::early_running)
    return no("the server has no admission early_running; it has early");
  return {};
}

}  // namespace

result<std::vector<cluster_file>> cluster_files(const plan_problem& problem, const plan_cluster& cluster) {
  if (const auto can = check(cluster); !can) return fail(can.error());
  const auto o = options_of(problem, cluster);
  auto nodes = nodes_of(cluster, o);
  add_scheduler(nodes.front(), o);
  std::vector<cluster_file> files;
  std::string hosts;
  for (const auto& node : nodes) {
    auto file = node.file();
    if (!file) return fail(file.error());
    const auto name = file->name.substr(0, file->name.size() - std::string_view{".toml"}.size());
    hosts += name + " " + std::string{here} + (hosts.empty() ? ":7400\n" : "\n");
    files.push_back(std::move(*file));
  }
  files.push_back({"hosts", std::move(hosts)});
  files.push_back({"prefill.toml", to_toml(o.hardware)});
  if (o.decode_hardware) files.push_back({"decode.toml", to_toml(*o.decode_hardware)});
  files.push_back({"start.sh", std::string{start_script}, true});
  return files;
}

result<void> write_files(const std::vector<cluster_file>& files, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return fail(ec::io_error, "cannot make the folder " + folder + ": " + failed.message());
  for (const auto& f : files) {
    const auto path = fs::path{folder} / f.name;
    std::ofstream out{path, std::ios::binary};
    out << f.text;
    out.close();
    if (!out) return fail(ec::io_error, "cannot write " + path.string() + ": " + std::strerror(errno));
    if (f.runs) fs::permissions(path, fs::perms::owner_exec, fs::perm_options::add, failed);
  }
  return {};
}

}  // namespace mooncaf::sim
