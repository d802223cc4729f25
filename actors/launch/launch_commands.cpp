// up, status, logs, drain, stop, restart, scale: as a person calls them.

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "actors/launch/cluster_command.hpp"
#include "actors/launch/command_tools.hpp"
#include "actors/launch/run_folder.hpp"
#include "config/value.hpp"

namespace mooncaf::launch {

namespace {

std::string seconds_since(time_point begin) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", to_seconds(clock_type::now() - begin));
  return text;
}

/// Set by SIGINT, SIGTERM and SIGHUP while `up` runs.
volatile sig_atomic_t interrupted = 0;

/// Offers of a model by the hosts that others get it from, each begun once: so the fetches find one another.
class model_offers {
 public:
  model_offers(const cluster_access& cluster, const std::vector<launch_action>& batch) {
    std::map<std::size_t, std::size_t> fetches;
    for (const auto& a : batch)
      for (const auto source : a.sources) ++fetches[source];
    for (const auto& [source, count] : fetches)
      offers_[source] = std::async(std::launch::async, [&cluster, s = source, n = count] {
                          return cluster.offer(s, n);
                        }).share();
  }

  /// HOST:PORT of those that could begin. @error `ec::unavailable`: none, and why
  result<std::vector<std::string>> of(const std::vector<std::size_t>& sources) const {
    std::vector<std::string> begun, troubles;
    for (const auto s : sources) {
      const auto& one = offers_.at(s).get();
      if (one) begun.push_back(*one);
      else troubles.push_back(one.error().detail);
    }
    if (begun.empty()) return fail(ec::unavailable, "no host offers the model: " + troubles.front());
    return begun;
  }

 private:
  std::map<std::size_t, std::shared_future<result<std::string>>> offers_;
};

/// Carries out a batch of the core's actions and answers them. @returns the next batch.
std::vector<launch_action> carry_out(const cluster_access& cluster, launch_core& core,
                                     const std::vector<launch_action>& batch, time_point began, bool keep,
                                     const sim::console& io) {
  const model_offers offers{cluster, batch};
  std::vector<std::future<result<host_facts>>> facts;
  for (const auto& a : batch)
    facts.push_back(std::async(std::launch::async, [&cluster, &io, &offers, a, keep]() -> result<host_facts> {
      if (a.step == launch_step::examine) return cluster.examine(a.host);
      if (a.step == launch_step::fetch) {
        const auto from = offers.of(a.sources);
        if (!from) return fail(from.error());
        const auto came = cluster.fetch(a.host, *from, [&](const std::string& far) -> bool {
          io.err << cluster.label(a.host) + ": its model, " + far + "\n" << std::flush;
          return interrupted == 0;
        });
        return came ? result<host_facts>{host_facts{}} : fail(came.error());
      }
      const auto done = cluster.carry(a.host, {a.nodes, a.last, {}, keep});
      return done ? result<host_facts>{host_facts{}} : fail(done.error());
    }));
  std::vector<launch_action> next;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& a = batch[i];
    const auto got = facts[i].get();
    if (interrupted) core.cancel();
    const auto outcome = got ? result<void>{} : fail(got.error());
    std::string what = "checked";
    if (a.step == launch_step::fetch) what = "has the model";
    if (a.step == launch_step::carry)
      what = a.last ? "its gateway serves" : std::to_string(a.nodes.size()) + " processes are ready";
    if (a.step == launch_step::restore) what = "is as it was before";
    if (got)
      io.err << cluster.label(a.host) << ": " << what << ", " << seconds_since(began) << "\n" << std::flush;
    next = a.step == launch_step::examine ? core.examined(a.host, got)
           : a.step == launch_step::fetch ? core.fetched(a.host, outcome)
           : a.step == launch_step::carry ? core.carried(a.host, outcome)
                                          : core.restored(a.host, outcome);
  }
  return next;
}

/// @param keep  the logs of what ran before stay, also if nothing runs in the end.
int bring_up(const cluster_access& cluster, bool keep_going, bool keep, const sim::console& io) {
  const auto began = clock_type::now();
  const bool fresh = !cluster.known();
  launch_core core{cluster.plan(), MOONCAF_VERSION, keep_going};
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::signal(s, [](int) { interrupted = 1; });
  for (auto batch = core.begin(); !batch.empty();) batch = carry_out(cluster, core, batch, began, keep, io);
  if (interrupted) io.err << "mooncaf: interrupted\n";
  for (const auto& p : core.problems())
    io.err << "mooncaf: " << cluster.label(p.host) << ": " << p.what << "\n";
  if (!core.runs()) {
    if (fresh && core.put_back()) cluster.forget();
    io.err << (core.put_back() && keep ? "mooncaf: nothing runs; the logs are kept until mooncaf stop\n"
               : core.put_back()       ? "mooncaf: nothing was changed by this\n"
                                       : "mooncaf: end what is left there: mooncaf stop, with this file\n");
    return 1;
  }
  for (const auto h : hosts_of(cluster)) {
    if (std::ranges::find(core.problems(), h, &launch_problem::host) != core.problems().end()) continue;
    for (const auto& url : cluster.plan().hosts[h].gateways)
      io.out << "serves at " << url << " after " << seconds_since(began) << "\n";
  }
  return core.problems().empty() ? 0 : 1;
}

// ---- status ----

struct status_row {
  std::string host, node, roles;
  node_state state;
  bool leads = false;  ///< it is the conductor that most of the others obey
};

std::string age(std::int64_t since) {
  const auto s = std::max<std::int64_t>(std::time(nullptr) - since, 0);
  return s < 120    ? std::to_string(s) + " s"
         : s < 7200 ? std::to_string(s / 60) + " min"
                    : std::to_string(s / 3600) + " h";
}

std::string words_of(const node_state& s) {
  if (s.phase.empty()) return "not running";
  return s.loops ? "crash loop" : s.phase;
}

std::vector<status_row> rows_of(const cluster_access& cluster, std::vector<std::string>& problems) {
  const auto hosts = hosts_of(cluster);
  const auto states = at_once(hosts, [&](std::size_t h) { return cluster.state(h); });
  std::vector<status_row> rows;
  for (const auto h : hosts) {
    auto there = states[h] ? *states[h] : host_state{};
    if (!states[h]) problems.push_back(cluster.label(h) + ": " + states[h].error().detail);
    for (const auto& node : cluster.plan().hosts[h].nodes) {
      rows.push_back({cluster.plan().hosts[h].entry.name, node.name, node.roles, there[node.name]});
      if (!states[h]) rows.back().state.phase = "unknown";
      there.erase(node.name);
    }
    for (const auto& [name, state] : there)
      rows.push_back({cluster.plan().hosts[h].entry.name, name, "not in the file", state});
  }
  std::map<std::string, std::size_t> obeyed;
  for (const auto& r : rows)
    if (!r.state.conductor.empty()) ++obeyed[r.state.conductor];
  for (auto& r : rows) r.leads = r.state.phase == "ready" && 2 * obeyed[r.node] > rows.size();
  return rows;
}

/// With several conductors the roles say which one leads.
std::string roles_of(const status_row& r, const std::vector<status_row>& all) {
  const auto conducts = [](const status_row& s) { return s.roles.find("conductor") != std::string::npos; };
  if (!conducts(r) || std::ranges::count_if(all, conducts) < 2) return r.roles;
  return r.roles + (r.leads ? " (leads)" : " (stands by)");
}

void print_table(const std::vector<status_row>& rows, std::ostream& out) {
  std::vector<std::array<std::string, 7>> cells{
      {"host", "process", "roles", "state", "for", "starts", "ended last with"}};
  for (const auto& r : rows)
    cells.push_back({r.host, r.node, roles_of(r, rows), words_of(r.state),
                     r.state.since == 0 ? "" : age(r.state.since), std::to_string(r.state.starts),
                     r.state.last_end});
  std::array<std::size_t, 7> widths{};
  for (const auto& row : cells)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : cells) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i)
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << "\n";
  }
}

void print_json(const std::vector<status_row>& rows, const std::vector<std::string>& problems,
                std::ostream& out) {
  nlohmann::ordered_json all{{"nodes", nlohmann::json::array()}, {"problems", problems}};
  for (const auto& r : rows)
    all["nodes"].push_back({{"host", r.host},
                            {"node", r.node},
                            {"roles", r.roles},
                            {"state", words_of(r.state)},
                            {"leads", r.leads},
                            {"pid", r.state.pid},
                            {"since", r.state.since},
                            {"starts", r.state.starts},
                            {"last_end", r.state.last_end}});
  out << all.dump() << "\n";
}

/// Ends one process and leaves the others of its host. @param keep  its logs, if it was the last one there
result<void> end_node(const cluster_access& cluster, std::size_t host, const std::string& node,
                      bool keep = false) {
  auto facts = cluster.examine(host);
  if (!facts) return fail(facts.error());
  if (facts->nodes.erase(node) == 0) return fail(ec::not_found, node + " does not run");
  return cluster.carry(host, {std::move(facts->nodes), false, {}, keep});
}

/// A process and its host.
using placed_node = std::pair<std::size_t, const planned_node*>;

/// A new process in its place, which is ready. @param serves  the gateways are waited for, too
result<void> replace_node(const cluster_access& cluster, const placed_node& which, bool serves) {
  const auto& [host, node] = which;
  const auto facts = cluster.examine(host);
  if (!facts) return fail(facts.error());
  auto nodes = facts->nodes;
  nodes[node->name] = node->text;
  return cluster.carry(host, {std::move(nodes), serves, {node->name}});
}

/// A leader without a rank fails its requests, so it ends first, having finished them, and begins when its ranks are there.
result<void> replace_group(const cluster_access& cluster, const placed_node& leader,
                           std::span<const placed_node> ranks) {
  if (ranks.empty()) return replace_node(cluster, leader, true);
  auto done = end_node(cluster, leader.first, leader.second->name, true);
  if (!done && done.error() == ec::not_found) done = {};
  for (std::size_t i = 0; i < ranks.size() && done; ++i) done = replace_node(cluster, ranks[i], false);
  return done ? replace_node(cluster, leader, true) : done;
}

/// One process after the other, a group as one: workers first, and last the conductor, so that the others have one to join.
/// A gateway ends when its successor serves.
int restart_rolling(const cluster_access& cluster, const sim::console& io) {
  std::vector<placed_node> order;
  std::map<std::string, std::vector<placed_node>> ranks;
  for (const auto h : hosts_of(cluster))
    for (const auto& node : cluster.plan().hosts[h].nodes)
      (node.leader.empty() ? order : ranks[node.leader]).emplace_back(h, &node);
  const auto turn = [](const auto& e) { return e.second->stage == 0 ? stages : e.second->stage; };
  std::ranges::stable_sort(order, {}, turn);
  for (const auto& [host, node] : order) {
    const auto began = clock_type::now();
    if (const auto done = replace_group(cluster, {host, node}, ranks[node->name]); !done) {
      io.err << "mooncaf: " << cluster.label(host) << ": " << node->name << ": " << done.error().detail
             << "\n";
      return 1;
    }
    io.err << cluster.label(host) << ": " << node->name << " is ready again, " << seconds_since(began)
           << "\n";
  }
  return 0;
}

int stop_all(const cluster_access& cluster, bool keep, const sim::console& io) {
  const auto hosts = hosts_of(cluster);
  const auto ends = at_once(hosts, [&](std::size_t h) { return cluster.carry(h, {{}, false, {}, keep}); });
  bool whole = true;
  for (const auto h : hosts) {
    whole &= ends[h].has_value();
    if (ends[h]) io.err << cluster.label(h) << ": stopped\n";
    else io.err << "mooncaf: " << cluster.label(h) << ": " << ends[h].error().detail << "\n";
  }
  return whole ? 0 : 1;
}

}  // namespace

// The help has a whole file, as a person starts from an example, not from a list of options.
int up_command(std::span<const std::string> args, const sim::console& io) {
  bool keep_going = false;
  cli::command_line line;
  line.usage = "mooncaf up FILE [--keep-going]";
  line.summary =
      R"(Starts the cluster that FILE describes, on all of its hosts. Each host is checked first: that it can be reached,
has this version, and that ports, memory and disk suffice; one without the model gets it from those that have it.
If a step fails, everything is put back as it was. What runs already stays; processes that FILE has no more are ended. Once up, an agent on each
host starts again what dies.

  [launch]                            # all of it may be left out
  ready_within = "2m"                 # also: name, binary, secret_file, port, stop_within
  [model]                             # the server's own sections, for all processes: `mooncaf --help`
  path = "/models/M.gguf"
  [scheduler]
  ttft_slo = "2s"
  elastic_roles = true                # coupled processes prefill or decode, as the load asks
  [alpha]                             # a host: any other name
  address = "10.0.0.1"                # by which the others reach it
  conductor = 1                       # on several hosts: one places requests, the others stand by
  gateway = 1
  [beta]
  address = "10.0.0.2"
  ssh = "operator@beta"               # if not the address; localhost needs no ssh
  prefill = 2                         # also: decode, coupled, cache; engine, with engine_at = "127.0.0.1:8001,…"
  prefill_ranks = "gamma"             # each is a group with a rank there (pipeline, tensor); also decode_ranks
  device = "cuda:0,cuda:1"            # in turn; any option, with underscores
  ssd_path = "/nvme/mooncaf")";
  line.arguments = {cli::flag("keep-going", "start what can be started, and say what cannot", keep_going)};
  if (const auto end = begin(line, args, 1, io)) return *end;
  const auto cluster = cluster_access::open(line.words[0]);
  if (!cluster) return complain(io, cluster.error(), 2);
  return bring_up(*cluster, keep_going, false, io);
}

int status_command(std::span<const std::string> args, const sim::console& io) {
  bool watch = false, as_json = false;
  cli::command_line line;
  line.usage = "mooncaf status FILE [--watch] [--json]";
  line.summary =
      "The processes of a cluster: which run, since when, how often they were started, and how they ended "
      "last.\n"
      "A crash loop is a process that ends soon after every start. Of several conductors, the one that leads "
      "is named.\nEnds with 1 unless all are ready.";
  line.arguments = {cli::flag("watch", "again every second", watch),
                    cli::flag("json", "JSON on standard output, a line each time", as_json)};
  if (const auto end = begin(line, args, 1, io)) return *end;
  const auto cluster = cluster_access::open(line.words[0]);
  if (!cluster) return complain(io, cluster.error(), 2);
  while (true) {
    std::vector<std::string> problems;
    const auto rows = rows_of(*cluster, problems);
    if (watch && !as_json) io.out << "\x1b[H\x1b[2J";
    if (as_json) print_json(rows, problems, io.out);
    else print_table(rows, io.out);
    for (const auto& p : problems) io.err << "mooncaf: " << p << "\n";
    io.out.flush();
    const bool well = std::ranges::all_of(rows, [](const auto& r) { return words_of(r.state) == "ready"; });
    if (!watch || !io.out) return well ? 0 : 1;
    ::poll(nullptr, 0, 1000);
  }
}

int logs_command(std::span<const std::string> args, const sim::console& io) {
  bool follow = false;
  cli::command_line line;
  line.usage = "mooncaf logs FILE [NODE] [--follow]";
  line.summary = "The last lines of a process's log, or of all logs; -f is --follow.";
  line.arguments = {cli::flag("follow", "go on as the logs grow", follow)};
  std::vector<std::string> words(args.begin(), args.end());
  for (auto& word : words)
    if (word == "-f") word = "--follow";
  if (const auto end = begin(line, words, 2, io)) return *end;
  const auto cluster = cluster_access::open(line.words[0]);
  if (!cluster) return complain(io, cluster.error(), 2);
  const auto node = line.words.size() > 1 ? line.words[1] : "";
  auto hosts = hosts_of(*cluster);
  if (!node.empty()) {
    const auto host = cluster->host_of(node);
    if (!host) return complain(io, host.error(), 2);
    hosts = {*host};
  }
  const auto shown = at_once(hosts, [&](std::size_t h) { return cluster->show_logs(h, node, follow); });
  int status = 0;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (!shown[i])
      status =
          complain(io, {shown[i].error().code, cluster->label(hosts[i]) + ": " + shown[i].error().detail}, 1);
  return status;
}

int drain_command(std::span<const std::string> args, const sim::console& io) {
  cli::command_line line;
  line.usage = "mooncaf drain FILE NODE";
  line.summary =
      "Ends one process in order (SIGTERM) and waits for its end. It stays away until the next `mooncaf "
      "up`.\n"
      "`mooncaf status FILE` names the processes.";
  if (const auto end = begin(line, args, 2, io)) return *end;
  if (line.words.size() < 2) return complain(io, {ec::invalid_argument, "usage: " + line.usage}, 2);
  const auto cluster = cluster_access::open(line.words[0]);
  if (!cluster) return complain(io, cluster.error(), 2);
  const auto host = cluster->host_of(line.words[1]);
  if (!host) return complain(io, host.error(), 2);
  const auto ended = end_node(*cluster, *host, line.words[1]);
  if (!ended)
    return complain(io, {ended.error().code, cluster->label(*host) + ": " + ended.error().detail}, 1);
  io.err << cluster->label(*host) << ": " << line.words[1] << " has ended\n";
  return 0;
}

int stop_command(std::span<const std::string> args, const sim::console& io) {
  cli::command_line line;
  line.usage = "mooncaf stop FILE";
  line.summary =
      "Ends all processes of a cluster, its agents, and removes their logs and secrets from the hosts.\n"
      "Models, SSD folders and FILE stay.";
  if (const auto end = begin(line, args, 1, io)) return *end;
  const auto cluster = cluster_access::open(line.words[0]);
  if (!cluster) return complain(io, cluster.error(), 2);
  const int status = stop_all(*cluster, false, io);
  if (status == 0) cluster->forget();
  return status;
}

int restart_command(std::span<const std::string> args, const sim::console& io) {
  bool rolling = false;
  cli::command_line line;
  line.usage = "mooncaf restart FILE [--rolling]";
  line.summary =
      "Ends all processes and starts them again, with the program and the options that are there now. Logs "
      "stay.";
  line.arguments = {
      cli::flag("rolling", "one after the other, each waited for, so that no request is lost", rolling)};
  if (const auto end = begin(line, args, 1, io)) return *end;
  const auto cluster = cluster_access::open(line.words[0]);
  if (!cluster) return complain(io, cluster.error(), 2);
  if (rolling) return restart_rolling(*cluster, io);
  const int stopped = stop_all(*cluster, true, io);
  return stopped != 0 ? stopped : bring_up(*cluster, false, true, io);
}

/// The file's text after "PART=+N", "PART=-N" or "PART=N".
result<std::string> changed(const std::string& text, const std::string& file, const std::string& change,
                            const std::string& host) {
  const auto equals = std::min(change.find('='), change.size());
  const auto part = change.substr(0, equals);
  auto number = change.substr(std::min(equals + 1, change.size()));
  const char sign = !number.empty() && (number[0] == '+' || number[0] == '-') ? number[0] : '\0';
  if (sign != '\0') number.erase(0, 1);
  const auto count = config::parse_integer(number);
  if (!count || *count > scale_most)
    return fail(ec::invalid_argument, "'" + change + "' is not PART=+N, PART=-N or PART=N, N from 0 to " +
                                          std::to_string(scale_most));
  if (sign == '\0') return scaled_to(text, file, part, static_cast<std::uint32_t>(*count), host);
  return scaled(text, file, part, static_cast<int>(*count) * (sign == '-' ? -1 : 1), host);
}

// The file is the wish: it is changed first, and put back if the cluster does not follow.
int scale_command(std::span<const std::string> args, const sim::console& io) {
  std::string host;
  cli::command_line line;
  line.usage = "mooncaf scale FILE PART=+N|PART=-N|PART=N [PART=…] [--host NAME]";
  line.summary =
      "Changes the count of prefill, decode, coupled, engine or cache processes in FILE, and the running "
      "cluster "
      "with it: by N, or, without a sign, to N on all hosts together.\n"
      "  mooncaf scale cluster.toml prefill=+2\n"
      "  mooncaf scale cluster.toml prefill=3 decode=2    as a server's scale-command";
  line.arguments = {
      cli::text("host", "NAME",
                "the host; by default the one that has the fewest, or the most when N are taken away", host)};
  if (const auto end = begin(line, args, 4, io)) return *end;
  if (line.words.size() < 2)
    return complain(io, {ec::invalid_argument, "nothing to change: PART=+N, PART=-N or PART=N is missing"},
                    2);
  const auto& file = line.words[0];
  if (const auto now = cluster_access::open(file); !now) return complain(io, now.error(), 2);
  std::ifstream in(file, std::ios::binary);
  const std::string before{std::istreambuf_iterator<char>(in), {}};
  auto after = before;
  for (const auto& change : std::span{line.words}.subspan(1)) {
    auto next = changed(after, file, change, host);
    if (!next) return complain(io, next.error(), 2);
    after = std::move(*next);
  }
  if (const auto ok = rewrite(file, after); !ok) return complain(io, ok.error(), 1);
  const auto cluster = cluster_access::open(file);
  const int status = cluster ? bring_up(*cluster, false, false, io) : complain(io, cluster.error(), 2);
  if (status == 0) return 0;
  const auto back = rewrite(file, before);
  return back ? status : complain(io, back.error(), 1);
}

}  // namespace mooncaf::launch
