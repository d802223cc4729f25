// The requests that `mooncaf up` and its companions run on each host.

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "actors/launch/agent.hpp"
#include "actors/launch/child_process.hpp"
#include "actors/launch/cluster_command.hpp"
#include "config/value.hpp"
#include "runtime/base/posix.hpp"
#include "storage/memory_room.hpp"

namespace mooncaf::launch {

namespace {

using namespace std::chrono_literals;
using nlohmann::json;
namespace fs = std::filesystem;

/// Until the next look at what another process does.
void pause() { ::poll(nullptr, 0, 20); }

/// A socket that `use` is content with, at one of the addresses of HOST:PORT.
unique_fd socket_at(const std::string& at, int (*use)(int, const sockaddr*, socklen_t)) {
  const auto where = config::parse_endpoint(at);
  if (!where) return {};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(where->host.c_str(), std::to_string(where->port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all{found, ::freeaddrinfo};
  for (const auto* a = found; a != nullptr; a = a->ai_next) {
    unique_fd fd{::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int on = 1;
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd && use(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
  }
  return {};
}

bool is_free(const std::string& at) {
  const auto fd = socket_at(at, ::bind);
  return fd && ::listen(fd.get(), 1) == 0;  // two sockets may share an address until one of them listens
}

/// Whether a gateway says that requests could be served.
bool answers(const std::string& at) {
  const auto fd = socket_at(at, ::connect);
  constexpr std::string_view question =
      "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  const timeval limit{2, 0};
  if (!fd) return false;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0) return false;
  std::string head(12, '\0');  // "HTTP/1.1 200"
  return ::recv(fd.get(), head.data(), head.size(), MSG_WAITALL) == 12 && head.ends_with(" 200");
}

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
  facts["model"] = model.empty() || ::access(model.c_str(), R_OK) == 0;
  return facts;
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
    ::setsid();  // ssh waits for nobody who has left its session and holds none of its pipes
    const int in = ::open("/dev/null", O_RDONLY);
    const int out = ::open(folder.file("agent.log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(in, 0);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::close_range(3, ~0u, 0);
    ::execl(program.c_str(), program.c_str(), "agent", "run", name.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  const auto mark = mark_of(pid);
  if (!mark) return fail(mark.error());
  return folder.write("agent.pid", std::to_string(mark->pid) + " " + std::to_string(mark->start) + "\n");
}

/// The processes of a host as the agent last wrote them.
json nodes_now(const run_folder& folder) {
  const auto state = json::parse(folder.read("state.json"), nullptr, false);
  return state.is_object() && folder.agent() != 0 ? state.value("nodes", json::object()) : json::object();
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const auto begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

/// Waits until the agent has made the wish true. A process that did not run before and ends at once is an error; one
/// that ran gets the time to come back.
result<void> await_wish(const run_folder& folder, const node_texts& nodes, const json& before,
                        duration ready_within, duration stop_within) {
  const auto begin = clock_type::now();
  while (true) {
    const auto now = nodes_now(folder);
    const auto waited = clock_type::now() - begin;
    std::string open;
    bool starts = false;
    for (const auto& [name, text] : nodes) {
      const auto node = now.value(name, json::object());
      const auto phase = node.value("text", "") == text ? node.value("phase", "") : "";
      const auto last_end = node.value("last_end", "");
      const bool same = before.contains(name) && before[name].value("text", "") == text;
      if (phase == "waiting" && !same)
        return fail(ec::unavailable,
                    name + " ended with " + last_end + ": " + last_line(folder.read(name + ".log")));
      if (phase == "ready") continue;
      starts = true;
      open += (open.empty() ? "" : ", ") + name;
    }
    for (const auto& [name, node] : now.items())
      if (!nodes.contains(name)) open += (open.empty() ? "" : ", ") + name + " (ending)";
    if (open.empty()) return {};
    if (folder.agent() == 0)
      return fail(ec::unavailable, "the agent ended: " + last_line(folder.read("agent.log")));
    if (waited > stop_within + 10s + (starts ? ready_within : 0s))
      return fail(ec::timed_out,
                  "not done after " +
                      config::format_duration(std::chrono::ceil<std::chrono::seconds>(waited)) + ": " + open);
    pause();
  }
}

/// Ends the agent, with what it runs, and removes the folder.
result<void> end_all(const run_folder& folder, duration stop_within) {
  const auto begin = clock_type::now();
  for (bool told = false; const int pid = folder.agent(); told = true) {
    const bool late = clock_type::now() - begin > stop_within + 10s;
    if (!told || late) ::kill(pid, late ? SIGKILL : SIGTERM);
    pause();
    ::waitpid(pid, nullptr, WNOHANG);  // where this process has started it
  }
  folder.remove();
  return {};
}

/// One request at a time changes a host.
unique_fd claim(const run_folder& folder) {
  unique_fd lock{::open(folder.file("request.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (lock) ::flock(lock.get(), LOCK_EX);
  return lock;
}

result<json> carry(const run_folder& folder, const std::string& name, const json& asked) {
  const auto nodes = asked.at("nodes").get<node_texts>();
  const duration ready_within{asked.at("ready_ns").get<std::int64_t>()};
  const duration stop_within{asked.at("stop_ns").get<std::int64_t>()};
  if (auto made = folder.make(); !made) return fail(made.error());
  const auto lock = claim(folder);
  if (nodes.empty()) {
    if (auto ended = end_all(folder, stop_within); !ended) return fail(ended.error());
    return json::object();
  }
  const auto before = nodes_now(folder);
  for (const auto& [file, text] : asked.at("files").items())
    if (auto ok = folder.write(file, text.get<std::string>()); !ok) return fail(ok.error());
  const json wish{{"nodes", nodes}, {"binary", own_program()}, {"stop_ns", stop_within.count()}};
  if (auto ok = folder.write("wish.json", wish.dump()); !ok) return fail(ok.error());
  if (const int pid = folder.agent(); pid != 0) ::kill(pid, SIGHUP);
  else if (auto ok = start_agent(folder, name); !ok) return fail(ok.error());
  if (auto ok = await_wish(folder, nodes, before, ready_within, stop_within); !ok) return fail(ok.error());
  const auto begin = clock_type::now();
  for (const std::string gateway : asked.at("gateways")) {
    while (!answers(gateway)) {
      if (clock_type::now() - begin > ready_within)
        return fail(ec::timed_out, "the gateway at " + gateway + " serves no request after " +
                                       config::format_duration(ready_within));
      pause();
    }
  }
  return json::object();
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
  return verb == "examine" ? examine(folder, asked) : carry(folder, name, asked);
}

}  // namespace

int agent_command(std::span<const std::string> args, const sim::console& io) {
  cli::command_line line;
  line.usage = "mooncaf agent run|examine|carry|state|logs CLUSTER/HOST";
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
  if (verb == "run") return run_agent(*folder);
  if (verb == "logs") {
    const auto shown = show_logs(*folder, std::span{line.words}.subspan(2));
    return complain(io, shown.error(), 1);
  }
  if (verb != "examine" && verb != "carry" && verb != "state")
    return complain(io, {ec::invalid_argument, "unknown request '" + verb + "'"}, 2);
  const auto answered = answer(verb, *folder, line.words[1]);
  if (!answered) return complain(io, answered.error(), 1);
  io.out << answered->dump() << "\n";
  return 0;
}

}  // namespace mooncaf::launch
