#include "runtime/model/device_kv.hpp"

#include <string>
#include <utility>

namespace mooncaf {

device_kv::device_kv(const kv_layout& layout, std::uint32_t blocks, std::unique_ptr<buffer> memory)
    : layout_(layout), memory_(std::move(memory)), residency_(blocks, layout.block_tokens) {}

result<std::shared_ptr<device_kv>> device_kv::make(device& dev, const kv_layout& layout, std::size_t bytes,
                                                   std::uint32_t longest) {
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
      new device_kv(layout, static_cast<std::uint32_t>(blocks), std::move(*memory)));
}

std::optional<kv_residency::place> device_kv::take_locked(const kv_residency::wish& w) {
  auto place = residency_.take(w);
  if (place) {
    taken_.hit_tokens += place->valid;
    taken_.loaded_tokens += w.start - place->valid;
  }
  return place;
}

std::optional<kv_residency::place> device_kv::take(const kv_residency::wish& w) {
  const std::lock_guard lock(mutex_);
  return take_locked(w);
}

std::optional<kv_residency::place> device_kv::wait_for_place(const kv_residency::wish& w) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto place = take_locked(w)) return place;
    if (!residency_.lent()) return std::nullopt;
    given_back_.wait(lock);
  }
}

void device_kv::give_back(std::uint64_t ticket, std::uint32_t valid) {
  {
    const std::lock_guard lock(mutex_);
    residency_.give_back(ticket, valid);
  }
  given_back_.notify_all();
}

void device_kv::start_over() {
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  auto s = taken_;
  s.blocks = residency_.blocks();
  s.blocks_used = residency_.used();
  s.loaded_bytes = loaded_bytes_.load(std::memory_order_relaxed);
  s.stored_bytes = stored_bytes_.load(std::memory_order_relaxed);
  return s;
}

}  // namespace mooncaf
