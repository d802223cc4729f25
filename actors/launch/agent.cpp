#include "actors/launch/agent.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runtime/base/posix.hpp"
#include "runtime/launch/keeper_core.hpp"

namespace mooncaf::launch {

namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr duration look_every = 20ms;  ///< at the log of a process that starts

/// The field of an event in a line of a log, as text or JSON. Names of processes have no spaces.
std::optional<std::string> field_of(const std::string& line, const std::string& event,
                                    const std::string& field) {
  if (line.starts_with('{')) {
    if (line.find('"' + event + '"') == std::string::npos) return std::nullopt;  // most lines, unparsed
    const auto said = json::parse(line, nullptr, false);
    if (!said.is_object() || said.value("event", "") != event) return std::nullopt;
    return said.value(field, "");
  }
  const auto begins = " " + event + " " + field + "=";
  const auto at = line.find(begins);
  if (at == std::string::npos) return std::nullopt;
  const auto value = line.substr(at + begins.size());
  return value.substr(0, value.find(' '));
}

std::string words_of(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

class agent {
 public:
  explicit agent(const run_folder& folder) : folder_(folder) {}

  int run() {
    sigset_t mine;
    ::sigemptyset(&mine);
    for (const int s : {SIGCHLD, SIGHUP, SIGTERM, SIGINT}) ::sigaddset(&mine, s);
    ::sigprocmask(SIG_BLOCK, &mine, nullptr);
    const unique_fd signals{::signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (!signals) return 1;
    read_wish();
    while (true) {
      act();
      if (stopping_ && core_.idle()) return 0;
      pollfd wait{signals.get(), POLLIN, 0};
      const bool starts = std::ranges::any_of(logs_, [](const auto& l) { return !l.second.ready; });
      const auto longest = starts ? look_every : duration{1s};
      const auto left = core_.until_next(clock_type::now(), longest);
      ::poll(&wait, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
      signalfd_siginfo told{};
      while (::read(signals.get(), &told, sizeof told) == sizeof told) {
        if (told.ssi_signo == SIGHUP) read_wish();
        if (told.ssi_signo == SIGTERM || told.ssi_signo == SIGINT) stop();
      }
      reap();
      read_logs();
    }
  }

 private:
  struct log_place {
    std::string node;
    std::streamoff begin = 0;     ///< its size when the process was started
    std::streamoff read = begin;  ///< up to here
    std::string rest;             ///< of a line that is not whole
    bool built = false, ready = false;
    bool member = true;     ///< of the cluster, as all are but ranks
    std::string conductor;  ///< the one that it obeys; empty: none yet
  };

  void stop() {
    stopping_ = true;
    core_.wish({});
  }

  void read_wish() {
    if (stopping_) return;
    const auto wish = json::parse(folder_.read("wish.json"), nullptr, false);
    if (!wish.is_object()) return;  // the writer replaces it whole, so another process made this
    binary_ = wish.value("binary", "");
    core_.stop_within(std::chrono::nanoseconds{wish.value("stop_ns", std::int64_t{60'000'000'000})});
    const auto generations = wish.value("generations", std::map<std::string, std::uint32_t>{});
    const auto overlaps = wish.value("overlaps", std::set<std::string>{});
    node_wishes all;
    for (const auto& [name, text] : wish.value("nodes", node_texts{})) {
      const auto generation = generations.find(name);
      all[name] = {text, generation == generations.end() ? 0 : generation->second, overlaps.contains(name)};
    }
    core_.wish(std::move(all));
    wish_ = wish.value("id", std::int64_t{0});
  }

  void act() {
    const auto now = clock_type::now();
    for (const auto& action : core_.due(now)) {
      const auto at = pids_.find(action.run);
      if (action.order == keeper_order::spawn) spawn(action);
      else if (at != pids_.end()) ::kill(at->second, action.order == keeper_order::kill ? SIGKILL : SIGTERM);
    }
    publish(now);
  }

  void spawn(const keeper_action& action) {
    const auto config = "nodes/" + action.node + ".toml";
    (void)folder_.write(config, action.text);  // a full disk shows as the node's own error
    const auto log = folder_.log(action.node);
    struct stat had {};
    logs_[action.run] = {action.node, ::stat(log.c_str(), &had) == 0 ? had.st_size : 0};
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) become(parent, log, config);
    if (pid > 0) pids_[action.run] = pid;
    else core_.ended(action.run, "fork: " + errno_text(), clock_type::now());
  }

  /// The child's side of `spawn`.
  [[noreturn]] void become(pid_t parent, const std::string& log, const std::string& config) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nothing outlives an agent that is killed
    if (::getppid() != parent) ::_exit(1);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int in = ::open("/dev/null", O_RDONLY);
    ::dup2(in, 0);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::close_range(3, ~0u, 0);
    if (::chdir(folder_.path().c_str()) != 0) ::_exit(1);
    ::execlp(binary_.c_str(), binary_.c_str(), "--config", config.c_str(), static_cast<char*>(nullptr));
    ::dprintf(2, "cannot run %s\n", binary_.c_str());
    ::_exit(127);
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      for (auto it = pids_.begin(); it != pids_.end(); ++it) {
        if (it->second != pid) continue;
        if (const auto log = logs_.extract(it->first))
          last_words_[log.mapped().node] = last_words(log.mapped());
        core_.ended(it->first, words_of(status), clock_type::now());
        pids_.erase(it);
        break;
      }
    }
  }

  /// Why a process ended, as it said itself: a successor and the process before it write into one log, so the last
  /// line there may be the other's.
  std::string last_words(const log_place& place) const {
    std::ifstream in(folder_.log(place.node), std::ios::binary);
    in.seekg(place.begin);
    std::string last, reason;
    for (std::string line; std::getline(in, line); last = std::move(line))
      if (line.starts_with("mooncaf: ")) reason = line;
    return reason.empty() ? last : reason;
  }

  /// Reads on in the logs: a process says that it is built, and which conductor it is a member of. Only then may the
  /// next one be restarted.
  void read_logs() {
    for (auto& [run, place] : logs_) {
      std::ifstream in(folder_.log(place.node), std::ios::binary);
      in.seekg(place.read);
      std::string text{std::istreambuf_iterator<char>(in), {}};
      place.read += static_cast<std::streamoff>(text.size());
      place.rest += text;
      std::size_t begin = 0;
      for (auto end = place.rest.find('\n'); end != std::string::npos; end = place.rest.find('\n', begin)) {
        const auto line = place.rest.substr(begin, end - begin);
        if (const auto roles = field_of(line, "ready", "roles")) {
          place.built = true;
          place.member = *roles != "rank";
        }
        if (auto name = field_of(line, "member", "conductor")) place.conductor = std::move(*name);
        begin = end + 1;
      }
      place.rest.erase(0, begin);
      if (place.ready || !place.built || (place.member && place.conductor.empty())) continue;
      place.ready = true;
      core_.became_ready(run, clock_type::now());
    }
  }

  void publish(time_point now) {
    json nodes = json::object();
    for (const auto& [name, k] : core_.view(now)) {
      const auto pid = pids_.find(k.run);
      const auto log = logs_.find(k.run);
      const auto since = std::chrono::system_clock::now() - (now - k.since);
      nodes[name] = {
          {"phase", k.phase},
          {"text", k.text},
          {"last_end", k.last_end},
          {"last_words", last_words_.contains(name) ? last_words_.at(name) : ""},
          {"starts", k.starts},
          {"generation", k.generation},
          {"loops", k.loops},
          {"refused", k.refused},
          {"leaving", k.leaving},
          {"pid", pid == pids_.end() ? 0 : pid->second},
          {"conductor", log == logs_.end() ? "" : log->second.conductor},
          {"since", std::chrono::duration_cast<std::chrono::seconds>(since.time_since_epoch()).count()}};
    }
    const json all{{"nodes", nodes}, {"wish", wish_}};
    auto text = all.dump(-1, ' ', false, json::error_handler_t::replace);  // a log may hold any bytes
    if (text == published_) return;
    if (folder_.write("state.json", text)) published_ = std::move(text);
  }

  const run_folder& folder_;
  keeper_core core_{60s};
  std::string binary_, published_;
  std::int64_t wish_ = 0;                          ///< the one that is carried out
  std::map<std::uint32_t, pid_t> pids_;            ///< by the core's number of the run
  std::map<std::uint32_t, log_place> logs_;        ///< of processes that run
  std::map<std::string, std::string> last_words_;  ///< of the process that ended last, by node
  bool stopping_ = false;
};

}  // namespace

int run_agent(const run_folder& folder) { return agent{folder}.run(); }

}  // namespace mooncaf::launch
