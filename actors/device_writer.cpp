#include "actors/device_writer.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/executor.hpp"
#include "actors/log.hpp"
#include "actors/stray_errors.hpp"
#include "gpu/device_failure.hpp"
#include "runtime/base/hash.hpp"

namespace mooncaf {

namespace {

constexpr auto shard_limit = std::chrono::seconds(10);
constexpr auto pause = std::chrono::milliseconds(100);  ///< when memory has no room
constexpr std::uint32_t blocks_at_once = 128;           ///< as many as HiCache takes
/// Owners that no attempt has.
constexpr std::uint64_t first_owner = 0xFFFE'0000'0000'0000;

/// What a task on the executor leaves behind.
struct outcome {
  std::vector<std::uint64_t> checksums;
  bool device_failed = false;
};

/// Blocks of the device to pages, and their checksums, which a device that fails may still be writing.
/// @thread of the executor
void copy_blocks(device_kv& kv, copy_queue& queue, checked_copies* checked,
                 std::span<const kv_residency::write::item> blocks, std::span<std::byte* const> pages,
                 std::vector<std::uint64_t>& sums) {
  const auto& layout = kv.layout();
  if (checked != nullptr) {
    std::vector<device_bytes> from;
    for (const auto& b : blocks) from.push_back(kv.block(b.block));
    sums.resize(blocks.size());
    if (checked->store_checked(from, pages, layout, sums)) {
      wait_for(queue.record());
      kv.count_moved(0, blocks.size() * layout.block_bytes());
      return;
    }
    sums.clear();
  }
  std::vector<kv_copy> copies;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
      append_rows(layout, kv.block(blocks[i].block), pages[i], layer, 0, layout.block_tokens, copies);
  queue.store(copies);
  wait_for(queue.record());
  kv.count_moved(0, blocks.size() * layout.block_bytes());
  for (auto* page : pages) sums.push_back(checksum64(page, layout.pieces()));
}

}  // namespace

device_writer::device_writer(caf::actor_config& config, context_ptr context, cache_shard_actor shard,
                             executor_actor copies)
    : device_writer_actor::base(config),
      context_(std::move(context)),
      shard_(std::move(shard)),
      executor_(std::move(copies)),
      queue_(context_->hardware->make_copy_queue()),
      told_(std::make_shared<std::atomic<bool>>(false)) {
  if (page_is_checkable(context_->layout)) checked_ = dynamic_cast<checked_copies*>(queue_.get());
}

device_writer_actor::behavior_type device_writer::make_behavior() {
  outlive_stray_errors(*this);
  context_->device_blocks->on_unwritten([self = caf::actor_cast<caf::weak_actor_ptr>(this), told = told_] {
    if (told->exchange(true)) return;
    if (const auto strong = self.lock())
      caf::anon_send(caf::actor_cast<device_writer_actor>(strong), tick_atom_v);
  });
  return {
      [this](tick_atom) {
        waits_ = false;
        go_on();
      },
      [this](flush_atom) {
        flush_ = make_response_promise<std::uint64_t>();
        flushed_ = 0;
        go_on();
        return flush_;
      },
  };
}

void device_writer::on_exit() {
  context_->device_blocks->on_unwritten({});
  shard_ = nullptr;
  executor_ = nullptr;
}

void device_writer::go_on() {
  if (chain_ || waits_) return;
  if (failed_) {
    if (flush_.pending()) flush_.deliver(flushed_);
    return;
  }
  told_->store(false);
  chain_ = context_->device_blocks->next_write(flush_.pending());
  if (!chain_) {
    if (flush_.pending()) flush_.deliver(flushed_);
    return;
  }
  block_keys_t keys;
  for (const auto& b : chain_->chain) keys.push_back(b.key);
  request(shard_, shard_limit, look_atom_v, std::move(keys))
      .then([this](const prefix_view& here) { looked(here.held_blocks); },
            [this](const caf::error&) { done(0); });
}

/// What memory or the disk has is not sent again.
void device_writer::looked(std::uint32_t held) {
  const auto all = static_cast<std::uint32_t>(chain_->chain.size());
  held_ = std::min(held, all);
  if (held_ == all) return done(all);
  owner_ = first_owner + 2 * chain_->id;
  request(shard_, shard_limit, reserve_atom_v, owner_, std::min(all - held_, blocks_at_once))
      .then([this](const std::vector<slot_index>& slots) { reserved(slots); },
            [this](const caf::error&) { done(held_); });
}

void device_writer::reserved(const std::vector<slot_index>& slots) {
  const auto made = std::make_shared<outcome>();
  std::vector<std::byte*> pages;
  for (const auto slot : slots) pages.push_back(context_->slot(slot));
  const auto blocks = std::span{chain_->chain}.subspan(held_, slots.size());
  auto work = [made, kv = context_->device_blocks, queue = queue_, checked = checked_,
               pages = std::move(pages), own = std::vector(blocks.begin(), blocks.end())] {
    try {
      copy_blocks(*kv, *queue, checked, own, pages, made->checksums);
    } catch (const device_failure& f) {
      made->device_failed = true;
      log_error("device",
                {{"problem", f.what()}, {"effect", "what only it holds stays there, and is lost with it"}});
      // A card that is alive may still be copying into the pages, which somebody else gets next.
      try {
        wait_for(queue->record());
      } catch (const device_failure&) {
      }
      made->checksums.clear();
    }
  };
  request(executor_, caf::infinite, run_atom_v, make_task(std::move(work)))
      .then(
          [this, slots, made](const task_ptr&) {
            failed_ = failed_ || made->device_failed;
            copied(slots, made->checksums);
          },
          [this, slots](const caf::error&) { copied(slots, {}); });
}

void device_writer::copied(const std::vector<slot_index>& slots,
                           const std::vector<std::uint64_t>& checksums) {
  std::vector<commit_item> items;
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    const auto& b = chain_->chain[held_ + i];
    items.push_back({slots[i], b.key, b.parent, b.depth, checksums[i]});
  }
  if (!items.empty()) send(shard_, commit_atom_v, owner_, std::move(items));
  send(shard_, release_atom_v, owner_);
  flushed_ += checksums.size();
  done(held_ + static_cast<std::uint32_t>(checksums.size()));
}

void device_writer::done(std::uint32_t count) {
  const auto chain = *std::exchange(chain_, std::nullopt);
  context_->device_blocks->wrote(chain.id, count);
  if (count > 0 || failed_) return go_on();
  // Memory has no room, or no time: it will.
  if (flush_.pending()) {
    flush_.deliver(flushed_);
    return;
  }
  waits_ = true;
  delayed_send(this, pause, tick_atom_v);
}

}  // namespace mooncaf
