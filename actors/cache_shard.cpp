#include "actors/cache_shard.hpp"

#include <caf/send.hpp>

#include "actors/executor.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/compute/disk_task.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

constexpr auto sweep_interval = std::chrono::milliseconds(20);
constexpr auto follower_limit = std::chrono::seconds(10);

shard_core_options options_of(const context_ptr& context, bool disk, transfer_price price, duration lease) {
  shard_core_options out;
  out.self = context->id;
  out.region = context->region.id;
  out.disk = disk;
  out.disk_price = price;
  out.lease = lease;
  const auto& cache = context->opts.cache;
  out.keeps = keep_limits::of(cache.dram_bytes / context->layout.block_bytes(), cache.keep_share,
                              cache.keep_tenant_share);
  out.bring = [context](std::span<const block_key> keys, std::uint32_t here) {
    const auto& device = context->device_blocks;
    return device ? device->bring(keys, here) : 0;
  };
  return out;
}

}  // namespace

cache_shard::cache_shard(caf::actor_config& config, context_ptr context, tiered_store store,
                         std::shared_ptr<rocksdb_tier> ssd, executor_actor disk, transfer_price price,
                         duration lease)
    : cache_shard_actor::base(config),
      context_(std::move(context)),
      core_(std::move(store), options_of(context_, ssd != nullptr, price, lease)),
      ssd_(std::move(ssd)),
      disk_(std::move(disk)) {}

/// Questions whose answer may wait for the disk are asked under a ticket; all others are answered from memory
/// at once.
cache_shard_actor::behavior_type cache_shard::make_behavior() {
  outlive_stray_errors(*this);
  set_down_handler([this](const caf::down_msg& down) { followers_.gone(down.source); });
  delayed_send(this, sweep_interval, tick_atom_v);
  return {
      [this](look_atom, const block_keys_t& keys) { return core_.look(keys, clock_type::now()); },
      [this](pin_atom, std::uint64_t owner, const block_keys_t& keys, std::uint32_t max_from_ssd) {
        return ask<pinned_slots>(
            [&](auto asked) { core_.pin(asked, owner, keys, max_from_ssd, clock_type::now()); });
      },
      [this](pin_atom, std::uint64_t owner, const block_keys_t& keys) {
        return ask<pinned_slots>(
            [&](auto asked) { core_.pin_for_decode(asked, owner, keys, clock_type::now()); });
      },
      [this](pin_remote_atom, std::uint64_t owner, const block_keys_t& keys, std::int64_t worth_ns) {
        return ask<remote_blocks>(
            [&](auto asked) { core_.pin_remote(asked, owner, keys, worth_ns, clock_type::now()); });
      },
      [this](load_atom, const fetch_plan& plan, const prefix_load_ptr& into) {
        return ask<remote_blocks>([&](auto asked) {
          loads_.emplace(asked, into);
          core_.load(asked, plan, clock_type::now());
        });
      },
      [this](reserve_atom, std::uint64_t owner, std::uint32_t count) {
        auto slots = core_.reserve(owner, count, clock_type::now());
        act();
        return to_caf(std::move(slots));
      },
      [this](commit_atom, std::uint64_t owner, const std::vector<commit_item>& items) {
        core_.commit(owner, items, clock_type::now());
        act();
      },
      [this](found_atom, std::uint64_t remote, std::uint64_t on_device) { core_.found(remote, on_device); },
      [this](renew_atom, const std::vector<std::uint64_t>& owners) {
        core_.renew(owners, clock_type::now());
      },
      [this](fence_atom, std::uint64_t owner) { core_.fence(owner); },
      [this](confirm_atom, std::uint64_t owner) {
        core_.confirm(owner);
        act();
      },
      [this](release_atom, std::uint64_t owner) {
        core_.release(owner);
        act();
      },
      [this](keep_atom, std::uint64_t tenant, const block_keys_t& keys, const std::vector<keep_mark>& marks) {
        return core_.keep(tenant, keys, marks, clock_type::now());
      },
      [this](keep_atom, std::uint64_t tenant, const block_key& drop) {
        return core_.kept(tenant, drop, clock_type::now());
      },
      [this](status_atom) { return core_.status(clock_type::now()); },
      [this](flush_atom) { return ask<std::uint64_t>([&](auto asked) { core_.flush(asked); }); },
      [this](withhold_atom, std::uint64_t bytes) {
        const auto stands = core_.withhold(bytes);
        act();
        return stands;
      },
      [this](follow_atom, const caf::actor& conductor) {
        followers_.add(*this, conductor);
        core_.follow();
        act();
      },
      [this](tick_atom) {
        core_.tick(clock_type::now());
        act();
        delayed_send(this, sweep_interval, tick_atom_v);
      },
  };
}

void cache_shard::on_exit() {
  followers_.clear();
  disk_ = nullptr;
  questions_.clear();
  loads_.clear();
}

template <class Answer, class Call>
caf::result<Answer> cache_shard::ask(Call call) {
  const auto answer = make_response_promise();
  const auto asked = next_question_++;
  questions_.emplace(asked, answer);
  call(asked);
  act();
  return answer;
}

void cache_shard::act() {
  for (auto& action : core_.take_actions()) {
    std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void cache_shard::carry_out(shard_action::answer& what) {
  loads_.erase(what.asked);
  auto asked = questions_.extract(what.asked);
  std::visit([&](auto& answer) { asked.mapped().deliver(as_answer(std::move(answer))); }, what.what);
}

void cache_shard::carry_out(shard_action::run_jobs& what) {
  const auto load = loads_.extract(what.load.value_or(0));
  task_ptr task = std::make_shared<disk_task>(ssd_, std::move(what.jobs), core_.store().shape(),
                                              load ? load.mapped() : nullptr, context_->disk_part_layers);
  // The disk may be slow but it answers: an executor runs every task to its end.
  request(disk_, caf::infinite, run_atom_v, std::move(task)).then([this](const task_ptr& finished) {
    const auto& work = static_cast<const disk_task&>(*finished);
    core_.fits(work.held().fitting(context_->opts.cache.ssd_bytes) / core_.store().block_bytes());
    core_.ran(work.results(), work.elapsed(), clock_type::now());
    act();
  });
}

void cache_shard::carry_out(const shard_action::tell_device&) {
  if (const auto& device = context_->device_blocks) device->tell();
}

void cache_shard::carry_out(const shard_action::disk_state& what) {
  if (const auto& meters = context_->meters) {
    meters->set(series::ssd, what.refusal ? 1 : 0, {"refuses_writes"});
    meters->set(series::ssd, static_cast<double>(what.write_failures), {"write_failures"});
  }
  if (!what.turned) return;
  if (!what.refusal) return log_info("ssd", {{"message", "takes writes again"}});
  log_warn("ssd", {{"problem", "writes are refused: " + to_string(*what.refusal)},
                   {"effect", "new blocks live in memory alone; tried again after 1 s, later every 60 s"}});
}

void cache_shard::carry_out(const shard_action::give_pages_back& what) {
  if (!give_pages_back(*context_->memory, what.offset, what.bytes))
    log_warn("memory", {{"problem", "the kernel does not take pages back: " + errno_text()}});
}

void cache_shard::carry_out(shard_action::announce& what) { followers_.announce(*this, what.batch); }

void cache_shard::carry_out(shard_action::ask_for_copies& what) {
  const auto conductor = followers_.latest();
  if (!conductor) return core_.copies_unknown();
  request(conductor, follower_limit, keep_atom_v, context_->id, what.keys)
      .then([this, keys = what.keys](const block_keys_t& kept) { core_.copies_are(keys, kept); },
            // Without an answer the survey keeps the state that it knew, and asks again.
            [this](const caf::error&) { core_.copies_unknown(); });
}

}  // namespace mooncaf
