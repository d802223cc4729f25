#include "runtime/model/device_kv.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gpu/device_failure.hpp"

namespace mooncaf {

device_kv::device_kv(const kv_layout& layout, std::uint32_t blocks, std::unique_ptr<buffer> memory,
                     std::uint32_t spare, device_write_rule rule, std::shared_ptr<prefix_tree> tree)
    : layout_(layout),
      memory_(std::move(memory)),
      rule_(rule),
      residency_(blocks, layout.block_tokens, spare, std::move(tree), !rule.through) {}

result<std::shared_ptr<device_kv>> device_kv::make(device& dev, const kv_layout& layout, std::size_t bytes,
                                                   std::uint32_t longest, device_write_rule rule,
                                                   std::shared_ptr<prefix_tree> tree) {
  const auto blocks = bytes / layout.block_bytes();
  if (const auto needed = layout.blocks_for(longest); blocks < needed)
    return fail(ec::invalid_argument,
                "device-kv: " + std::to_string(bytes) + " bytes hold " + std::to_string(blocks) +
                    " KV blocks, the longest context of " + std::to_string(longest) + " tokens needs " +
                    std::to_string(needed) + " of " + std::to_string(layout.block_bytes()) +
                    " bytes; give more, or a smaller context-length");
  auto memory = dev.allocate(blocks * layout.block_bytes());
  if (!memory) return fail(std::move(memory.error()));
  return std::shared_ptr<device_kv>(
      new device_kv(layout, static_cast<std::uint32_t>(blocks), std::move(*memory),
                    static_cast<std::uint32_t>(layout.blocks_for(longest)), rule, std::move(tree)));
}

std::optional<kv_residency::place> device_kv::take_locked(const kv_residency::wish& w) {
  auto asked = w;
  asked.may_stay = w.may_stay && !rule_.through;
  auto place = residency_.take(asked);
  if (place) {
    taken_.hit_tokens += place->valid;
    taken_.loaded_tokens += w.start - place->valid;
  }
  return place;
}

std::optional<kv_residency::place> device_kv::expect(const kv_residency::wish& w) {
  const auto lock = locked();
  auto place = residency_.expect(w);
  // Blocks found here are counted as found when a pass reads them.
  if (place) taken_.loaded_tokens += w.start - place->valid;
  return place;
}

std::optional<kv_residency::place> device_kv::take(const kv_residency::wish& w) {
  const auto lock = locked();
  return take_locked(w);
}

std::optional<kv_residency::place> device_kv::wait_for_place(const kv_residency::wish& w) {
  auto lock = locked();
  for (;;) {
    if (auto place = take_locked(w)) return place;
    if (!residency_.lent() && !residency_.writes()) return std::nullopt;
    given_back_.wait(lock);
  }
}

void device_kv::give_back(std::uint64_t ticket, std::uint32_t valid) {
  {
    const auto lock = locked();
    residency_.give_back(ticket, valid);
  }
  given_back_.notify_all();
  tell();
}

std::uint32_t device_kv::match(std::span<const block_key> keys) const {
  if (rule_.through) return 0;
  const auto lock = locked();
  return residency_.match(keys);
}

std::uint32_t device_kv::adopt(std::uint64_t sequence, std::span<const block_key> keys, std::uint32_t from) {
  if (rule_.through) return 0;
  std::uint32_t held = 0;
  {
    const auto lock = locked();
    held = residency_.adopt(sequence, keys, from, rule_.hits);
  }
  tell();
  return held;
}

void device_kv::let_go(std::uint64_t sequence) {
  if (rule_.through) return;
  {
    const auto lock = locked();
    residency_.let_go(sequence);
  }
  given_back_.notify_all();
  tell();
}

std::optional<kv_residency::write> device_kv::next_write(bool all) {
  const auto lock = locked();
  const auto blocks = residency_.blocks();
  return residency_.next_write(all ? blocks + 1 : rule_.ahead(blocks));
}

void device_kv::wrote(std::uint64_t id, std::uint32_t count) {
  {
    const auto lock = locked();
    residency_.wrote(id, count);
  }
  given_back_.notify_all();
}

std::uint32_t device_kv::bring(std::span<const block_key> keys, std::uint32_t from) {
  if (rule_.through) return 0;
  std::uint32_t held = 0;
  {
    const auto lock = locked();
    held = residency_.want(keys, from);
  }
  tell();
  return held;
}

void device_kv::on_unwritten(std::function<void()> tell) {
  const auto lock = locked();
  tell_ = std::move(tell);
}

void device_kv::tell() {
  std::function<void()> whom;
  {
    const auto lock = locked();
    if (residency_.unwritten() > 0) whom = tell_;
  }
  if (whom) whom();
}

void device_kv::measure_link(device& dev, std::span<std::byte> host) {
  constexpr duration long_enough = std::chrono::milliseconds(2);
  const auto block = layout_.block_bytes();
  const auto most = std::min<std::size_t>(host.size() / block, residency_.blocks());
  try {
    const auto queue = dev.make_copy_queue();
    for (std::size_t blocks = 1; blocks <= most; blocks *= 2) {
      const kv_copy all{this->block(0), host.data(), blocks * block, 0, 1};
      duration took{};
      // Pages that are touched for the first time take longer: the second round counts.
      for (int time = 0; time < 2; ++time) {
        const auto began = clock_type::now();
        queue->load({&all, 1});
        wait_for(queue->record());
        took = clock_type::now() - began;
      }
      block_on_link_ = took / blocks;
      if (took >= long_enough) break;
    }
  } catch (const device_failure&) {
    // A device that failed says so in its first pass.
  }
}

duration device_kv::loading(std::span<const block_key> keys, std::uint32_t blocks) const {
  const auto lock = locked();
  return block_on_link_ * (blocks - std::min(blocks, residency_.match(keys)));
}

void device_kv::start_over() {
  const auto lock = locked();
  residency_.forget();
  taken_ = {};
  loaded_bytes_ = 0;
  stored_bytes_ = 0;
}

device_bytes device_kv::block(std::uint32_t index) const noexcept {
  const device_bytes base{reinterpret_cast<std::byte*>(memory_->data())};
  return base + index * layout_.block_bytes();
}

void device_kv::count_moved(std::size_t loaded, std::size_t stored) noexcept {
  loaded_bytes_.fetch_add(loaded, std::memory_order_relaxed);
  stored_bytes_.fetch_add(stored, std::memory_order_relaxed);
}

device_kv_stats device_kv::stats() const {
  const auto lock = locked();
  auto s = taken_;
  s.blocks = residency_.blocks();
  s.blocks_used = residency_.used();
  s.unwritten_blocks = residency_.unwritten();
  s.lost_blocks = residency_.lost();
  s.loaded_bytes = loaded_bytes_.load(std::memory_order_relaxed);
  s.stored_bytes = stored_bytes_.load(std::memory_order_relaxed);
  return s;
}

}  // namespace mooncaf
