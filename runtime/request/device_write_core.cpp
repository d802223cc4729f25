#include "runtime/request/device_write_core.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

constexpr std::uint32_t blocks_per_write = 128;  ///< as many as HiCache takes
/// Owners of slots that no attempt has.
constexpr std::uint64_t first_owner = 0xFFFE'0000'0000'0000;

std::uint64_t owner_of(const kv_residency::write& chain) { return first_owner + 2 * chain.id; }

}  // namespace

void device_write_core::wake() {
  resting_ = false;
  go_on();
}

void device_write_core::flush() {
  flushing_ = true;
  flushed_ = 0;
  go_on();
}

void device_write_core::go_on() {
  if (chain_ || resting_) return;
  if (!failed_) chain_ = device_.next(flushing_);
  if (!chain_) return end_flush();
  held_ = 0;
  write_action::look out;
  for (const auto& b : chain_->chain) out.keys.push_back(b.key);
  actions_.emplace_back(std::move(out));
}

void device_write_core::looked(std::uint32_t held) {
  // Blocks that memory or the disk has are not sent again.
  const auto all = static_cast<std::uint32_t>(chain_->chain.size());
  held_ = std::min(held, all);
  if (held_ == all) return done(all);
  actions_.emplace_back(write_action::reserve{owner_of(*chain_), std::min(all - held_, blocks_per_write)});
}

void device_write_core::reserved(std::span<const slot_index> slots) {
  slots_.assign(slots.begin(), slots.end());
  const auto blocks = std::span{chain_->chain}.subspan(held_, slots_.size());
  actions_.emplace_back(write_action::copy{{blocks.begin(), blocks.end()}, slots_});
}

void device_write_core::copied(std::span<const std::uint64_t> checksums, bool device_failed) {
  failed_ = failed_ || device_failed;
  const auto owner = owner_of(*chain_);
  write_action::commit named{owner, {}};
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    const auto& b = chain_->chain[held_ + i];
    named.items.push_back({slots_[i], {b.key, b.parent, b.depth}, checksums[i]});
  }
  if (!named.items.empty()) actions_.emplace_back(std::move(named));
  actions_.emplace_back(write_action::release{owner});
  flushed_ += checksums.size();
  done(held_ + static_cast<std::uint32_t>(checksums.size()));
}

void device_write_core::done(std::uint32_t count) {
  device_.wrote(std::exchange(chain_, std::nullopt)->id, count);
  if (count > 0 || failed_) return go_on();
  if (flushing_) return end_flush();
  resting_ = true;
  actions_.emplace_back(write_action::rest{});
}

void device_write_core::end_flush() {
  if (std::exchange(flushing_, false)) actions_.emplace_back(write_action::flushed{flushed_});
}

}  // namespace mooncaf
