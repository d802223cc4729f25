// Placements per second and their tail: the conductor's whole policy code on the conversation trace, at 16,
// 256 and 4,096 instances with 1M and 10M indexed blocks. Beside it, in the same run, the same answers by a
// loop over all instances.
//
// usage: mooncaf_sched_bench TRACE [instances …]     (default: 16 256 4096)

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include "runtime/sched/conductor_core.hpp"
#include "runtime/sched/trace_reader.hpp"

using namespace mooncaf;

namespace {

using seconds = std::chrono::duration<double>;

constexpr std::uint32_t block_tokens = 512;
constexpr int warm_up_passes = 1;
constexpr int measured_passes = 3;

block_key key_of(std::uint64_t id) { return hash_bytes128(std::as_bytes(std::span{&id, 1})); }

/// A prompt of the trace with its block keys, as a gateway would send it.
struct prompt {
  std::vector<block_key> keys;
  std::uint32_t tokens = 0;
  std::int64_t timestamp_ms = 0;
};

std::vector<prompt> load(const char* path) {
  std::ifstream file{path, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  trace_options options;
  options.name = path;
  const auto records = read_trace(text.str(), options);
  if (!file || !records) {
    std::fprintf(stderr, "cannot read %s: %s\n", path,
                 records ? "no such file" : records.error().detail.c_str());
    std::exit(1);
  }
  std::vector<prompt> prompts;
  for (const auto& r : *records) {
    prompt p{{}, r.input_tokens, r.timestamp_ms};
    for (const auto id : r.hash_ids) p.keys.push_back(key_of(id));
    prompts.push_back(std::move(p));
  }
  return prompts;
}

/// Prefill passes and decode steps of LLaMA3-70B on 8 x A800 (F25, Fig. 14).
std::vector<timing_point> prefill_samples() {
  return {{8192, 0, 1.0},    {16384, 0, 2.05},   {32768, 0, 4.48},     {65536, 0, 10.6},
          {131072, 0, 27.5}, {410, 7782, 0.135}, {1638, 31130, 0.406}, {6554, 124518, 2.33}};
}
std::vector<timing_point> decode_samples() {
  return {{1, 8192, 0.0265}, {1, 131072, 0.0308}, {16, 131072, 0.031}, {64, 524288, 0.047}, {64, 64, 0.029}};
}

conductor_options options_for(placement_policy policy, admission_policy admission) {
  conductor_options o;
  o.policy = policy;
  o.admission = admission;
  o.tbt_slo = std::chrono::milliseconds(100);
  o.balancing_threshold = 4;
  o.decode_span = std::chrono::seconds(20);
  o.block_tokens = block_tokens;
  o.bytes_per_token = 327'680;
  o.transfer = {100e9, std::chrono::milliseconds(2), 6e9};
  return o;
}

/// Half of the instances prefill, half decode, each on a node of its own.
void add_instances(conductor_core& core, std::size_t instances) {
  for (std::uint64_t i = 1; i <= instances; ++i) {
    instance_desc d;
    d.id = worker_id{i};
    d.node = node_id{i};
    d.role = i <= instances / 2 ? worker_role::prefill : worker_role::decode;
    d.capacity = 256;
    d.samples = d.role == worker_role::prefill ? prefill_samples() : decode_samples();
    if (!core.add_node(d.node) || !core.add_instance(d)) std::exit(1);
  }
}

/// Fills the index up to `blocks` with sessions that nobody asks for, two holders each, as a pool of that
/// size has.
void fill(conductor_core& core, std::size_t instances, std::size_t blocks) {
  std::mt19937_64 random{1};
  const auto prefill = instances / 2;
  for (std::uint64_t id = 1'000'000'000; core.index().size() < blocks; ++id) {
    const auto key = key_of(id);
    for (int copy = 0; copy < 2; ++copy) {
      core.blocks_held(node_id{1 + random() % prefill}, {&key, 1},
                       random() % 3 ? storage_tier::dram : storage_tier::ssd);
    }
  }
}

/// The peer: Algorithm 1 as the paper writes it, a loop over all instances.
class loop_selector final : public prefill_selector {
 public:
  explicit loop_selector(const policy_options& options) : options_(options) {}

  prefill_choice select(const selection_input& in) override {
    const prefill_costs costs{options_, in};
    held_.assign(prefix_index::max_nodes, {});
    for (const auto& m : in.match.few()) held_[m.node] = m;
    for (const auto& c : in.match.crowds()) {
      c.nodes.for_each([&](node_index n) { held_[n] = {n, c.blocks, c.blocks}; });
    }
    prefill_choice best;
    for (const auto slot : in.pool.live()) {
      const auto c = costs.on(slot, held_[in.pool.node(slot)]);
      if (best.slot == no_slot || c.ttft < best.ttft || (c.ttft == best.ttft && slot < best.slot)) best = c;
    }
    return best;
  }

 private:
  policy_options options_;
  std::vector<holder_match> held_;
};

struct outcome {
  std::vector<std::uint32_t> ns;  // per decision
  double total_seconds = 0;
  std::uint64_t placed = 0, fetched = 0;
};

/// Replays the trace with its times scaled so that the cluster is busy but keeps up; every placed request
/// runs through its life, and its blocks are held by its prefill node afterwards.
class replay {
 public:
  replay(conductor_core& core, const std::vector<prompt>& prompts, std::size_t instances)
      : core_(core), prompts_(prompts), instances_(instances) {}

  void pass(outcome* measured) {
    // One pass of the trace lasts an hour for 16 instances.
    const double scale = 16.0 / static_cast<double>(instances_);
    for (const auto& p : prompts_) {
      const auto now = base_ + from_seconds(static_cast<double>(p.timestamp_ms) * 1e-3 * scale);
      settle(now);
      schedule_request request;
      request.id = request_id{++id_};
      request.keys = p.keys;
      request.prompt_tokens = p.tokens;
      request.max_tokens = 512;
      const auto began = std::chrono::steady_clock::now();
      const auto placed = core_.schedule(request, now);
      const auto took = std::chrono::steady_clock::now() - began;
      if (measured != nullptr) {
        measured->ns.push_back(static_cast<std::uint32_t>(took.count()));
        measured->total_seconds += seconds{took}.count();
        measured->placed += placed ? 1 : 0;
        measured->fetched += placed && placed->source ? 1 : 0;
      }
      if (!placed) continue;
      core_.blocks_held(placed->prefill_node, p.keys, storage_tier::dram);
      open_.emplace(now + placed->predicted_ttft, request.id);
    }
    base_ += from_seconds(3600 * scale);
  }

 private:
  void settle(time_point now) {
    while (!open_.empty() && open_.begin()->first <= now) {
      core_.first_token(open_.begin()->second, 0, 0, duration{}, open_.begin()->first);
      ending_.emplace(open_.begin()->first + std::chrono::seconds(15), open_.begin()->second);
      open_.erase(open_.begin());
    }
    while (!ending_.empty() && ending_.begin()->first <= now) {
      core_.finished(ending_.begin()->second, now);
      ending_.erase(ending_.begin());
    }
  }

  conductor_core& core_;
  const std::vector<prompt>& prompts_;
  std::size_t instances_;
  std::uint64_t id_ = 0;
  time_point base_{std::chrono::hours(1)};
  std::multimap<time_point, request_id> open_, ending_;
};

double percentile(std::vector<std::uint32_t>& ns, double p) {
  const auto at = static_cast<std::size_t>(p * static_cast<double>(ns.size() - 1));
  std::ranges::nth_element(ns, ns.begin() + static_cast<std::ptrdiff_t>(at));
  return ns[at] * 1e-3;
}

void row(const std::vector<prompt>& prompts, std::size_t instances, std::size_t blocks,
         placement_policy policy, admission_policy admission, bool by_loop = false) {
  const auto options = options_for(policy, admission);
  const policy_options as_policy{policy, options.balancing_threshold, block_tokens, options.bytes_per_token,
                                 1};
  conductor_core core{options, by_loop ? std::unique_ptr<prefill_selector>{new loop_selector{as_policy}}
                                       : make_selector(as_policy)};
  add_instances(core, instances);
  const auto filling = std::chrono::steady_clock::now();
  fill(core, instances, blocks);
  const double fill_seconds = seconds{std::chrono::steady_clock::now() - filling}.count();
  const double bytes =
      static_cast<double>(core.index().memory_bytes()) / static_cast<double>(core.index().size());
  replay traffic{core, prompts, instances};
  for (int i = 0; i < warm_up_passes; ++i) traffic.pass(nullptr);
  outcome out;
  for (int i = 0; i < measured_passes; ++i) traffic.pass(&out);
  std::printf(
      "| %zu | %zuM | %s, %s%s | %.0f | %.2f | %.2f | %.2f | %.1f | %.1f | %.0f %% | %.0f %% |\n", instances,
      blocks / 1'000'000, std::string{to_string(policy)}.c_str(), std::string{to_string(admission)}.c_str(),
      by_loop ? ", by a loop" : "", static_cast<double>(out.ns.size()) / out.total_seconds,
      percentile(out.ns, 0.5), percentile(out.ns, 0.99), percentile(out.ns, 1.0), bytes,
      2 * static_cast<double>(blocks) * 1e-6 / fill_seconds,
      100.0 * static_cast<double>(out.placed) / static_cast<double>(out.ns.size()),
      100.0 * static_cast<double>(out.fetched) / static_cast<double>(std::max<std::uint64_t>(out.placed, 1)));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s TRACE [instances …]\n", argv[0]);
    return 1;
  }
  const auto prompts = load(argv[1]);
  std::vector<std::size_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {16, 256, 4096};
  std::printf(
      "%zu prompts per pass, %d passes; aim: 30,000 decisions/s, p99 under 3 ms at 4,096 instances\n\n",
      prompts.size(), measured_passes);
  std::printf(
      "| instances | blocks | policy, admission | decisions/s | p50 µs | p99 µs | max µs | bytes/block | M "
      "events/s | "
      "placed | fetched |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto n : sizes) {
    for (const std::size_t blocks : {1'000'000, 10'000'000}) {
      row(prompts, n, blocks, placement_policy::kvcache_centric, admission_policy::predictive);
    }
  }
  const auto most = sizes.back();
  row(prompts, most, 1'000'000, placement_policy::kvcache_centric, admission_policy::predictive, true);
  for (const auto policy :
       {placement_policy::random, placement_policy::load_balancing, placement_policy::cache_aware}) {
    row(prompts, most, 1'000'000, policy, admission_policy::early);
  }
  return 0;
}
