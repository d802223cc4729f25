#include <algorithm>
#include <optional>
#include <utility>

#include "storage/tiered_store.hpp"

// From memory to SSD: which blocks are written when, and which give way.

namespace mooncaf {

// ---- blocks to write ----

/// Notices blocks that have become worth writing.
void tiered_store::write_what_is_used(const pinned_blocks& pinned) {
  if (!options_.ssd || options_.write != write_policy::write_through_selective) return;
  const auto& tree = store_.tree();
  for (const auto& b : pinned.blocks) {
    const auto h = tree.find(b.key);
    if (!ssd_.here(h) && writes_on_use(options_.write, tree.uses(h), options_.selective_hits))
      want_saved(b.key);
  }
}

/// Remembers a block to be written when there is room in the queue.
void tiered_store::want_saved(const block_key& key) {
  if (!options_.ssd) return;
  if (wanted_.size() >= store_.integrity().total) {
    wanted_.pop_front();
    ++stats_.writes_skipped;
  }
  wanted_.push_back(key);
  write_wanted();
}

void tiered_store::write_wanted() {
  while (!wanted_.empty() && io_.writes() < options_.max_writes) {
    const block_key key = wanted_.front();
    const auto outcome = save(key);
    // A chain longer than the queue goes on when the queue has drained.
    if (outcome == save_outcome::queue_full || outcome == save_outcome::refused) return;
    if (outcome == save_outcome::no_room) ++stats_.writes_skipped;
    wanted_.pop_front();
  }
}

/// Queues the write of a block, after its ancestors that are not on SSD yet.
tiered_store::save_outcome tiered_store::save(const block_key& key) {
  if (refusal_.holds(now_)) return save_outcome::refused;
  std::vector<block_key> chain;
  for (block_key at = key; ssd_.find(at) == prefix_tree::none;) {
    const auto e = store_.find(at);
    if (!e || !e->in_dram()) return save_outcome::impossible;
    chain.push_back(at);
    if (e->name.depth == 0) break;
    at = e->name.parent;
  }
  for (; !chain.empty(); chain.pop_back()) {
    if (io_.writes() >= options_.max_writes) return save_outcome::queue_full;
    const auto e = *store_.find(chain.back());
    if (!make_ssd_room(e.name.parent)) return save_outcome::no_room;
    queue_write(e);
  }
  return save_outcome::queued;
}

void tiered_store::queue_write(const held_block& e) {
  // Neither call can fail: the disk owner never ends, and the block is in DRAM.
  const pin_id hold = *store_.open_pin(disk_owner, never);
  (void)store_.pin_one(e.name.key, hold);
  ssd_.pin(ssd_.insert_hidden(e.name.key, e.name.parent, e.name.depth, 0));
  io_.add({0, io_job::kind::write, {e.name, e.checksum}, store_.slot(e.slot), {}}, hold);
}

void tiered_store::finish_write(const io_job& job, pin_id hold, const error& failure) {
  refusal_.note(failure, now_);
  const bool ok = failure.code == ec::none;
  const block_name& name = job.block.name;
  const auto h = ssd_.find(name.key);
  ssd_.unpin(h);
  if (ok && (name.depth == 0 || store_.tree().shown(name.parent, storage_tier::ssd))) {
    store_.set_checksum(h, job.block.checksum);
    ssd_.show(h);
    ++stats_.writes;
  } else {
    // Either the disk refused it, or it refused the parent and this block would be beyond reach after a
    // restart.
    ssd_.erase(h);
    queue_erase(name);
    ++stats_.write_failures;
    if (!ok && writes_on_commit(options_.write))
      want_saved(name.key);  // the block would not be offered for
                             // writing again
  }
  store_.release(hold);
}

// ---- room ----

/// Evicts blocks on SSD while others wait to be written, even if the others were used longer ago.
void tiered_store::make_room_without_loss(std::size_t count) {
  // Where blocks are written after some uses, a block that was not written is worth less than one that was.
  if (!options_.ssd || options_.write == write_policy::write_through_selective) return;
  pin_id guard;
  for (int guarded = 0; store_.free_slots() < count && guarded < guarded_steps_max;) {
    const auto victim = store_.next_victim();
    if (!victim) break;
    if (store_.find(*victim)->on_ssd) {
      (void)store_.evict_one();
      continue;
    }
    if (!guard) guard = *store_.open_pin(disk_owner, never);  // an owner that never ends
    (void)store_.pin_one(*victim, guard);
    ++guarded;
  }
  if (guard) store_.release(guard);
}

/// Makes sure that one more block fits, without giving up `parent`.
bool tiered_store::make_ssd_room(const block_key& parent) {
  if (ssd_.size() < options_.ssd_capacity_blocks) return true;
  const auto keep = ssd_.find(parent);
  if (keep != prefix_tree::none) ssd_.pin(keep);
  const bool made = evict_from_ssd();
  if (keep != prefix_tree::none) ssd_.unpin(keep);
  return made;
}

void tiered_store::fit_ssd(std::size_t blocks) {
  const auto lock = locked();
  options_.ssd_capacity_blocks = blocks;
  while (ssd_.size() > blocks && evict_from_ssd()) {
  }
}

std::vector<block_key> tiered_store::ask_for_copies() {
  const auto lock = locked();
  if (ssd_.size() < options_.ssd_capacity_blocks - options_.ssd_capacity_blocks / 16) return {};
  return survey_.next(ssd_, stats_.ssd_evictions, now_);
}

void tiered_store::copies_are(std::span<const block_key> asked, std::span<const block_key> kept_elsewhere) {
  const auto lock = locked();
  copy_survey::answer(ssd_, asked, kept_elsewhere);
}

bool tiered_store::evict_from_ssd() {
  const auto& dram = store_.tree().in(storage_tier::dram);
  std::vector<prefix_tree::handle> guarded;
  bool evicted = false;
  for (int i = 0; i < guarded_steps_max && !evicted; ++i) {
    const auto h = ssd_.victim();
    if (h == prefix_tree::none) break;
    // Leaf on SSD, but a child lives in DRAM: without its parent the child would be beyond reach.
    if (!dram.here(h) && dram.children(h) != 0) {
      ssd_.pin(h);
      guarded.push_back(h);
      continue;
    }
    stats_.copies_dropped += ssd_.copy(h) == copy_kind::elsewhere ? 1 : 0;
    stats_.last_copies_kept += ssd_.victim_spares_another() ? 1 : 0;
    queue_erase(store_.tree().name(h));
    ssd_.erase(h);
    ++stats_.ssd_evictions;
    evicted = true;
  }
  for (const auto h : guarded) ssd_.unpin(h);
  return evicted;
}

/// Keeps slots free by evicting in the background, so that a reservation finds room, with its old blocks on
/// SSD by then.
void tiered_store::evict_ahead() {
  if (!options_.ssd || !writes_on_eviction(options_.write)) return;
  while (store_.free_slots() + io_.writes() < options_.free_ahead) {
    const auto victim = store_.next_victim();
    if (!victim) return;
    if (!store_.find(*victim)->on_ssd) {
      const auto outcome = save(*victim);
      if (outcome != save_outcome::queued && outcome != save_outcome::impossible) return;
      if (outcome == save_outcome::queued) continue;  // held by its write until that is done
    }
    (void)store_.evict_one();
  }
}

std::size_t tiered_store::flush() {
  const auto lock = locked();
  if (!options_.ssd) return 0;
  std::vector<block_name> unsaved;
  store_.for_each([&](const held_block& e) {
    if (e.in_dram() && !e.on_ssd) unsaved.push_back(e.name);
  });
  std::sort(unsaved.begin(), unsaved.end(), [](const auto& a, const auto& b) { return a.depth < b.depth; });
  for (const auto& name : unsaved) {
    const auto outcome = save(name.key);
    if (outcome == save_outcome::queue_full || outcome == save_outcome::refused) break;
  }
  return io_.writes();
}

}  // namespace mooncaf
