#include "actors/device_writer.hpp"

#include <caf/send.hpp>
#include <utility>

#include "actors/executor.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

constexpr auto pause = std::chrono::milliseconds(100);  ///< when memory has no room

unwritten_blocks blocks_of(const context_ptr& context, std::shared_ptr<std::atomic<bool>> told) {
  const auto next = [kv = context->device_blocks, told = std::move(told)](bool all) {
    told->store(false);  // before it looks: blocks that become unwritten from here on are told again
    return kv->next_write(all);
  };
  return {next,
          [kv = context->device_blocks](std::uint64_t id, std::uint32_t count) { kv->wrote(id, count); }};
}

}  // namespace

device_writer::device_writer(caf::actor_config& config, context_ptr context, cache_shard_actor shard,
                             executor_actor copies)
    : device_writer_actor::base(config),
      context_(std::move(context)),
      shard_(std::move(shard)),
      executor_(std::move(copies)),
      pages_(std::make_shared<page_writer>(*context_->hardware, context_->device_blocks)),
      told_(std::make_shared<std::atomic<bool>>(false)),
      core_(blocks_of(context_, told_)) {}

/// The device calls on its own threads and may outlive this actor, so it holds a weak pointer; `told_` keeps
/// the mailbox from filling up with one message for each block.
device_writer_actor::behavior_type device_writer::make_behavior() {
  outlive_stray_errors(*this);
  context_->device_blocks->on_unwritten([self = caf::actor_cast<caf::weak_actor_ptr>(this), told = told_] {
    if (told->exchange(true)) return;
    if (const auto strong = self.lock())
      caf::anon_send(caf::actor_cast<device_writer_actor>(strong), tick_atom_v);
  });
  return {
      [this](tick_atom) {
        core_.wake();
        act();
      },
      [this](flush_atom) {
        auto promise = flushes_.emplace_back(make_response_promise<std::uint64_t>());
        core_.flush();
        act();
        return promise;
      },
  };
}

void device_writer::on_exit() {
  context_->device_blocks->on_unwritten({});
  flushes_.clear();
  shard_ = nullptr;
  executor_ = nullptr;
}

void device_writer::act() {
  for (auto& action : core_.take_actions()) std::visit([this](auto& what) { carry_out(what); }, action);
}

void device_writer::carry_out(write_action::look& order) {
  request(shard_, shard_limit, look_atom_v, std::move(order.keys))
      .then(
          [this](const prefix_view& here) {
            core_.looked(here.held_blocks);
            act();
          },
          [this](const caf::error&) {
            core_.refused();
            act();
          });
}

void device_writer::carry_out(const write_action::reserve& order) {
  request(shard_, shard_limit, reserve_atom_v, order.owner, order.count)
      .then(
          [this](const std::vector<slot_index>& slots) {
            core_.reserved(slots);
            act();
          },
          [this](const caf::error&) {
            core_.refused();
            act();
          });
}

void device_writer::carry_out(write_action::copy& order) {
  using sums = result<std::vector<std::uint64_t>>;
  std::vector<std::byte*> pages;
  for (const auto slot : order.slots) pages.push_back(context_->slot(slot));
  auto made = std::make_shared<sums>();
  auto work = [made, writer = pages_, blocks = std::move(order.blocks), pages = std::move(pages)] {
    *made = writer->write(blocks, pages);
  };
  const auto copied = [this, made](const auto&) {
    if (!*made)
      log_error("device", {{"problem", made->error().detail},
                           {"effect", "what only it holds stays there, and is lost with it"}});
    core_.copied(made->value_or(sums::value_type{}), !*made);
    act();
  };
  request(executor_, caf::infinite, run_atom_v, make_task(std::move(work)))
      .then([copied](const task_ptr& ran) { copied(ran); }, [copied](const caf::error& e) { copied(e); });
}

void device_writer::carry_out(write_action::commit& order) {
  send(shard_, commit_atom_v, order.owner, std::move(order.items));
}

void device_writer::carry_out(const write_action::release& order) {
  send(shard_, release_atom_v, order.owner);
}

void device_writer::carry_out(const write_action::rest&) { delayed_send(this, pause, tick_atom_v); }

void device_writer::carry_out(const write_action::flushed& order) {
  for (auto& promise : std::exchange(flushes_, {})) promise.deliver(order.blocks);
}

}  // namespace mooncaf
