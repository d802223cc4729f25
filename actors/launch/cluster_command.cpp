#include "actors/launch/cluster_command.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "actors/launch/child_process.hpp"
#include "actors/launch/command_tools.hpp"
#include "actors/launch/run_folder.hpp"
#include "runtime/base/hash.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf::launch {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

result<std::string> read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad())
    return fail(ec::io_error, "cannot read " + path + ": " + std::strerror(errno));
  return text;
}

/// The configurations of a host's processes: these tell how much of the model is read there.
node_texts readers(const planned_host& host) {
  node_texts all;
  for (const auto& node : host.nodes) all[node.name] = node.text;
  return all;
}

/// One name for one file, so that two files of the same name in two folders are two clusters.
std::string name_of(const fs::path& file) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : file.string()) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  std::string name;
  for (const char c : file.stem().string()) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  name += '-';
  for (int i = 0; i < 6; ++i, hash >>= 4) name += "0123456789abcdef"[hash & 15];
  return name;
}

}  // namespace

int complain(const sim::console& io, const error& why, int status) {
  io.err << "mooncaf: " << (why.detail.empty() ? to_string(why) : why.detail) << "\n";
  return status;
}

result<cluster_access> cluster_access::open(const std::string& file) {
  auto text = read_whole(file);
  if (!text) return fail(text.error());
  auto spec = read_cluster(*text, file);
  if (!spec) return fail(spec.error());
  std::error_code failed;
  const auto path = fs::canonical(file, failed);
  auto plan = plan_launch(*spec, name_of(path), path.parent_path().string());
  if (!plan) return fail(ec::invalid_argument, file + ": " + plan.error().detail);
  cluster_access out;
  out.spec_ = std::move(*spec);
  if (auto& given = out.spec_.secret_file; !given.empty()) given = (path.parent_path() / given).string();
  out.plan_ = std::move(*plan);
  out.file_ = file;
  const auto root = run_folder::root();
  if (!root) return fail(root.error());
  out.secret_file_ = *root + "/" + out.plan_.name + ".secret";
  return out;
}

result<std::size_t> cluster_access::host_of(const std::string& node) const {
  std::string all;
  for (std::size_t i = 0; i < plan_.hosts.size(); ++i) {
    for (const auto& n : plan_.hosts[i].nodes) {
      if (n.name == node) return i;
      all += (all.empty() ? "" : ", ") + n.name;
    }
  }
  return fail(ec::not_found, file_ + " has no process '" + node + "'; there are " + all);
}

std::string cluster_access::label(std::size_t host) const {
  const auto& h = plan_.hosts[host].entry;
  return h.name + (h.local ? " (this machine)" : " (ssh " + h.ssh + ")");
}

/// The agent's command on the host. Options of ssh come from the user's own configuration; it must not ask for a password.
std::vector<std::string> cluster_access::command(std::size_t host,
                                                 const std::vector<std::string>& words) const {
  const auto& h = plan_.hosts[host].entry;
  std::vector<std::string> all{!spec_.binary.empty() ? spec_.binary
                               : h.local             ? own_program()
                                                     : "mooncaf",
                               "agent"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.begin() + 3, plan_.name + "/" + h.name);
  if (h.local) return all;
  std::string remote;
  for (const auto& word : all) remote += (remote.empty() ? "" : " ") + shell_quoted(word);
  return {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", h.ssh, remote};
}

result<std::string> cluster_access::ask(std::size_t host, const std::string& verb, const std::string& input,
                                        const std::function<bool(const std::string&)>& hear) const {
  const auto words = command(host, {verb});
  const auto outcome = run_command(words, input, false, hear);
  if (!outcome) return fail(outcome.error());
  if (outcome->status == 0) return outcome->out;
  auto why = last_line(outcome->err);
  if (why.starts_with("mooncaf: ")) why.erase(0, 9);
  if (why.empty()) why = "exit status " + std::to_string(outcome->status);
  const bool unreachable = !plan_.hosts[host].entry.local && outcome->status == 255;
  std::string said =
      "`" + (plan_.hosts[host].entry.local ? words[0] : "ssh " + plan_.hosts[host].entry.ssh) + "`";
  return fail(ec::unavailable,
              (unreachable ? "cannot be reached by " : "agent " + verb + " by ") + said + ": " + why);
}

result<host_facts> cluster_access::examine(std::size_t host) const {
  const auto& h = plan_.hosts[host];
  std::set<std::string> ports, disks;
  for (const auto& node : h.nodes) {
    ports.insert(node.ports.begin(), node.ports.end());
    for (const auto& [folder, bytes] : node.disks) disks.insert(folder);
  }
  const auto said =
      ask(host, "examine",
          json{{"ports", ports}, {"disks", disks}, {"model", h.model}, {"readers", readers(h)}}.dump());
  if (!said) return fail(said.error());
  const auto facts = json::parse(*said, nullptr, false);
  if (!facts.is_object())
    return fail(ec::incompatible, "its answer is none of mooncaf's: " + last_line(*said));
  return host_facts{facts.value("version", ""),
                    facts.value("nodes", node_texts{}),
                    facts.value("busy", std::vector<std::string>{}),
                    facts.value("memory", std::uint64_t{0}),
                    facts.value("disks", std::map<std::string, std::uint64_t>{}),
                    facts.value("model", false),
                    facts.value("whole_model", false)};
}

result<std::string> cluster_access::secrets() const {
  const auto& given = spec_.secret_file;
  const auto usable = given.empty() ? secret_file::open_or_make(secret_file_) : secret_file::open(given);
  if (!usable) return fail(usable.error());
  return read_whole(given.empty() ? secret_file_ : given);
}

result<void> cluster_access::hand_secrets(std::size_t host, const std::string& lines) const {
  const auto said = ask(host, "secret", json{{"secret", lines}}.dump());
  return said ? result<void>{} : fail(said.error());
}

result<void> cluster_access::keep_secrets(const std::string& lines) const {
  return rewrite(spec_.secret_file.empty() ? secret_file_ : spec_.secret_file, lines);
}

result<void> cluster_access::carry(std::size_t host, const host_order& order) const {
  const auto& h = plan_.hosts[host];
  json files = json::object();
  if (!order.nodes.empty()) {
    const auto shared = secrets();
    if (!shared) return fail(shared.error());
    files["secret"] = *shared;
    for (const auto& [name, path] : h.files) {
      const auto text = read_whole(path);
      if (!text) return fail(text.error());
      files[name] = *text;
    }
  }
  json overlaps = json::array();
  for (const auto& name : order.restart)
    for (const auto& node : h.nodes)
      if (node.name == name && node.overlaps) overlaps.push_back(name);
  const json request{{"nodes", order.nodes},
                     {"restart", order.restart},
                     {"overlaps", std::move(overlaps)},
                     {"keep", order.keep},
                     {"files", std::move(files)},
                     {"ready_ns", spec_.ready_within.count()},
                     {"stop_ns", spec_.stop_within.count()},
                     {"gateways", order.gateways ? h.gateways : std::vector<std::string>{}}};
  const auto said = ask(host, "carry", request.dump());
  return said ? result<void>{} : fail(said.error());
}

// An offer that a fetch did not end ends by itself a while after the last word of one.
result<std::string> cluster_access::offer(std::size_t host, std::size_t fetches) const {
  const auto shared = secrets();
  if (!shared) return fail(shared.error());
  const auto& from = plan_.hosts[host];
  const json request{
      {"path", from.model}, {"host", from.entry.address}, {"secret", *shared}, {"fetches", fetches}};
  const auto said = ask(host, "offer", request.dump());
  const auto at = said ? json::parse(*said, nullptr, false) : json{};
  if (at.is_object()) return at.value("at", "");
  return fail(ec::unavailable, label(host) + ": " + (said ? last_line(*said) : said.error().detail));
}

result<void> cluster_access::fetch(std::size_t host, const std::vector<std::string>& offers,
                                   const std::function<bool(const std::string&)>& say) const {
  const auto shared = secrets();
  if (!shared) return fail(shared.error());
  const auto& h = plan_.hosts[host];
  const json request{{"from", offers},
                     {"to", h.model},
                     {"readers", readers(h)},
                     {"host", h.entry.address},
                     {"secret", *shared}};
  const auto said = ask(host, "fetch", request.dump(), say);
  if (!said) return fail(said.error());
  const auto done = json::parse(*said, nullptr, false);
  if (!done.is_object())
    return fail(ec::incompatible, "its answer is none of mooncaf's: " + last_line(*said));
  for (const auto& why : done.value("dropped", std::vector<std::string>{})) say("not from " + why);
  return {};
}

result<host_state> cluster_access::state(std::size_t host) const {
  const auto said = ask(host, "state", "");
  if (!said) return fail(said.error());
  const auto read = json::parse(*said, nullptr, false);
  if (!read.is_object())
    return fail(ec::incompatible, "its answer is none of mooncaf's: " + last_line(*said));
  host_state all;
  const auto nodes = read.value("nodes", json::object());
  for (const auto& [name, n] : nodes.items())
    all[name] = {n.value("phase", ""),    n.value("last_end", ""), n.value("pid", 0),
                 n.value("starts", 0u),   n.value("loops", false), n.value("since", std::int64_t{0}),
                 n.value("conductor", "")};
  return all;
}

result<void> cluster_access::show_logs(std::size_t host, const std::string& node, bool follow) const {
  std::vector<std::string> words{"logs"};
  if (follow) words.emplace_back("follow");
  if (!node.empty()) words.push_back(node);
  const auto shown = run_command(command(host, words), "", true);
  if (!shown) return fail(shown.error());
  if (shown->status != 0) return fail(ec::unavailable, "its logs cannot be shown; the reason is above");
  return {};
}

bool cluster_access::known() const {
  std::error_code ignored;
  return fs::exists(secret_file_, ignored);
}

void cluster_access::forget() const {
  std::error_code ignored;
  fs::remove(secret_file_, ignored);
}

std::span<const std::string_view> command_names() {
  static constexpr std::array<std::string_view, 10> names{
      "up", "status", "logs", "drain", "stop", "restart", "scale", "rotate-secret", "weights", "agent"};
  return names;
}

bool is_command(std::string_view word) {
  return std::ranges::find(command_names(), word) != command_names().end();
}

int run_command(std::span<const std::string> args, const sim::console& io) {
  static const std::map<std::string_view, int (*)(std::span<const std::string>, const sim::console&)>
      commands{{"up", up_command},           {"status", status_command},
               {"logs", logs_command},       {"drain", drain_command},
               {"stop", stop_command},       {"restart", restart_command},
               {"scale", scale_command},     {"rotate-secret", rotate_secret_command},
               {"weights", weights_command}, {"agent", agent_command}};
  try {
    return commands.at(args.front())(args.subspan(1), io);
  } catch (const json::exception& e) {  // a field of another type, from another version or a damaged file
    return complain(
        io, {ec::incompatible, std::string{"a host's answer or a request cannot be read: "} + e.what()}, 1);
  }
}

}  // namespace mooncaf::launch
