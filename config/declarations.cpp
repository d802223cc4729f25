// The table of all options: one entry each, and nothing about an option is said anywhere else.

#include <algorithm>

#include "config/declaration_kinds.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/wire_version.hpp"

namespace mooncaf::config {

namespace {

using namespace std::chrono_literals;

struct role_name {
  std::string_view word;
  bool cluster_options::*field;
  bool of_all = true;
};
constexpr role_name roles[] = {
    {"conductor", &cluster_options::conductor}, {"prefill", &cluster_options::prefill},
    {"decode", &cluster_options::decode},       {"cache", &cluster_options::cache},
    {"gateway", &cluster_options::gateway},     {"engine", &cluster_options::engine, false}};

/// "all", or some of the roles with commas between them.
std::optional<std::string> set_roles(options& o, std::string_view text) {
  cluster_options picked;
  for (const auto& r : roles) picked.*r.field = r.of_all && text == "all";
  picked.rank = text == "rank";
  for (std::size_t begin = 0; text != "all" && text != "rank" && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const auto* found =
        std::find_if(std::begin(roles), std::end(roles), [&](auto& r) { return r.word == word; });
    if (found == std::end(roles)) {
      const std::string near =
          nearest(word, {"all", "conductor", "prefill", "decode", "cache", "gateway", "engine"});
      return quoted(word) + " is not a role" + (near.empty() ? "" : " (did you mean " + near + "?)");
    }
    picked.*found->field = true;
    begin = end + 1;
  }
  for (const auto& r : roles) o.cluster.*r.field = picked.*r.field;
  o.cluster.rank = picked.rank;
  return std::nullopt;
}

std::string show_roles(const options& o) {
  std::string text;
  bool all = true;
  for (const auto& r : roles) {
    all = all && o.cluster.*r.field == r.of_all;
    if (o.cluster.*r.field) text += (text.empty() ? "" : ",") + std::string{r.word};
  }
  return o.cluster.rank ? "rank" : all ? "all" : text;
}

/// Without `cost_aware`, which is for objects: a block's cost is not told.
std::vector<eviction_policy> block_evictions() {
  auto all = all_values<eviction_policy>();
  std::erase(all, eviction_policy::cost_aware);
  return all;
}

/// `early_running` is simulated alone, to compare.
std::vector<admission_policy> served_admissions() {
  auto all = all_values<admission_policy>();
  std::erase(all, admission_policy::early_running);
  return all;
}

/// "auto", "none" where it may be, and every form.
template <class Form>
named_values<form_choice<Form>> forms(bool may_be_none) {
  named_values<form_choice<Form>> all{{"auto", {}}};
  if (may_be_none) all.push_back({"none", {false, std::nullopt}});
  for (const auto form : all_values<Form>()) all.push_back({std::string{to_string(form)}, {false, form}});
  return all;
}

declaration role_option() {
  declaration d = make_declaration(
      {"role", "role", "What this process does: its parts of the cluster"}, "cluster", "LIST",
      "all, or a list with commas of conductor, prefill, decode, cache, gateway, engine; or rank",
      toml_type::string);
  d.set = set_roles;
  d.show = show_roles;
  return d;
}

void add_scaling(table& t) {
  const auto c = &options::scheduler;
  const std::string s = "scheduler", who = "conductor";
  t.push_back(range(
      {"scale-prefill", "scale_prefill",
       "Ask scale-command for so many nodes with prefill, as their load needs; empty: nobody is asked", who},
      s, at(c, &scheduler_options::scale_prefill)));
  t.push_back(range({"scale-decode", "scale_decode", "Likewise of decode", who}, s,
                    at(c, &scheduler_options::scale_decode)));
  t.push_back(range({"scale-nodes", "scale_nodes",
                     "Likewise of nodes that do both, with mode coupled or elastic-roles", who},
                    s, at(c, &scheduler_options::scale_nodes)));
  t.push_back(real({"target-load", "target_load", "Load of an instance that scaling aims at; 1 is full", who},
                   s, at(c, &scheduler_options::target_load), 0.05, 2.0, false));
  t.push_back(time(
      {"down-after", "down_after",
       "Ask for fewer only if no more were needed for so long, and for nothing so long after the start", who},
      s, at(c, &scheduler_options::down_after), 100ms, 24h));
  t.push_back(time({"scale-every", "scale_every", "At which the number of nodes is decided about", who}, s,
                   at(c, &scheduler_options::scale_every), 100ms, 24h));
  t.push_back(text(
      {"scale-command", "scale_command",
       "Program, with its first arguments, that is started when their number should change: with "
       "prefill=N, decode=N or coupled=N, the counts that there should be. Tried again until it succeeds",
       who},
      s, at(c, &scheduler_options::scale_command), "COMMAND"));
}

/// What a process is and does as a member of its cluster, up to its end.
void add_cluster(table& t) {
  const auto c = &options::cluster;
  const std::string s = "cluster";
  t.push_back(role_option());
  t.push_back(
      endpoint_list({"join", "join",
                     "The conductor to join; empty: this process starts its own. Several with commas, "
                     "the same for all processes, conductors too: the first leads, and when it is gone "
                     "the next that most processes reach takes over"},
                    s, at(c, &cluster_options::join)));
  t.push_back(endpoint_list(
      {"ranks", "ranks",
       "Processes with --role rank that compute with this one, where each listens: together they are its "
       "instances. The first stage's first, of a stage with --tensor all ranks; this process has the last "
       "stage, or is the first rank of it",
       "prefill, decode"},
      s, at(c, &cluster_options::ranks)));
  t.push_back(
      time({"ranks-wait", "ranks_wait",
            "How long to wait at the start for ranks that do not answer, as they still load their weights",
            "prefill, decode"},
           s, at(c, &cluster_options::ranks_wait), 0s, 24h));
  t.push_back(
      time({"leader-timeout", "leader_timeout",
            "With several conductors: silence of the one that leads after which another takes over; the "
            "same for all processes"},
           s, at(c, &cluster_options::leader_timeout), 100ms, 60s));
  t.push_back(
      endpoint({"listen", "listen",
                "Where control connections are accepted; without the conductor's role and unless given, the "
                "port is picked by the system"},
               s, at(c, &cluster_options::listen)));
  t.push_back(text({"advertise", "advertise",
                    "Host name or address that others reach this process by; empty: that of listen"},
                   s, at(c, &cluster_options::advertise), "HOST"));
  t.push_back(text(
      {"cluster-secret-file", "secret_file",
       "File with the secret that all processes of the cluster share, for its owner's eyes alone; empty: the "
       "user's own, made at first start. Needed as soon as others than this machine can connect"},
      s, at(c, &cluster_options::cluster_secret_file), "FILE"));
  t.push_back(text(
      {"name", "name", "Name of this process in logs, metrics and /cluster; empty: from host and process id"},
      s, at(c, &cluster_options::name), "NAME"));
  t.push_back(choice<cluster_options, serving_mode>(
      {"mode", "mode",
       "disaggregated keeps prefill and decode on instances of their own; coupled has one worker do both; "
       "engines has "
       "engines of another make do both, each behind a process with the role engine"},
      s, at(c, &cluster_options::mode),
      {{"disaggregated", serving_mode::disaggregated},
       {"coupled", serving_mode::coupled},
       {"engines", serving_mode::engines}}));
  t.push_back(
      time({"drain-timeout", "drain_timeout",
            "Once told to stop, take no new work and end what runs for at most this long; workers hand "
            "the rest to others. 0s ends it at once, as a second signal does"},
           s, at(c, &cluster_options::drain_timeout), 0s, 24h));
  t.push_back(integer(
      {"wire-version", "wire_version",
       "Newest version of the messages between processes that this one knows: lower than it is, the process "
       "behaves as the release before, to rehearse an upgrade. The others send it what it knows"},
      s, at(c, &cluster_options::wire_version), wire::oldest, wire::newest, ""));
}

/// The engine of another make that the process stands for.
void add_engine(table& t) {
  const auto e = &options::engine;
  const std::string s = "engine", who = "engine";
  t.push_back(
      optional_endpoint({"engine-at", "at",
                         "HTTP server of a vLLM or SGLang, or of what speaks vLLM's API with token ids, "
                         "that computes what is placed here; "
                         "it is waited for at the start",
                         who},
                        s, at(e, &engine_options::at), 1));
  t.push_back(
      text({"engine-model", "model", "The engine's name for the model; empty: the first that it lists", who},
           s, at(e, &engine_options::model), "NAME"));
  t.push_back(
      text({"engine-key-file", "key_file",
            "File with the API key that the engine asks for, for its owner's eyes alone; empty: none", who},
           s, at(e, &engine_options::key_file), "FILE"));
  t.push_back(text(
      {"engine-events", "events",
       "Where the engine publishes news of its cache, tcp://HOST:PORT (vLLM's --kv-events-config); empty: it "
       "is taken to hold what it computed last",
       who},
      s, at(e, &engine_options::events), "ADDRESS"));
  t.push_back(
      text({"engine-replay", "replay",
            "Where it tells them again (its replay_endpoint); empty: after a gap nothing is taken to be held",
            who},
           s, at(e, &engine_options::replay), "ADDRESS"));
}

/// A model's memory and its device are options of one section, since sizes of one follow from the other.
void add_model(table& t) {
  const auto m = &options::model;
  const std::string s = "model", who = "prefill, decode, cache, gateway", compute = "prefill, decode";
  t.push_back(text({"model", "path",
                    "A GGUF file, a Hugging Face folder, or dummy:NAME for random weights of a known shape "
                    "(dummy:llama3-8b)",
                    who},
                   s, at(m, &model_options::path), "FILE"));
  t.push_back(text({"served-model-name", "served_name",
                    "Name that clients call the model by; empty: from the file", "gateway"},
                   s, at(m, &model_options::served_model_name), "NAME"));
  t.push_back(text(
      {"chat-template", "chat_template",
       "Jinja template of chats: a file, or chatml, llama3 or none; auto: the model file's own", "gateway"},
      s, at(m, &model_options::chat_template), "FILE"));
  t.push_back(text({"generation-config", "generation_config",
                    "How tokens are drawn where requests do not say: a generation_config.json; auto: the "
                    "model folder's; none: by the API's own defaults",
                    "gateway"},
                   s, at(m, &model_options::generation_config), "FILE"));
  t.push_back(text({"lora-modules", "lora_modules",
                    "Adapters that requests may name as their model: NAME=FOLDER, with commas between; the "
                    "same in the whole cluster",
                    who},
                   s, at(m, &model_options::lora_modules), "LIST"));
  t.push_back(integer(
      {"context-length", "context_length", "Longest prompt and answer together; 0: the model's own", who}, s,
      at(m, &model_options::context_length), 0u, 16'777'216u, "tokens"));
  t.push_back(integer({"threads", "threads", "Threads that compute; 0: one per core", compute}, s,
                      at(m, &model_options::threads), 0u, 1024u, "threads"));
  t.push_back(
      time({"timings-age", "timings_age",
            "Believe passes that an earlier start measured, if they are not older, and start seconds sooner; "
            "they lie in the user's cache folder. Measured times are corrected while serving. 0s: measure",
            compute},
           s, at(m, &model_options::timings_age), 0ns, 8760h));
  t.push_back(integer(
      {"pipeline", "pipeline",
       "Stages of this process's instances, each with a part of the model's layers and a device of its "
       "own: the GPUs from the one that --device names on, or an equal share of the threads. Chunks of "
       "a prompt go from stage to stage, so that all of them compute",
       compute},
      s, at(m, &model_options::pipeline), 1u, 64u, "stages"));
  t.push_back(
      integer({"tensor", "tensor",
               "Ranks of this process's instances, or of each stage: heads, widths and vocabulary of every "
               "layer are divided among as many devices: the GPUs from the one that --device names on, or an "
               "equal share of the threads; with --ranks or --role rank among as many processes",
               "prefill, decode, rank"},
              s, at(m, &model_options::tensor), 1u, 64u, "ranks"));
  t.push_back(integer(
      {"expert", "expert",
       "Ranks among which a mixture's experts are divided: --tensor's number, each has some of them and "
       "gives the others what they made once a layer, which pays between hosts; 1: each has rows of every "
       "expert",
       "prefill, decode, rank"},
      s, at(m, &model_options::expert), 1u, 64u, "ranks"));
  t.push_back(
      integer({"stage", "stage",
               "With --role rank: which of the group's --pipeline stages this process computes, from 1; the "
               "last, or its first rank, is the leader's",
               "rank"},
              s, at(m, &model_options::stage), 0u, 64u, "the first is 1"));
  t.push_back(
      integer({"tensor-rank", "tensor_rank",
               "With --role rank: which of the stage's --tensor ranks this process is, from 1", "rank"},
              s, at(m, &model_options::tensor_rank), 0u, 64u, "the first is 1"));
  t.push_back(choice({"kv-dtype", "kv_dtype",
                      "Number format of cached keys and values, in every tier and on the wire; equal in the "
                      "whole cluster. int8 and k8v4 hold about 1.8 and 2.4 times as many tokens as f16 and "
                      "round them: calibrate --text says by how much",
                      who},
                     s, at(m, &model_options::kv_dtype)));
  t.push_back(integer({"block-tokens", "block_tokens",
                       "Tokens of one KV block, the unit of reuse; equal in the whole cluster", who},
                      s, at(m, &model_options::block_tokens), 16u, 512u, "tokens"));
  t.push_back(
      device({"device", "device",
              "Where to compute; auto is the host; cuda:N is the Nth GPU that NVIDIA's driver shows, from 0; "
              "linked is the host with memory of its own behind a link, as a graphics card has it; "
              "model:PROFILE computes nothing and waits as long as a profile of "
              "mooncaf simulate says, built-in or FILE.toml"},
             s, at(m, &model_options::device)));
  t.push_back(real({"time-scale", "time_scale",
                    "A second of a modelled device's process stands for so many seconds of its profile"},
                   s, at(m, &model_options::time_scale), 1e-3, 1e4, false));
  t.push_back(size({"device-kv", "device_kv",
                    "Memory for KV on a cuda or linked device, shared by its "
                    "instances; the longest context must fit",
                    compute},
                   s, at(m, &model_options::device_kv_bytes), 1 * MiB, 65'536 * GiB));
  t.push_back(choice(
      {"device-write-policy", "device_write_policy",
       "When KV of a cuda or linked device goes to the host's memory, where prefill and decode share it: "
       "before "
       "it leaves the device, at once, or after cache-selective-hits requests have used it",
       compute},
      s, at(m, &model_options::device_write_policy)));
  t.push_back(choice(
      {"l2-layout", "l2_layout",
       "Order of KV in the host's memory beside a cuda or linked device; equal in the whole cluster. "
       "page_first_direct: layer by layer in each block; page_first: token by token; layer_first: layer by "
       "layer "
       "over 16 blocks",
       who},
      s, at(m, &model_options::l2_layout)));
  t.push_back(size({"link-bandwidth", "link_bandwidth",
                    "Bytes per second, each way, between a linked device's memory and the host's", compute},
                   s, at(m, &model_options::link_bytes_per_s), 1 * MiB, 1024 * GiB));
  t.push_back(
      time({"link-latency", "link_latency", "What a copy over that link takes beyond its bytes", compute}, s,
           at(m, &model_options::link_latency), 0ns, 1s));
  t.push_back(integer(
      {"copy-engines", "copy_engines",
       "Copies of a linked device that run at once; processors of a cuda one that carry KV, if any", compute},
      s, at(m, &model_options::copy_engines), 1u, 16u, "engines"));
}

/// Prefill and decode stand together: settings of chunks and transfers only work if both roles have them.
void add_workers(table& t) {
  const auto p = &options::prefill;
  const auto d = &options::decode;
  t.push_back(integer({"prefill-instances", "instances", "Prefill instances in this process", "prefill"},
                      "prefill", at(p, &prefill_options::instances), 1u, 64u, "instances"));
  t.push_back(
      integer({"chunk-tokens", "chunk_tokens", "Most tokens of one prompt computed in one go", "prefill"},
              "prefill", at(p, &prefill_options::chunk_tokens), 16u, 65'536u, "tokens"));
  t.push_back(integer({"max-batch-tokens", "max_batch_tokens",
                       "Most tokens of all prompts computed in one go; not below chunk-tokens", "prefill"},
                      "prefill", at(p, &prefill_options::max_batch_tokens), 16u, 1'048'576u, "tokens"));
  t.push_back(
      integer({"prefill-max-queue", "max_queue", "Requests that may wait at one prefill instance", "prefill"},
              "prefill", at(p, &prefill_options::max_queue), 1u, 1'000'000u, "requests"));
  t.push_back(choice<prefill_options, kv_transfer_choice>(
      {"kv-transfer", "kv_transfer",
       "When KV leaves for another decode node: while layers are computed, or after the prompt (to compare)",
       "prefill"},
      "prefill", at(p, &prefill_options::kv_transfer),
      {{"layerwise", kv_transfer_choice::layerwise}, {"after_prefill", kv_transfer_choice::after_prefill}}));
  t.push_back(choice(
      {"prefetch", "prefetch",
       "How long a prompt waits for a prefix from SSD or another node: best_effort until the device is free, "
       "wait_complete to its end, timeout for a time that grows with its length",
       "prefill"},
      "prefill", at(p, &prefill_options::prefetch)));
  t.push_back(time({"prefetch-timeout-base", "prefetch_timeout_base",
                    "With --prefetch timeout: the time for a prefix of any length", "prefill"},
                   "prefill", at(p, &prefill_options::prefetch_timeout_base), 0ns, 1h));
  t.push_back(time({"prefetch-timeout-per-ki-token", "prefetch_timeout_per_ki_token",
                    "With --prefetch timeout: what is added for every 1,024 tokens", "prefill"},
                   "prefill", at(p, &prefill_options::prefetch_timeout_per_ki_token), 0ns, 1h));
  t.push_back(integer({"prefetch-threshold", "prefetch_threshold",
                       "A prefix on SSD or another node that is shorter is computed", "prefill"},
                      "prefill", at(p, &prefill_options::prefetch_threshold), 0u, 16'777'216u, "tokens"));
  t.push_back(integer({"decode-instances", "instances", "Decode instances in this process", "decode"},
                      "decode", at(d, &decode_options::instances), 1u, 64u, "instances"));
  t.push_back(integer({"max-batch", "max_batch", "Requests that one decode step serves together", "decode"},
                      "decode", at(d, &decode_options::max_batch), 1u, 4096u, "requests"));
  t.push_back(
      integer({"decode-max-queue", "max_queue", "Requests that may wait at one decode instance", "decode"},
              "decode", at(d, &decode_options::max_queue), 1u, 1'000'000u, "requests"));
}

/// Memory for blocks, the SSD below it, and how long each is held.
void add_cache(table& t) {
  const auto c = &options::cache;
  const std::string s = "cache", who = "cache";
  t.push_back(size({"cache-dram", "dram", "Memory for KV blocks in this process", who}, s,
                   at(c, &cache_options::dram_bytes), 1 * MiB, 16'384 * GiB));
  t.push_back(choice({"cache-eviction", "eviction",
                      "Which block goes first when memory is full, leaves of a prefix before its root", who},
                     s, at(c, &cache_options::eviction), block_evictions()));
  t.push_back(
      text({"ssd-path", "ssd_path", "Folder of the SSD tier, which survives a restart; empty: none", who}, s,
           at(c, &cache_options::ssd_path), "DIR"));
  t.push_back(size({"ssd-size", "ssd", "Room of the SSD tier", who}, s, at(c, &cache_options::ssd_bytes),
                   16 * MiB, 1'048'576 * GiB));
  t.push_back(choice({"cache-write-policy", "write_policy",
                      "When a block goes to SSD: on eviction, at once, or after some hits", who},
                     s, at(c, &cache_options::write_policy)));
  t.push_back(integer({"cache-selective-hits", "selective_hits",
                       "Hits after which write_through_selective writes a block", who},
                      s, at(c, &cache_options::selective_hits), 1u, 1000u, "hits"));
  t.push_back(flag(
      {"ssd-pack", "ssd_pack",
       "Pack 16-bit floating-point numbers on SSDs, without loss: BF16 takes 0.7 of its room, F16 0.9", who},
      s, at(c, &cache_options::ssd_pack)));
  t.push_back(flag(
      {"direct-io", "direct_io", "Keep the SSD tier out of the page cache where the file system can", who}, s,
      at(c, &cache_options::direct_io)));
  t.push_back(time({"flush-limit", "flush_limit",
                    "Before a planned stop, write memory to the SSD tier for at most this long", who},
                   s, at(c, &cache_options::flush_limit), 0s, 1h));
  t.push_back(real({"keep-share", "keep_share",
                    "Share of cache-dram that prefixes may take which clients want kept (cache_control, "
                    "prompt_cache_retention); 0: none are kept",
                    who},
                   s, at(c, &cache_options::keep_share), 0.0, 0.9, false));
  t.push_back(real({"keep-tenant-share", "keep_tenant_share", "Share of it that one tenant may have", who}, s,
                   at(c, &cache_options::keep_tenant_share), 0.01, 1.0, false));
  t.push_back(time({"lease-ttl", "lease_ttl", "A pin that nobody renews is dropped after this time", who}, s,
                   at(c, &cache_options::lease_ttl), 100ms, 1h));
}

/// Read by the conductor alone, so that all nodes follow one policy, whatever their own files say.
void add_scheduler(table& t) {
  const auto c = &options::scheduler;
  const std::string s = "scheduler", who = "conductor";
  t.push_back(choice({"policy", "policy", "How a request's instances are chosen", who}, s,
                     at(c, &scheduler_options::policy)));
  t.push_back(
      choice({"admission", "admission",
              "queue: what there is no room for waits, and goes last where it would be late anyway; "
              "adaptive: the last minutes are played again under several of these, and the one that did "
              "best is in force; the others refuse what would miss its SLO, by prediction",
              who},
             s, at(c, &scheduler_options::admission), served_admissions()));
  t.push_back(
      integer({"max-queued", "max_queued",
               "With admission queue: requests of the cluster that may wait; beyond it the least urgent "
               "is told to come back later (429)",
               who},
              s, at(c, &scheduler_options::max_queued), 1u, 1'000'000u, "requests"));
  t.push_back(time(
      {"ttft-slo", "ttft_slo", "Longest wanted time to the first token, unless a request names its own", who},
      s, at(c, &scheduler_options::ttft_slo), 1ms, 24h));
  t.push_back(
      time({"tbt-slo", "tbt_slo", "Longest wanted time between tokens, unless a request names its own", who},
           s, at(c, &scheduler_options::tbt_slo), 1ms, 1h));
  t.push_back(real(
      {"kvcache-balancing-threshold", "kvcache_balancing_threshold",
       "A prefix held elsewhere is fetched if it is longer than the local one by more than this factor", who},
      s, at(c, &scheduler_options::balancing_threshold), 1.0, 1e6, true));
  t.push_back(time({"predicted-decode-time", "predicted_decode_time",
                    "Predictive admission takes every decode to last this long", who},
                   s, at(c, &scheduler_options::predicted_decode), 1ms, 24h));
  t.push_back(integer({"seed", "seed", "Seed of the random policy and of the choice between equals", who}, s,
                      at(c, &scheduler_options::seed), std::uint64_t{0}, ~std::uint64_t{0}, ""));
  const std::string deciders = "conductor, prefill, decode";
  t.push_back(
      text({"journal", "journal",
            "File that gets everything the conductor is told and decides, for mooncaf replay; workers "
            "write theirs beside it, as FILE.prefill0. Older ones become FILE.1 (the latest) to FILE.9; "
            "empty: none",
            deciders},
           s, at(c, &scheduler_options::journal), "FILE"));
  t.push_back(
      size({"journal-limit", "journal_limit", "A journal ends, aloud, before it would be larger", deciders},
           s, at(c, &scheduler_options::journal_limit), 64 * KiB, 16'384 * GiB));
  t.push_back(
      real({"hot-copy-share", "hot_copy_share",
            "Share of a node's memory that copies of much used blocks, made ahead of need, may take; 0: none "
            "are made",
            who},
           s, at(c, &scheduler_options::hot_copy_share), 0.0, 0.5, false));
  t.push_back(flag({"elastic-roles", "elastic_roles",
                    "Processes with prefill and decode play one of both at a time, and change when the other "
                    "role is the fuller one, keeping their blocks and finishing their requests; at all "
                    "conductors",
                    who},
                   s, at(c, &scheduler_options::elastic_roles)));
  t.push_back(time({"elastic-hold", "elastic_hold",
                    "One role must have been the fuller one for so long before a process changes to it; soon "
                    "after a change, twice as long for one back",
                    who},
                   s, at(c, &scheduler_options::elastic_hold), 100ms, 24h));
  t.push_back(
      integer({"elastic-budget", "elastic_budget",
               "So many processes may change their role in an hour, back and forth; 0: any number. A role "
               "that nobody plays is taken all the same",
               who},
              s, at(c, &scheduler_options::elastic_budget), 0u, 100'000u, "changes"));
  add_scaling(t);
}

void add_transport(table& t) {
  const auto c = &options::transport;
  const std::string s = "transport";
  t.push_back(endpoint({"data-listen", "listen", "Where other hosts send KV blocks to"}, s,
                       at(c, &transport_options::data_listen)));
  t.push_back(flag({"tcp", "tcp", "Move KV between hosts over TCP"}, s, at(c, &transport_options::tcp)));
  t.push_back(flag({"shm", "shm", "Move KV between processes of one host through shared memory"}, s,
                   at(c, &transport_options::shm)));
  t.push_back(
      integer({"tcp-streams", "tcp_streams", "TCP connections that a transfer to one peer is spread over"}, s,
              at(c, &transport_options::tcp_streams), 1u, 64u, "connections"));
  t.push_back(size(
      {"tcp-send-buffer", "tcp_send_buffer",
       "Bytes of a TCP connection under way in the kernel. Small ones stay in the cache; a long fast link "
       "needs bandwidth x round trip / connections"},
      s, at(c, &transport_options::tcp_send_buffer), 16 * KiB, 64 * MiB));
  t.push_back(size({"slice-size", "slice", "Pieces that large transfers are cut into"}, s,
                   at(c, &transport_options::slice_bytes), 4 * KiB, 16 * MiB));
  t.push_back(flag({"checksums", "checksums", "Check every piece that arrives"}, s,
                   at(c, &transport_options::checksums)));
}

/// A section of its own, as most hosts have no such NIC and need to read none of it.
void add_rdma(table& t) {
  const auto c = &options::rdma;
  const std::string s = "rdma";
  t.push_back(flag({"rdma", "enabled", "Move KV by one-sided RDMA where both ends have a device"}, s,
                   at(c, &rdma_config::enabled)));
  t.push_back(text(
      {"rdma-devices", "devices", "NICs to use, comma-separated, each DEVICE or DEVICE:PORT; empty: all"}, s,
      at(c, &rdma_config::devices), "LIST"));
  t.push_back(text({"rdma-gid-index", "gid_index",
                    "Entry of every port's GID table; empty: RoCE v2 with an IPv4 address, else IPv6"},
                   s, at(c, &rdma_config::gid_index), "N"));
  t.push_back(
      size({"rdma-slice-size", "slice", "Pieces that transfers are cut into; 16 in a row share a NIC"}, s,
           at(c, &rdma_config::slice_bytes), 4 * KiB, 16 * MiB));
  t.push_back(integer({"rdma-queue-depth", "queue_depth", "Orders under way per queue pair"}, s,
                      at(c, &rdma_config::queue_depth), 16u, 4096u, "orders"));
  t.push_back(integer({"rdma-signal-every", "signal_every",
                       "One completion for so many orders; at most half of the queue depth"},
                      s, at(c, &rdma_config::signal_every), 1u, 2048u, "orders"));
  t.push_back(integer({"rdma-max-links", "max_links", "Peers with queue pairs at once; idle ones give way"},
                      s, at(c, &rdma_config::max_links), 1u, 4096u, "peers"));
  t.push_back(
      time({"rdma-poll", "poll", "After work, poll this long before sleeping; costs a core while it lasts"},
           s, at(c, &rdma_config::poll), 0ns, 10s));
  t.push_back(
      time({"rdma-ack-timeout", "ack_timeout", "The NIC repeats a packet that was not confirmed for so long"},
           s, at(c, &rdma_config::ack_timeout), 5us, 17s));
  t.push_back(
      integer({"rdma-retry-count", "retry_count", "Such repetitions until the NIC gives a connection up"}, s,
              at(c, &rdma_config::retry_count), 1u, 7u, "times"));
  t.push_back(time({"rdma-rail-retry", "rail_retry",
                    "A NIC that failed is tried again after this; doubled each time, up to 10s"},
                   s, at(c, &rdma_config::rail_retry), 1ms, 10s));
  t.push_back(integer({"rdma-traffic-class", "traffic_class", "Of RoCE packets: DSCP * 4 + ECN bits"}, s,
                      at(c, &rdma_config::traffic_class), 0u, 255u, ""));
  t.push_back(integer({"rdma-service-level", "service_level", "Of InfiniBand packets"}, s,
                      at(c, &rdma_config::service_level), 0u, 15u, ""));
  t.push_back(
      text({"rdma-topology", "topology",
            "NICs for the memory of each NUMA node, as 0=mlx5_0,mlx5_1;1=mlx5_2; empty: as sysfs tells"},
           s, at(c, &rdma_config::topology), "TABLE"));
}

/// Clients reach the gateway: every limit has bounds, so that a slip of the pen opens nothing.
void add_gateway(table& t) {
  const auto c = &options::gateway;
  const std::string s = "gateway", who = "gateway";
  t.push_back(endpoint({"http", "http", "Where the OpenAI-compatible API and the live page are served", who},
                       s, at(c, &gateway_options::http)));
  t.push_back(text(
      {"http-handover", "http_handover",
       "Socket over which a successor that is started before this process is told to stop gets the listening "
       "sockets of --http and --metrics-listen, so that no connection is refused; empty: none",
       who},
      s, at(c, &gateway_options::http_handover), "PATH"));
  t.push_back(text({"api-key", "api_key",
                    "Key that clients must send as a bearer token; empty: $MOONCAF_API_KEY, or none", who},
                   s, at(c, &gateway_options::api_key), "KEY"));
  t.push_back(text({"api-key-file", "api_key_file",
                    "File whose first line is that key; keeps it out of the process list", who},
                   s, at(c, &gateway_options::api_key_file), "FILE"));
  t.push_back(text({"api-keys-file", "api_keys_file",
                    "TOML file with a key, a cache, a priority, a share and limits for each tenant", who},
                   s, at(c, &gateway_options::api_keys_file), "FILE"));
  t.push_back(
      text({"tls-certificate-file", "tls_certificate_file",
            "PEM file with the server's certificate and those that signed it; the API is then HTTPS", who},
           s, at(c, &gateway_options::tls_certificate_file), "FILE"));
  t.push_back(text({"tls-key-file", "tls_key_file", "PEM file with that certificate's private key", who}, s,
                   at(c, &gateway_options::tls_key_file), "FILE"));
  t.push_back(
      text({"allowed-origins", "allowed_origins",
            "Web pages that may use the API: their origins, local (pages of this machine), or *", who},
           s, at(c, &gateway_options::allowed_origins), "LIST"));
  t.push_back(
      text({"allowed-hosts", "allowed_hosts",
            "Names that the server may be asked by without a key: names, local (this machine's), or *", who},
           s, at(c, &gateway_options::allowed_hosts), "LIST"));
  t.push_back(text({"model-alias", "model_aliases",
                    "More names, with commas, that clients may call the model by; *: any name", who},
                   s, at(c, &gateway_options::model_aliases), "LIST"));
  t.push_back(flag(
      {"parse-special", "parse_special",
       "Read special tokens in the prompts of /v1/completions; a request's parse_special goes before", who},
      s, at(c, &gateway_options::parse_special)));
  t.push_back(choice({"tools", "tools",
                      "Tools for a model whose chat template has no place for them: general (listed in the "
                      "system message, calls between <tool_call> tags), or template-only (refused)",
                      who},
                     s, at(c, &gateway_options::tools)));
  t.push_back(choice(
      {"tool-call-parser", "tool_call_parser",
       "Form in which the model writes calls of tools; auto: the one that its chat template teaches", who},
      s, at(c, &gateway_options::tool_call_parser), forms<tool_format>(false)));
  t.push_back(
      choice({"reasoning-parser", "reasoning_parser",
              "How the model marks its reasoning, which is kept apart from answers: think (<think>), mistral "
              "([THINK]), harmony (channels, of gpt-oss), none; auto: as its chat template does",
              who},
             s, at(c, &gateway_options::reasoning_parser), forms<reasoning_form>(true)));
  t.push_back(integer({"max-connections", "max_connections", "Client connections open at once", who}, s,
                      at(c, &gateway_options::max_connections), 1u, 1'000'000u, "connections"));
  t.push_back(integer({"max-requests", "max_requests",
                       "Requests running and waiting; more are told to come back later (429)", who},
                      s, at(c, &gateway_options::max_requests), 1u, 1'000'000u, "requests"));
  t.push_back(size({"max-body-size", "max_body", "Longest request body", who}, s,
                   at(c, &gateway_options::max_body_bytes), 1 * KiB, 1 * GiB));
  t.push_back(time({"request-timeout", "request_timeout", "A request that takes longer is ended", who}, s,
                   at(c, &gateway_options::request_timeout), 1s, 24h));
  t.push_back(flag({"page", "page", "Serve the live page at /", who}, s, at(c, &gateway_options::page)));
}

void add_metrics(table& t) {
  const auto c = &options::metrics;
  const std::string s = "metrics";
  t.push_back(flag({"metrics", "enabled", "Serve Prometheus metrics of this process"}, s,
                   at(c, &metrics_options::enabled)));
  t.push_back(endpoint({"metrics-listen", "listen",
                        "Where they are served; without the conductor's role and unless given, the port is "
                        "picked by the system"},
                       s, at(c, &metrics_options::listen)));
  t.push_back(choice({"log-level", "log_level", "Least important event that is logged"}, s,
                     at(c, &metrics_options::log_level)));
  t.push_back(choice<metrics_options, log_format_choice>(
      {"log-format", "log_format", "text for people, json for collectors"}, s,
      at(c, &metrics_options::log_format),
      {{"text", log_format_choice::text}, {"json", log_format_choice::json}}));
  t.push_back(
      optional_endpoint({"otlp", "otlp",
                         "OpenTelemetry collector (OTLP over HTTP) that gets a trace of each request; "
                         "empty: none",
                         "gateway"},
                        s, at(c, &metrics_options::otlp), 1));
  t.push_back(
      real({"otlp-share", "otlp_share",
            "Share of requests that are traced; of those with a traceparent their client's word counts",
            "gateway"},
           s, at(c, &metrics_options::otlp_share), 0.0, 1.0, false));
}

}  // namespace

const std::vector<declaration>& declarations() {
  static const table all = [] {
    table t;
    for (const auto add : {add_cluster, add_model, add_engine, add_workers, add_cache, add_store,
                           add_scheduler, add_transport, add_rdma, add_gateway, add_metrics})
      add(t);
    return t;
  }();
  return all;
}

const std::vector<section_info>& sections() {
  static const std::vector<section_info> all = {
      {"cluster", "This process and its cluster"},
      {"model", "The model"},
      {"engine", "An engine of another make"},
      {"prefill", "Prefill"},
      {"decode", "Decode"},
      {"cache", "KV cache"},
      {"store", "Object store for other engines"},
      {"scheduler", "Scheduling and admission"},
      {"transport", "Moving KV between processes"},
      {"rdma", "RDMA: NICs that read and write the memory of other hosts"},
      {"gateway", "HTTP front"},
      {"metrics", "Metrics and logs"}};
  return all;
}

const declaration* find_option(std::string_view name) {
  for (const auto& d : declarations())
    if (d.name == name) return &d;
  return nullptr;
}

const declaration* find_key(std::string_view section, std::string_view key) {
  for (const auto& d : declarations())
    if (d.section == section && d.key == key) return &d;
  return nullptr;
}

}  // namespace mooncaf::config
