#include <array>
#include <cstdio>
#include <ostream>

#include "config/command_line.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/simulation_arguments.hpp"
#include "runtime/sim/hit_ratio.hpp"
#include "runtime/sim/json_object.hpp"
#include "runtime/sim/session_workload.hpp"
#include "runtime/sim/trace_stats.hpp"
#include "runtime/sim/workload_generator.hpp"

namespace mooncaf::sim {

namespace {

int stats(std::span<const std::string> args, const console& io) {
  trace_format format;
  bool json = false;
  command_line line{"mooncaf trace stats FILE",
                    "Says what is in a trace. Percentiles are exact.",
                    {trace_blocks(format.trace_block_tokens), flag("json", "print JSON", json)},
                    {}};
  const invocation here{io, "trace stats"};
  if (const auto status = here.begin(line, args, 1)) return *status;
  auto source = open_trace(line.words.front(), format);
  if (!source) return here.wrong(source.error(), 1);
  trace_stats collected;
  for (workload_record r;;) {
    const auto more = (*source)->next(r);
    if (!more) return here.wrong(more.error(), 1);
    if (!*more) break;
    collected.add(r);
  }
  const auto blocks = (*source)->block_tokens();
  io.out << (json ? collected.to_json(blocks) : collected.to_text(blocks));
  return 0;
}

/// The requests of a description, if one is named, else of a kind of workload.
result<std::unique_ptr<trace_source>> made_up(const workload_options& o, const std::string& described,
                                              double token_s) {
  if (described.empty()) return generate(o);
  const auto d = load_workload(described);
  if (!d) return fail(d.error());
  return play_sessions(*d, {o.block_tokens, 1, o.seed, token_s});
}

/// Writes as it goes: a trace may be larger than memory.
int make(std::span<const std::string> args, const console& io) {
  workload_options o;
  std::string described;
  double token_s = 0.05;
  command_line line{
      "mooncaf trace generate [options]",
      "Writes a made-up trace to standard output; the same options give the same trace.",
      {choice("kind", "of workload", {"chat", "agent", "long_doc"}, o.kind),
       text("workload", "FILE.toml", "a description instead; of the options below it heeds the last three",
            described),
       whole("requests", "how many", o.requests, 1, 1'000'000'000),
       real("rate", "requests a second, on average", o.rate, 1e-6, 1e6),
       real("burstiness", "0 is Poisson; b makes bursts of 1 + b sessions on average", o.burstiness, 0, 1e4),
       real("input-mean", "tokens of a prompt; 0: the kind's own", o.input_mean, 0, 1e7),
       real("output-mean", "tokens of an answer; 0: the kind's own", o.output_mean, 0, 8192),
       whole("input-max", "longest prompt", o.input_max, 1, 1u << 26),
       seconds("token-time", "with --workload: what answers need for a token, before the next turn", token_s,
               1e-6, 10),
       whole("block-tokens", "tokens of a block", o.block_tokens, 1, 65'536),
       whole("seed", "of everything that is drawn", o.seed, 0, ~std::uint64_t{0})},
      {}};
  const invocation here{io, "trace generate"};
  if (const auto status = here.begin(line, args, 0)) return *status;
  auto source = made_up(o, described, token_s);
  if (!source) return here.wrong(source.error(), 2);
  for (workload_record r; *(*source)->next(r);) {
    io.out << to_json_line(r) << '\n';
    if (!io.out) return here.wrong({ec::io_error, "cannot write"}, 1);
  }
  return 0;
}

/// Ratios of one capacity, of the policies in order.
struct hit_row {
  std::uint64_t capacity = 0;
  std::array<double, 3> any{}, leaves{};
};
constexpr std::array hit_policies{eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware};

hit_row hits_of(const std::vector<workload_record>& records, std::uint64_t capacity) {
  hit_row row{capacity, {}, {}};
  for (std::size_t p = 0; p < hit_policies.size(); ++p) {
    hit_ratio_pool any{{hit_policies[p], false}, capacity}, leaves{{hit_policies[p], true}, capacity};
    for (const auto& r : records) {
      any.request(r);
      leaves.request(r);
    }
    row.any[p] = any.ratio();
    row.leaves[p] = leaves.prefix_ratio();
  }
  return row;
}

void print_hits(const std::vector<hit_row>& rows, std::ostream& out) {
  char cell[64];
  out << "capacity      ";
  for (const auto p : hit_policies) {
    std::snprintf(cell, sizeof cell, "%-22s", std::string{to_string(p)}.c_str());
    out << cell;
  }
  out << "\n";
  for (const auto& row : rows) {
    std::snprintf(cell, sizeof cell, "%-14s",
                  row.capacity == 0 ? "no end" : std::to_string(row.capacity).c_str());
    out << cell;
    for (std::size_t p = 0; p < hit_policies.size(); ++p) {
      std::snprintf(cell, sizeof cell, "%.6f (%.6f)   ", row.any[p], row.leaves[p]);
      out << cell;
    }
    out << "\n";
  }
}

std::string hits_as_json(const std::vector<hit_row>& rows) {
  std::vector<std::string> all;
  for (const auto& row : rows) {
    json_object j;
    j.raw("capacity_blocks", row.capacity == 0 ? "null" : std::to_string(row.capacity));
    for (std::size_t p = 0; p < hit_policies.size(); ++p) {
      j.raw(to_string(hit_policies[p]),
            json_object{}.number("blocks", row.any[p]).number("leaf_first_prefix", row.leaves[p]).done());
    }
    all.push_back(j.done());
  }
  return json_list(all) + "\n";
}

int hit_rate(std::span<const std::string> args, const console& io) {
  trace_format format;
  std::uint64_t capacity = 0;
  bool json = false;
  command_line line{
      "mooncaf trace hitrate FILE",
      "Hit ratio of one pool of blocks for every eviction policy and capacity, block by block. In brackets:\n"
      "hits that no miss precedes, with victims chosen leaf first, which is what a prefix cache can use.",
      {trace_blocks(format.trace_block_tokens),
       whole("capacity", "one capacity in blocks instead of the usual six; 0: those", capacity, 0,
             1'000'000'000),
       flag("json", "print JSON", json)},
      {}};
  const invocation here{io, "trace hitrate"};
  if (const auto status = here.begin(line, args, 1)) return *status;
  const auto records = load_trace(line.words.front(), format);
  if (!records) return here.wrong(records.error(), 1);
  std::vector<std::uint64_t> sizes{0, 100'000, 50'000, 30'000, 10'000, 1'000};
  if (capacity > 0) sizes = {capacity};
  std::vector<hit_row> rows;
  for (const auto size : sizes) rows.push_back(hits_of(*records, size));
  if (json) io.out << hits_as_json(rows);
  else print_hits(rows, io.out);
  return 0;
}

}  // namespace

int trace_command(std::span<const std::string> args, const console& io) {
  const auto command = args.empty() ? std::string{"--help"} : args.front();
  const auto rest = args.empty() ? args : args.subspan(1);
  if (command == "stats") return stats(rest, io);
  if (command == "generate") return make(rest, io);
  if (command == "hitrate") return hit_rate(rest, io);
  if (command == "fit") return trace_fit_command(rest, io);
  if (command == "from-journal") return trace_from_journal_command(rest, io);
  const auto asked = help_asked(command);
  if (asked && *asked != help_form::text) {
    command_line line{"mooncaf trace COMMAND [options]",
                      "Makes traces, fits and counts them. Each command explains itself.",
                      {},
                      {},
                      {"stats", "generate", "hitrate", "fit", "from-journal"},
                      *asked};
    print_help(line, io.out);
    return 0;
  }
  (asked ? io.out : io.err)
      << "usage: mooncaf trace stats FILE | generate [options] | hitrate FILE | fit FILE | "
         "from-journal FILE; each explains itself with --help\n";
  return asked ? 0 : 2;
}

}  // namespace mooncaf::sim
