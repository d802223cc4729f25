// The requests that `mooncaf up` and its companions run on each host.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "actors/launch/agent.hpp"
#include "actors/launch/child_process.hpp"
#include "actors/launch/cluster_command.hpp"
#include "actors/launch/health_check.hpp"
#include "actors/launch/weights.hpp"
#include "config/value.hpp"
#include "runtime/base/posix.hpp"
#include "storage/memory_room.hpp"
#include "transport/net/secret.hpp"

namespace mooncaf::launch {

namespace {

using namespace std::chrono_literals;
using nlohmann::json;
namespace fs = std::filesystem;

/// An offer of a model ends when no fetch goes on for so long.
constexpr duration offer_idle = 15s;

/// Until the next look at another process.
void pause() { ::poll(nullptr, 0, 20); }

/// Bytes free where the folder is or would be made; nothing where this user cannot make it.
std::optional<std::uint64_t> room_of(const std::string& folder) {
  fs::path at{folder};
  std::error_code failed;
  while (!fs::exists(at, failed) && at.has_relative_path()) at = at.parent_path();
  struct statvfs room {};
  if (::access(at.c_str(), W_OK | X_OK) != 0 || ::statvfs(at.c_str(), &room) != 0) return std::nullopt;
  return std::uint64_t{room.f_bavail} * room.f_frsize;
}

node_texts wished(const run_folder& folder) {
  const auto wish = json::parse(folder.read("wish.json"), nullptr, false);
  return wish.is_object() && folder.agent() != 0 ? wish.value("nodes", node_texts{}) : node_texts{};
}

/// Of its model by the processes that a host is to carry.
std::vector<model_use> uses_of(const json& asked) {
  std::vector<model_use> uses;
  for (const auto& [name, text] : asked.value("readers", node_texts{})) {
    const auto read = parse_options({}, text, name);
    uses.push_back(read ? use_of(read->values) : model_use{.weights = true});
  }
  return uses;
}

result<json> examine(const run_folder& folder, const json& asked) {
  json facts{{"version", MOONCAF_VERSION}, {"nodes", wished(folder)}, {"busy", json::array()}};
  for (const std::string port : asked.at("ports"))
    if (!is_free(port)) facts["busy"].push_back(port);
  const auto memory = memory_room_now();
  facts["memory"] = memory ? memory->available_bytes : ~std::uint64_t{0};
  facts["disks"] = json::object();
  for (const std::string disk : asked.at("disks"))
    if (const auto room = room_of(disk)) facts["disks"][disk] = *room;
  const auto model = asked.value("model", "");
  const bool whole = model.empty() || ::access(model.c_str(), R_OK) == 0;
  facts["whole_model"] = whole;
  facts["model"] = whole || check_slice(model, uses_of(asked)).has_value();
  return facts;
}

/// In a child that is to stay: ssh waits as long as a process of its session holds one of its pipes.
void leave_caller(const char* log = "/dev/null") {
  ::setsid();
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(out, 2);
}

result<void> start_agent(const run_folder& folder, const std::string& name) {
  const auto program = own_program();
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ec::io_error, "fork: " + errno_text());
  if (pid == 0) {
    sigset_t early;  // a request that comes before the agent listens waits for it
    ::sigemptyset(&early);
    for (const int s : {SIGHUP, SIGTERM}) ::sigaddset(&early, s);
    ::sigprocmask(SIG_BLOCK, &early, nullptr);
    leave_caller(folder.file("agent.log").c_str());
    ::close_range(3, ~0u, 0);
    ::execl(program.c_str(), program.c_str(), "agent", "run", name.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  return folder.set_agent(pid);
}

/// `agent run`, by a request or by an init system after the host's start.
result<int> become_agent(const run_folder& folder) {
  if (const int other = folder.agent(); other != 0 && other != ::getpid())
    return fail(ec::already_exists, "the agent runs already, as process " + std::to_string(other));
  if (auto ok = folder.set_agent(::getpid()); !ok) return fail(ok.error());
  return run_agent(folder);
}

/// The processes of a host as the agent last wrote them.
/// @param wish  number of the wish that it must have begun to carry out; 0: any
json nodes_now(const run_folder& folder, std::int64_t wish = 0) {
  const auto state = json::parse(folder.read("state.json"), nullptr, false);
  if (!state.is_object() || folder.agent() == 0) return json::object();
  return wish == 0 || state.value("wish", wish - 1) == wish ? state.value("nodes", json::object())
                                                            : json::object();
}

/// A request to a host, and the processes that ran before it.
struct host_wish {
  std::int64_t id = 0;
  node_texts nodes;
  std::map<std::string, std::uint32_t> generations;
  std::set<std::string> restart;  ///< of the nodes: with a new process, though the text is the same
  json before;
  duration ready_within{}, stop_within{};
};

/// What one node still needs, in words; empty: nothing.
/// @error `ec::unavailable`: it ended in place of becoming ready. One that ran before gets the time to come back.
result<std::string> lacks(const host_wish& wish, const std::string& name, const std::string& text,
                          const json& node) {
  const bool again = wish.restart.contains(name);
  const bool same = wish.before.contains(name) && wish.before[name].value("text", "") == text && !again;
  const bool mine =
      node.value("text", "") == text && (!again || node.value("generation", 0u) == wish.generations.at(name));
  const auto phase = mine ? node.value("phase", "") : "";
  const bool refused = again && node.value("refused", false);
  if ((phase == "waiting" && !same) || refused)
    return fail(ec::unavailable, name + (refused ? "'s successor ended with " : " ended with ") +
                                     node.value("last_end", "") + ": " + node.value("last_words", "") +
                                     (refused ? "; the process that ran goes on" : ""));
  if (phase != "ready") return name;
  return node.value("leaving", false) ? name + " (its predecessor ends)" : std::string{};
}

/// Waits until the agent has made the wish true.
result<void> await_wish(const run_folder& folder, const host_wish& wish) {
  const auto begin = clock_type::now();
  while (true) {
    const auto now = nodes_now(folder, wish.id);
    const auto waited = clock_type::now() - begin;
    std::string open;
    const auto add = [&](const std::string& what) { open += (open.empty() ? "" : ", ") + what; };
    for (const auto& [name, text] : wish.nodes) {
      const auto what = lacks(wish, name, text, now.value(name, json::object()));
      if (!what) return fail(what.error());
      if (!what->empty()) add(*what);
    }
    const bool starts = !open.empty();
    for (const auto& [name, node] : now.items())
      if (!wish.nodes.contains(name)) add(name + " (ending)");
    if (open.empty()) return {};
    if (folder.agent() == 0)
      return fail(ec::unavailable, "the agent ended: " + last_line(folder.read("agent.log")));
    if (waited > wish.stop_within + 10s + (starts ? wish.ready_within : 0s))
      return fail(ec::timed_out,
                  "not done after " +
                      config::format_duration(std::chrono::ceil<std::chrono::seconds>(waited)) + ": " + open);
    pause();
  }
}

/// Ends the agent, with what it runs, and removes the folder unless its logs are to stay.
result<void> end_all(const run_folder& folder, duration stop_within, bool keep) {
  const auto begin = clock_type::now();
  for (bool told = false;; told = true) {
    const int pid = folder.agent();
    if (pid == 0) break;
    const bool late = clock_type::now() - begin > stop_within + 10s;
    if (!told || late) ::kill(pid, late ? SIGKILL : SIGTERM);
    pause();
    ::waitpid(pid, nullptr, WNOHANG);  // where this process has started it
  }
  if (!keep) folder.remove();
  return {};
}

/// One request at a time changes a host.
unique_fd claim(const run_folder& folder) {
  unique_fd lock{::open(folder.file("request.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (lock) ::flock(lock.get(), LOCK_EX);
  return lock;
}

/// The generations that keep what runs, and let those that are to be restarted be replaced.
void choose_generations(host_wish& wish) {
  for (const auto& [name, text] : wish.nodes) {
    const auto runs = wish.before.value(name, json::object()).value("generation", 0u);
    wish.generations[name] = runs + (wish.restart.contains(name) ? 1 : 0);
  }
}

result<void> await_gateways(const std::vector<std::string>& urls, duration ready_within) {
  const auto begin = clock_type::now();
  for (const auto& url : urls) {
    while (!serves(url)) {
      if (clock_type::now() - begin > ready_within)
        return fail(ec::timed_out, "the gateway at " + url + " serves no request after " +
                                       config::format_duration(ready_within));
      pause();
    }
  }
  return {};
}

result<json> carry(const run_folder& folder, const std::string& name, const json& asked) {
  host_wish wish;
  wish.nodes = asked.at("nodes").get<node_texts>();
  wish.restart = asked.at("restart").get<std::set<std::string>>();
  wish.ready_within = duration{asked.at("ready_ns").get<std::int64_t>()};
  wish.stop_within = duration{asked.at("stop_ns").get<std::int64_t>()};
  if (auto made = folder.make(); !made) return fail(made.error());
  const auto lock = claim(folder);
  if (wish.nodes.empty()) {
    if (auto ended = end_all(folder, wish.stop_within, asked.at("keep").get<bool>()); !ended)
      return fail(ended.error());
    return json::object();
  }
  wish.before = nodes_now(folder);
  wish.id = std::chrono::system_clock::now().time_since_epoch().count();
  choose_generations(wish);
  for (const auto& [file, text] : asked.at("files").items())
    if (auto ok = folder.write(file, text.get<std::string>()); !ok) return fail(ok.error());
  const json written{{"id", wish.id},
                     {"nodes", wish.nodes},
                     {"generations", wish.generations},
                     {"overlaps", asked.at("overlaps")},
                     {"binary", own_program()},
                     {"stop_ns", wish.stop_within.count()}};
  if (auto ok = folder.write("wish.json", written.dump()); !ok) return fail(ok.error());
  if (const int pid = folder.agent(); pid != 0) ::kill(pid, SIGHUP);
  else if (auto ok = start_agent(folder, name); !ok) return fail(ok.error());
  if (auto ok = await_wish(folder, wish); !ok) return fail(ok.error());
  // The wish is true; only a whole cluster makes a gateway answer well.
  const auto served = await_gateways(asked.at("gateways").get<std::vector<std::string>>(), wish.ready_within);
  return served ? result<json>{json::object()} : fail(served.error());
}

/// The host's processes read the file again when they use it next.
result<json> take_secrets(const run_folder& folder, const json& asked) {
  if (folder.agent() == 0) return fail(ec::not_found, "the cluster is not up here");
  const auto lock = claim(folder);
  const auto written = folder.write("secret", asked.at("secret").get<std::string>());
  return written ? result<json>{json::object()} : fail(written.error());
}

key_ring weights_key(const json& asked) {
  const auto lines = asked.at("secret").get<std::string>();
  const auto secret = cluster_secret::from_text(lines.substr(0, lines.find('\n')));
  if (!secret) return {};
  const auto key = secret->derive(weights_key_purpose);
  return std::string{reinterpret_cast<const char*>(key.data()), key.size()};
}

/// The offer is a process of its own, which ends by itself; it needs no run folder.
result<json> offer(const json& asked) {
  const auto path = asked.at("path").get<std::string>(), host = asked.at("host").get<std::string>();
  const auto secret = weights_key(asked);
  const auto fetches = asked.value("fetches", std::size_t{1});
  std::array<int, 2> told{};
  if (::pipe2(told.data(), O_CLOEXEC) != 0) return fail(ec::io_error, "pipe: " + errno_text());
  unique_fd in{told[0]}, out{told[1]};
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ec::io_error, "fork: " + errno_text());
  if (pid == 0) {
    leave_caller();
    in.reset();
    const auto done = offer_weights(path, secret, host, 0, offer_idle, fetches, [&](std::uint16_t port) {
      ::dprintf(out.get(), "%u\n", static_cast<unsigned>(port));
      out.reset();
    });
    if (!done) ::dprintf(out.get(), "%s\n", done.error().detail.c_str());
    ::_exit(done ? 0 : 1);
  }
  out.reset();
  std::string said;
  for (char c = 0; ::read(in.get(), &c, 1) == 1 && c != '\n';) said += c;
  const auto port = config::parse_integer(said);
  if (!port) return fail(ec::unavailable, said.empty() ? "the offer of " + path + " ended at once" : said);
  return json{{"at", to_string(host_port{host, static_cast<std::uint16_t>(*port)})}};
}

result<json> fetch(const json& asked) {
  file_fetch_options options;
  options.secret = weights_key(asked);
  options.sources = asked.at("from").get<std::vector<std::string>>();
  options.destination = asked.at("to").get<std::string>();
  options.host = asked.at("host").get<std::string>();
  options.wanted = wanted_by(uses_of(asked), options.destination);
  weights_progress progress{[](const std::string& text) {
    if (::dprintf(2, "%s\n", text.c_str()) < 0) ::_exit(1);  // its caller has gone
  }};
  const auto done = fetch_files(options, std::ref(progress));
  if (!done) return fail(done.error());
  return json{{"dropped", done->dropped}};
}

/// Becomes `tail`, which knows how to follow several files.
result<void> show_logs(const run_folder& folder, std::span<const std::string> words) {
  std::vector<std::string> command{"tail", "-n", "100"};
  std::vector<std::string> files;
  for (const auto& word : words) {
    if (word == "follow") command.emplace_back("-F");
    else files.push_back(folder.log(word));
  }
  std::error_code none;
  if (files.empty()) {
    for (const auto& entry : fs::directory_iterator(folder.path(), none))
      if (entry.path().extension() == ".log") files.push_back(entry.path());
    std::ranges::sort(files);
  }
  if (files.empty()) return fail(ec::not_found, "there are no logs: the cluster is not up here");
  command.insert(command.end(), files.begin(), files.end());
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  return fail(ec::io_error, "cannot run tail: " + errno_text());
}

result<json> answer(const std::string& verb, const run_folder& folder, const std::string& name) {
  if (verb == "state") return json{{"nodes", nodes_now(folder)}};
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  const auto asked = json::parse(input, nullptr, false);
  if (!asked.is_object())
    return fail(ec::invalid_argument, "no request on standard input; `mooncaf up` runs this command");
  if (verb == "secret") return take_secrets(folder, asked);
  if (verb == "offer") return offer(asked);
  if (verb == "fetch") return fetch(asked);
  return verb == "examine" ? examine(folder, asked) : carry(folder, name, asked);
}

}  // namespace

int agent_command(std::span<const std::string> args, const sim::console& io) {
  cli::command_line line;
  line.usage = "mooncaf agent run|examine|offer|fetch|carry|secret|state|logs CLUSTER/HOST";
  line.summary =
      "Of `mooncaf up` on each host: `run` starts the host's processes, and again those that die; the others "
      "are "
      "requests to it,\nas JSON on standard input. Not for people: up, status, logs and stop are.";
  const auto read = cli::parse(line, args);
  if (!read) return complain(io, read.error(), 2);
  if (*read == cli::parsed::help) return cli::print_help(line, io.out), 0;
  if (line.words.size() < 2) return complain(io, {ec::invalid_argument, "usage: " + line.usage}, 2);
  const auto& verb = line.words[0];
  const auto folder = run_folder::of(line.words[1]);
  if (!folder) return complain(io, folder.error(), 2);
  if (verb == "run") {
    const auto ended = become_agent(*folder);
    return ended ? *ended : complain(io, ended.error(), 1);
  }
  if (verb == "logs") {
    const auto shown = show_logs(*folder, std::span{line.words}.subspan(2));
    return complain(io, shown.error(), 1);
  }
  static const std::set<std::string_view> verbs{"examine", "offer", "fetch", "carry", "secret", "state"};
  if (!verbs.contains(verb)) return complain(io, {ec::invalid_argument, "unknown request '" + verb + "'"}, 2);
  const auto answered = answer(verb, *folder, line.words[1]);
  if (!answered) return complain(io, answered.error(), 1);
  io.out << answered->dump() << "\n";
  return 0;
}

}  // namespace mooncaf::launch
