#include "runtime/sim/cli/simulation_arguments.hpp"

#include <limits>

#include "config/value.hpp"
#include "runtime/sim/price_list.hpp"

namespace mooncaf::sim {

using namespace std::chrono_literals;

namespace {

std::string profile_names() {
  std::string all;
  for (const auto& n : builtin_profiles()) all += (all.empty() ? "" : ", ") + n;
  return all;
}

/// A size of 0 is the profile's: which that is, is not known before all arguments are read.
std::vector<argument> cluster_arguments(simulation_request& r) {
  auto& o = r.options;
  return {
      text("profile", "NAME|FILE.toml",
           "hardware and model: " + profile_names() + "; a computed one, as in h100x4-llama3-70b-fp8;\n" +
               std::string(26, ' ') + "or a file (default " + r.profile + ")",
           r.profile),
      text("decode-profile", "NAME|FILE.toml", "machines of the decode instances, if they are others",
           r.decode_profile),
      whole("prefill", "prefill instances", o.prefill, 1, 8191),
      whole("decode", "decode instances", o.decode, 1, 8191),
      whole("pipeline", "nodes that work together as one prefill instance, each with a slice of the layers",
            o.pipeline, 1, 64),
      choice("coupled",
             "every node prefills and decodes; prompts one at a time, several per step, or in chunks beside "
             "decoding",
             {"off", "one_by_one", "batched", "chunked"}, o.coupled),
      whole("coupled-chunk", "tokens of a step with --coupled=chunked", o.coupled_chunk, 16, 1u << 20),
      real("nic-gbit", "network of a node, Gbit/s each way; 0: the profile's", r.nic_gbit_per_s, 0, 1e6),
      real("device-link-gb",
           "GB/s each way between a device's memory and its node's; 0: KV lies where it is computed; -1: the "
           "profile's",
           r.device_link_gb_per_s, -1, 1e6),
      whole("device-kv-tokens", "tokens of KV in a device's memory; 0: the profile's", r.device_kv_tokens, 0,
            1'000'000'000'000),
      whole("dram-tokens", "tokens of KV in a node's memory; 0: the profile's", r.dram_tokens, 0,
            1'000'000'000'000),
      whole("ssd-tokens", "tokens of KV on a node's disk; 0: the profile's", r.ssd_tokens, 0,
            1'000'000'000'000),
      flag("no-cache", "reuse no prefix at all", r.no_cache),
      flag("no-layerwise", "move KV before and after the computation, not beside it", r.no_layerwise),
  };
}

/// Named as the server's options are where they mean the same (`server_config.cpp`).
std::vector<argument> policy_arguments(simulation_request& r) {
  auto& o = r.options;
  return {
      choice("policy", "how a prefill instance is chosen", o.policy),
      real("threshold", "fetch a remote prefix only if it is more than this many times longer; inf: never",
           o.balancing_threshold, 1, std::numeric_limits<double>::infinity()),
      choice("prefetch",
             "how long a request waits for its prefix from disk or another node: while its instance has "
             "something else to compute; until all is there; a time",
             o.prefetch.mode),
      seconds("prefetch-timeout-base", "with --prefetch=timeout: for a prefix of any length", o.prefetch.base,
              0ns, 1h),
      seconds("prefetch-timeout-per-ki-token", "likewise: what is added for every 1,024 tokens",
              o.prefetch.per_1024_tokens, 0ns, 1h),
      whole("prefetch-threshold", "tokens: a shorter prefix is computed, not loaded",
            o.prefetch.threshold_tokens, 0, 1u << 24),
      real("hot-copy-share", "of a node's memory, for copies of much used blocks made ahead of need; 0: none",
           o.hot_copy_share, 0, 0.5),
      choice("admission",
             "when a request is refused; queue: never, it waits until there is room; adaptive: by whichever "
             "rule did best "
             "on the last minutes",
             o.admission),
      whole("max-queued", "requests that may wait for a place with --admission=queue", o.max_queued, 1,
            1'000'000),
      seconds("slo-ttft", "time to the first token", o.ttft_slo_s, 1e-3, 1e5),
      seconds("slo-tbt", "time between tokens", o.tbt_slo_s, 1e-4, 1e3),
      choice("tbt", "of a request: the mean of its slowest tenth of gaps, or what nine tenths do not exceed",
             {"slowest_tenth", "p90"}, o.tbt),
      seconds("decode-span", "t_d: how long predictive admission takes a request to decode", o.decode_span_s,
              1e-3, 1e5),
      whole("max-tokens", "that every request asks for; all that admission knows about its answer",
            o.max_tokens, 1, 1u << 24),
      choice("eviction", "which block gives way", o.eviction,
             {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware}),
      flag("any-victim", "let blocks give way whose children are here: a prefix may get holes", r.any_victim),
      whole("copy-age",
            "what other nodes have, too, leaves a full disk as if it had not been used for so many times as "
            "long; 1: it makes no difference",
            o.copy_age, 1, 1'000'000),
      choice("write-policy", "when blocks go to disk", o.write),
      choice("device-write-policy",
             "with --coupled and a device's own memory (--device-link-gb): when blocks go from there to the "
             "node's",
             o.device_write),
      whole("selective-hits", "uses that make a block worth writing (write_through_selective)",
            o.selective_hits, 1, 1'000'000),
      real("high-share", "share of requests with high priority", o.high_share, 0, 1),
      real("low-share", "share of requests with low priority", o.low_share, 0, 1),
  };
}

std::string disturb_help() {
  const std::string indent(26, ' ');
  return "what goes wrong, a line each (WHOM: prefill, decode, or node if coupled, and all, N or N-M):\n" +
         indent + "AT FOR slow WHOM xFACTOR     AT FOR link WHOM xFACTOR     AT FOR burst xFACTOR\n" +
         indent + "AT FOR restart [one_by_one] WHOM\n" + indent +
         "AT FOR fail WHOM [mtbf TIME mttr TIME] [unseen TIME]\n" + indent +
         "such as \"100s 60s slow prefill 0-3 x2\" or \"0s 8h fail decode all mtbf 2h mttr 5m unseen 15s\"";
}

/// MIN-MAX instances.
argument range(std::string name, std::string meaning, instance_range& at) {
  return {std::move(name), "MIN-MAX", std::move(meaning),
          [&at](std::string_view v) -> std::optional<std::string> {
            const auto range = config::parse_range(v);
            if (!range) return "two numbers with a dash between them expected, 1 to 8191, the less first";
            at = *range;
            return std::nullopt;
          }};
}

}  // namespace

std::vector<argument> elastic_arguments(simulation_request& r) {
  auto& e = r.options.elastic;
  return {
      range("scale-prefill",
            "autoscaling: so many prefill instances, as their load asks; --prefill of them at first",
            e.prefill),
      range("scale-decode", "likewise", e.decode),
      range("scale-nodes", "likewise of coupled nodes; --prefill and --decode together of them at first",
            e.nodes),
      seconds("start-up", "from asking for a machine until it serves", e.start_s, 0, 1e5),
      real("target-load", "of an instance, that autoscaling aims at", e.target, 0.05, 2),
      seconds("down-after", "fewer instances only if no more were needed for so long", e.down_after_s, 0,
              1e6),
      flag("switch-roles",
           "machines change between prefill and decode, by load (a server does it with --elastic-roles, in "
           "no time); "
           "where both scale, too, instead of being let go",
           e.switch_roles),
      seconds("switch-time", "from drained in one role until it serves in the other", e.switch_s, 0, 1e5),
      seconds("switch-hold",
              "for which one role must have been the fuller one; without scaling loads are means over twice "
              "as long",
              e.hold_s, 0.1, 1e5),
      seconds("scale-every", "at which machines are decided about", e.every_s, 0.1, 1e5),
      text("prices", "FILE.toml", "what an hour of a machine costs, to tell what the run did", r.prices),
  };
}

argument trace_blocks(std::uint32_t& at) {
  return whole("trace-block-tokens", "tokens of a block in the trace; 0: found out from its lengths", at, 0,
               65'536);
}

std::vector<argument> simulation_arguments(simulation_request& r) {
  auto all = cluster_arguments(r);
  for (auto& a : policy_arguments(r)) all.push_back(std::move(a));
  all.push_back(text("disturb", "FILE", disturb_help(), r.disturbances));
  all.push_back(real("speed", "of the replay: 2 plays an hour in half an hour", r.options.speed, 1e-3, 1e6));
  all.push_back(real("jitter", "relative standard deviation of step times", r.options.jitter, 0, 1));
  all.push_back(whole("seed", "of everything that is drawn", r.options.seed, 0, ~std::uint64_t{0}));
  return all;
}

namespace {

/// An hour of a machine of either role; prefill's with its memory and disk for KV.
result<hourly_price> prices_of(const simulation_request& r, const simulation_options& o) {
  const auto prices = load_prices(r.prices);
  if (!prices) return fail(prices.error());
  const auto prefill = prices->price_of(kind_name(r.profile));
  if (!prefill) return fail(prefill.error());
  const auto decode = prices->price_of(kind_name(r.decode_profile.empty() ? r.profile : r.decode_profile));
  if (!decode) return fail(decode.error());
  const double token_gb = static_cast<double>(o.hardware.kv_bytes_per_token) * 1e-9;
  const auto network = [&](const profile& p) { return p.nic_bytes_per_s * 8e-9 * prices->nic_gbit_hour; };
  const double parts = static_cast<double>(o.hardware.dram_tokens) * token_gb * prices->cache_gb_hour +
                       static_cast<double>(o.hardware.ssd_tokens) * token_gb * prices->ssd_gb_hour;
  return hourly_price{*prefill + parts + network(o.hardware), *decode + network(o.decode_profile()),
                      prices->currency};
}

}  // namespace

/// Profiles are read here, after all arguments, so that sizes that were given go over theirs in any order.
result<simulation_options> resolve(const simulation_request& r) {
  auto options = r.options;
  auto p = load_profile(r.profile, &options.assumed);
  if (!p) return fail(p.error());
  options.hardware = *p;
  if (!r.decode_profile.empty()) {
    auto d = load_profile(r.decode_profile, &options.assumed);
    if (!d) return fail(d.error());
    options.decode_hardware = *d;
  }
  if (r.nic_gbit_per_s > 0 && options.decode_hardware) {
    options.decode_hardware->nic_bytes_per_s = r.nic_gbit_per_s * 1e9 / 8;
  }
  if (r.nic_gbit_per_s > 0) options.hardware.nic_bytes_per_s = r.nic_gbit_per_s * 1e9 / 8;
  for (auto* kind : {&options.hardware, options.decode_hardware ? &*options.decode_hardware : nullptr}) {
    if (kind == nullptr) continue;
    if (r.device_link_gb_per_s >= 0) kind->device_link_bytes_per_s = r.device_link_gb_per_s * 1e9;
    if (r.device_kv_bytes > 0) kind->device_kv_tokens = r.device_kv_bytes / kind->kv_bytes_per_token;
    if (r.device_kv_tokens > 0) kind->device_kv_tokens = r.device_kv_tokens;
  }
  auto& machine = options.hardware;
  if (r.dram_bytes > 0) machine.dram_tokens = r.dram_bytes / machine.kv_bytes_per_token;
  if (r.ssd_bytes > 0) machine.ssd_tokens = r.ssd_bytes / machine.kv_bytes_per_token;
  if (r.chunk_tokens > 0) machine.chunk_tokens = r.chunk_tokens;
  if (r.max_batch > 0) (options.decode_hardware ? *options.decode_hardware : machine).max_batch = r.max_batch;
  if (r.dram_tokens > 0) options.hardware.dram_tokens = r.dram_tokens;
  if (r.ssd_tokens > 0) options.hardware.ssd_tokens = r.ssd_tokens;
  if (!r.disturbances.empty()) {
    auto read = load_disturbances(r.disturbances);
    if (!read) return fail(read.error());
    options.disturbances = std::move(*read);
  }
  if (!r.prices.empty()) {
    auto price = prices_of(r, options);
    if (!price) return fail(price.error());
    options.price = std::move(*price);
  }
  options.layerwise = !r.no_layerwise;
  options.local_cache = !r.no_cache;
  options.leaf_first = !r.any_victim;
  if (auto fit = check_options(options); !fit) return fail(fit.error());
  return options;
}

}  // namespace mooncaf::sim
