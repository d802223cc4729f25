#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "config/value.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/simulation_arguments.hpp"
#include "runtime/sim/cluster_files.hpp"
#include "runtime/sim/plan_report.hpp"
#include "runtime/sim/planner.hpp"
#include "runtime/sim/price_list.hpp"
#include "runtime/sim/session_workload.hpp"

namespace mooncaf::sim {

namespace {

enum class plan_mode : std::uint8_t { both, disaggregated, coupled };

struct plan_call {
  simulation_request cluster;
  plan_problem problem;
  trace_format format;
  std::string trace, kinds = "a800x8-llama70b", prices, out, report;
  std::uint32_t nodes = 0;
  plan_mode mode = plan_mode::both;
  bool json = false;
};

/// "a,b" → a, b.
std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= list.size();) {
    const auto end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// Several numbers of one option.
template <class Number, class Parse>
argument numbers(std::string name, std::string meaning, std::vector<Number>& at, Parse&& parse) {
  return {std::move(name), "N[,N...]", std::move(meaning),
          [&at, parse](std::string_view v) -> std::optional<std::string> {
            at.clear();
            for (const auto& word : words_of(std::string{v})) {
              const auto n = parse(word);
              if (!n) return "'" + word + "' is no number";
              at.push_back(static_cast<Number>(*n));
            }
            return std::nullopt;
          }};
}

/// Several words of one option, each a name of an enumeration.
template <class Enum>
argument choices(std::string name, std::string meaning, std::vector<Enum>& at, std::size_t count) {
  const auto listed = [](const std::vector<Enum>& all) {
    std::string text;
    for (const auto e : all) text += (text.empty() ? "" : ",") + std::string{to_string(e)};
    return text;
  };
  std::vector<Enum> known;
  for (std::size_t i = 0; i < count; ++i) known.push_back(static_cast<Enum>(i));
  meaning += ": " + listed(known) + " (default " + listed(at) + ")";
  return {std::move(name), "NAME[,NAME...]", std::move(meaning),
          [&at, known, all = listed(known)](std::string_view v) -> std::optional<std::string> {
            at.clear();
            for (const auto& word : words_of(std::string{v})) {
              const auto i = std::ranges::find(known, word, [](Enum e) { return to_string(e); });
              if (i == known.end()) return "'" + word + "' is none of " + all;
              at.push_back(*i);
            }
            return std::nullopt;
          }};
}

/// A list where `simulate` takes a value: an option with several values is searched.
std::vector<argument> problem_arguments(plan_call& r) {
  auto& p = r.problem;
  return {
      text("trace", "FILE", "the trace, if it is not named by itself; - is standard input", r.trace),
      trace_blocks(r.format.trace_block_tokens),
      choice("goal", "most traffic of --nodes machines; fewest machines; least cost for --load",
             {"goodput", "nodes", "cost"}, p.goal),
      whole("nodes", "machines: as many (goodput), at most as many; 0: 16 and 256", r.nodes, 0, 2048),
      real("load", "times the trace's traffic that must be carried (nodes, cost)", p.load, 1.0 / 64, 4096),
      real("headroom", "times its load that the cluster must still carry", p.headroom, 1, 100),
      real("target", "share of requests that must end inside both SLOs", p.target, 0.01, 1),
      whole("seeds", "draws of the jitter that the answer must hold for", p.seeds, 1, 100),
      text("profile", "NAME|FILE.toml[,...]",
           "machines to choose from; prefill and decode may take different ones (default " + r.kinds +
               "); h100x*-MODEL: 1, 2, 4 and 8 devices",
           r.kinds),
      text("prices", "FILE.toml", "what an hour of each costs", r.prices),
      choice("mode", "prefill and decode on machines of their own, coupled, or whichever is better",
             {"both", "disaggregated", "coupled"}, r.mode),
      numbers(
          "pipeline",
          "machines of a prefill group to choose from (default 1); the server's groups are devices of one "
          "host",
          p.pipelines, config::parse_integer),
      numbers("coupled-chunk", "tokens of a coupled step to choose from (default 2048,512,128)",
              p.coupled_chunks, config::parse_integer),
      numbers("cache",
              "sizes of the memory for KV to choose from, over the profile's (default 1; with a price: a "
              "quarter to twice)",
              p.cache_factors, config::parse_real),
      numbers("ssd", "GB of disk for KV of a prefill machine to choose from; with a price: 0, 4 times memory",
              p.ssd_gb, config::parse_real),
      numbers("nic",
              "Gbit/s of every machine to choose from; with a price: a quarter to all of the profile's",
              p.nic_gbit, config::parse_real),
      choices("policy", "to choose from", p.policies, 4),
      choices("admission",
              "to choose from; what makes most of too much traffic is taken where none costs load",
              p.admissions, 8),
      text("report", "FILE.html", "write a page: a summary, and plots", r.report),
      text("out", "DIR",
           "write there the file with which `mooncaf up` starts the cluster, or rehearses it on this machine",
           r.out),
      flag("json", "print JSON instead of tables", r.json),
  };
}

command_line plan_line(plan_call& r) {
  // A plan that holds for one draw of nothing stands on a cliff without knowing it.
  constexpr double usual_jitter = 0.1;
  r.cluster.options.jitter = usual_jitter;
  r.problem.policies = {placement_policy::kvcache_centric, placement_policy::cache_aware,
                        placement_policy::load_balancing, placement_policy::random};
  r.problem.admissions = {admission_policy::none, admission_policy::queue, admission_policy::early,
                          admission_policy::priced};
  command_line line;
  line.usage = "mooncaf plan FILE [options]";
  line.summary =
      "Finds the cluster to buy for a trace: machines, split, coupled or not, policy, admission, memory, "
      "disk "
      "and\nnetwork; how much it carries, what it costs, what each of these is worth, and how far it stands "
      "from "
      "where it fails.";
  line.arguments = problem_arguments(r);
  for (auto& a : simulation_arguments(r.cluster)) {
    const bool searched = a.name == "prefill" || a.name == "decode" || a.name == "speed" ||
                          a.name == "profile" || a.name == "decode-profile" || a.name == "pipeline" ||
                          a.name == "coupled-chunk" || a.name == "policy" || a.name == "admission";
    if (!searched) line.arguments.push_back(std::move(a));
  }
  return line;
}

/// "h100x*-MODEL": the machines of 1, 2, 4 and 8 devices that the model fits.
std::vector<std::string> machines_of(const std::string& name) {
  const auto star = name.find("x*-");
  if (star == std::string::npos) return {name};
  std::vector<std::string> fit;
  for (const char* devices : {"1", "2", "4", "8"}) {
    auto one = name;
    one.replace(star + 1, 1, devices);
    const auto p = load_profile(one);
    if (p || p.error().code != ec::out_of_space) fit.push_back(std::move(one));
  }
  // None fits: let the largest say why.
  if (fit.empty()) fit.push_back(std::string{name}.replace(star + 1, 1, "8"));
  return fit;
}

/// The last machine must serve the first one's model.
result<void> fits_first(const plan_problem& p) {
  const auto &first = p.kinds.front(), &last = p.kinds.back();
  if (last.hardware.block_tokens != first.hardware.block_tokens)
    return fail(ec::invalid_argument, "the profiles have blocks of different sizes");
  if (!serve_one_model(first.hardware, last.hardware)) {
    return fail(ec::invalid_argument,
                "the profiles " + first.name + " and " + last.name + " serve different models");
  }
  return {};
}

/// A part that has a price of its own is also tried smaller and larger.
void choose_parts(plan_problem& p, const price_list& prices) {
  p.part_hour = {prices.cache_gb_hour, prices.ssd_gb_hour, prices.nic_gbit_hour};
  const plan_problem usual;
  const auto& machine = p.kinds.front().hardware;
  constexpr double disk_over_memory = 4;
  const double memory_gb =
      static_cast<double>(machine.dram_tokens) * static_cast<double>(machine.kv_bytes_per_token) * 1e-9;
  const double gbit = machine.nic_bytes_per_s * 8e-9;
  if (prices.cache_gb_hour > 0 && p.cache_factors == usual.cache_factors) p.cache_factors = {1, 0.5, 0.25, 2};
  if (prices.ssd_gb_hour > 0 && p.ssd_gb == usual.ssd_gb)
    p.ssd_gb = {0, std::ceil(disk_over_memory * memory_gb)};
  if (prices.nic_gbit_hour > 0 && p.nic_gbit == usual.nic_gbit) p.nic_gbit = {-1, gbit / 2, gbit / 4};
}

/// Profiles and prices. @returns the currency; empty without prices.
result<std::string> read_kinds(plan_call& r) {
  price_list prices;
  if (!r.prices.empty()) {
    auto read = load_prices(r.prices);
    if (!read) return fail(read.error());
    prices = *read;
  } else if (r.problem.goal == plan_goal::cost) {
    return fail(ec::invalid_argument, "--goal cost needs --prices");
  }
  auto& p = r.problem;
  std::vector<std::string> names;
  for (const auto& word : words_of(r.kinds)) {
    for (auto& name : machines_of(word)) names.push_back(std::move(name));
  }
  for (const auto& name : names) {
    auto one = r.cluster;
    one.profile = name;
    const auto options = resolve(one);
    if (!options) return fail(options.error());
    machine_kind kind{kind_name(name), options->hardware, 1};
    if (!r.prices.empty()) {
      const auto price = prices.price_of(kind.name);
      if (!price) return fail(price.error());
      kind.node_hour = *price;
    }
    auto assumed = p.base.assumed;
    for (const auto& value : options->assumed) assumed.push_back(kind.name + ": " + value);
    p.base = *options;
    p.base.assumed = std::move(assumed);
    p.kinds.push_back(kind);
    if (const auto fit = fits_first(p); !fit) return fail(fit.error());
  }
  choose_parts(p, prices);
  return r.prices.empty() ? std::string{} : prices.currency;
}

/// A disturbance must be possible in every cluster that is tried.
result<void> comparable(const plan_call& r) {
  if (r.cluster.disturbances.empty() || r.mode != plan_mode::both) return {};
  const auto all = load_disturbances(r.cluster.disturbances);
  if (!all) return fail(all.error());
  if (std::ranges::all_of(*all, [](const disturbance& d) { return d.kind == disturbance_kind::burst; }))
    return {};
  return fail(ec::invalid_argument,
              "--disturb names instances of one way of working: --mode disaggregated or --mode coupled, too");
}

/// The trace; of a description a made-up one, where an answer takes half of the TBT SLO for a token.
result<std::vector<workload_record>> requests_of(const plan_call& r) {
  if (!r.trace.ends_with(".toml")) return load_trace(r.trace, r.format);
  const auto described = load_workload(r.trace);
  if (!described) return fail(described.error());
  const auto& o = r.problem.base;
  const auto source = play_sessions(*described, {r.format.block_tokens, 1, o.seed, o.tbt_slo_s / 2});
  std::vector<workload_record> all;
  for (workload_record record; *source->next(record);) all.push_back(record);
  return all;
}

/// `--out`. @returns how it is started.
result<std::string> write_cluster(const plan_call& r, const plan_answer& found) {
  std::error_code failed;
  const auto folder = std::filesystem::absolute(r.out, failed);
  if (failed) return fail(ec::io_error, r.out + ": " + failed.message());
  const auto files = cluster_files(r.problem, found.cluster, folder.lexically_normal().string());
  if (!files) return fail(files.error());
  if (const auto written = write_files(*files, r.out); !written) return fail(written.error());
  return "mooncaf up " + r.out + "/cluster.toml";
}

/// `--report`.
result<void> write_page(const plan_call& r, const plan_answer& found, const std::string& currency) {
  const auto& p = r.problem;
  const auto name = r.trace.substr(r.trace.find_last_of('/') + 1);
  const std::string goals[] = {
      "the most traffic of " + std::to_string(p.nodes) + " machines",
      "the fewest machines for " + config::format_real(p.load) + " times its traffic",
      "the least cost for " + config::format_real(p.load) + " times its traffic"};
  std::ofstream page{r.report, std::ios::binary};
  page << to_html(p, found, currency, "A plan for " + name + ": " + goals[static_cast<std::size_t>(p.goal)]);
  page.close();
  if (!page) return fail(ec::io_error, "cannot write " + r.report);
  return {};
}

}  // namespace

/// Prints the nearest cluster even where none meets the goal: the reason is needed most then. The most traffic of
/// so many machines is an answer however little it is.
int plan_command(std::span<const std::string> args, const console& io) {
  plan_call r;
  auto line = plan_line(r);
  const invocation here{io, "plan"};
  if (const auto status = here.begin_with_trace(line, args, r.trace)) return *status;
  constexpr std::uint32_t usual = 16, most = 256;
  auto& p = r.problem;
  p.nodes = r.nodes > 0 ? r.nodes : p.goal == plan_goal::goodput ? usual : most;
  if (const auto fair = comparable(r); !fair) return here.wrong(fair.error(), 2);
  p.disaggregated = r.mode != plan_mode::coupled;
  p.coupled = r.mode != plan_mode::disaggregated;
  const auto currency = read_kinds(r);
  if (!currency) return here.wrong(currency.error(), 2);
  r.format.block_tokens = p.kinds.front().hardware.block_tokens;
  const auto records = requests_of(r);
  if (!records) return here.wrong(records.error(), 1);
  if (records->empty()) return here.wrong({ec::invalid_argument, r.trace + " holds no request"}, 1);
  p.curves = !r.report.empty();
  const auto found = plan(p, *records, [&](const plan_step& at, const plan_cluster& c) {
    if (!io.interactive) return;
    auto what = std::string{at.doing} + ": simulation " + std::to_string(at.runs + 1) + " of about " +
                std::to_string(at.expected) + ": " + describe(p, c);
    what.resize(96, ' ');
    io.err << "\r  " << what << std::flush;
  });
  here.clear_progress();
  if (!found) return here.wrong(found.error(), 2);
  io.out << (r.json ? to_json(p, *found, *currency) : to_text(p, *found, *currency));
  if (!r.report.empty()) {
    if (const auto written = write_page(r, *found, *currency); !written)
      return here.wrong(written.error(), 1);
    if (!r.json) io.out << "\npage: " << r.report << "\n";
  }
  if (!r.out.empty() && found->found) {
    const auto command = write_cluster(r, *found);
    if (!command) return here.wrong(command.error(), 1);
    if (!r.json) io.out << "\nstarted by " << *command << "\n";
  }
  if (!found->found) return 1;
  return p.goal == plan_goal::goodput || found->carries.front() >= p.load ? 0 : 1;
}

}  // namespace mooncaf::sim
