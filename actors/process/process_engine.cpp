// The engine of another make that a process stands for.

#include <utility>

#include "actors/engine_worker.hpp"
#include "actors/engines/engine_probe.hpp"
#include "actors/process/process.hpp"
#include "runtime/log/log.hpp"
#include "runtime/sched/block_hash.hpp"
#include "transport/net/kept_file.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t longest_key = 4096;
/// Of an engine that does not tell how much KV it holds.
constexpr std::uint64_t assumed_cache_tokens = 65'536;

result<std::string> key_in(const std::string& path) {
  if (path.empty()) return std::string{};
  auto key = read_kept_file(path, longest_key, "engine-key-file");
  if (key) key->erase(key->find_last_not_of(" \t\r\n") + 1);
  return key;
}

worker_info instance(worker_role role, worker_id id, const engine_worker_actor& worker,
                     std::uint32_t capacity, std::vector<timing_sample> samples) {
  worker_info out;
  out.id = id;
  out.role = role;
  out.handle = caf::actor_cast<caf::actor>(worker);
  out.capacity = capacity;
  out.samples = std::move(samples);
  return out;
}

}  // namespace

/// Its conductor places by what the engine told and showed before the first request: context, memory and speed.
result<void> process::spawn_engine() {
  const options& o = opts();
  const auto& e = o.engine;
  auto key = key_in(e.key_file);
  if (!key) return fail(key.error());
  const auto client = std::make_shared<engine_client>(*e.at, std::move(*key));
  auto facts = meet_engine(*client, e.model);
  if (!facts) return fail(facts.error());
  const completion_terms terms{facts->model, facts->context_tokens,
                               root_key(context_->root, context_->layout), facts->make};
  const auto own = o.model.context_length != 0 ? o.model.context_length : context_->shape.context_length;
  if (facts->context_tokens != 0 && facts->context_tokens < own)
    log_warn("engine",
             {{"problem", "it takes " + std::to_string(facts->context_tokens) + " tokens, the gateways " +
                              std::to_string(own)},
              {"next", "give the gateways --context-length " + std::to_string(facts->context_tokens)}});
  log_info("engine", {{"at", to_string(*e.at)},
                      {"model", facts->model},
                      {"context tokens", std::to_string(facts->context_tokens)},
                      {"cache tokens", std::to_string(facts->cache_tokens)},
                      {"news of its cache", e.events.empty() ? "none" : e.events}});
  log_info("measuring", {{"engine", facts->model}});
  auto times = time_engine(*client, terms,
                           {context_->shape.vocab_size, o.prefill.max_batch_tokens, o.decode.max_batch});
  if (!times) return fail(times.error());
  engine_setup setup;
  const auto block_tokens = context_->layout.block_tokens;
  const auto cache = facts->cache_tokens != 0 ? facts->cache_tokens : assumed_cache_tokens;
  const auto ends = context_->text->eog_ids();
  setup.core = {context_->id,
                terms,
                block_tokens,
                {ends.begin(), ends.end()},
                o.decode.max_queue + o.decode.max_batch,
                !e.events.empty(),
                static_cast<std::size_t>(cache / block_tokens)};
  setup.prefill = worker_id{context_->id.value + 1};
  setup.decode = worker_id{context_->id.value + 2};
  setup.engine = client;
  setup.news = {e.events, e.replay};
  const auto prefill = setup.prefill, decode = setup.decode;
  local_.engine = spawn_vital<engine_worker>("engine worker", std::move(setup));
  info_.workers.push_back(
      instance(worker_role::prefill, prefill, local_.engine, o.prefill.max_batch_tokens, times->first));
  info_.workers.push_back(
      instance(worker_role::decode, decode, local_.engine, o.decode.max_batch, times->second));
  info_.workers.back().memory_tokens = facts->cache_tokens;
  return {};
}

}  // namespace mooncaf
