#include "gpu/host/weight_arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace mooncaf {

namespace {

constexpr std::size_t cache_line = 64, huge_page = std::size_t{2} << 20;
constexpr std::size_t least_chunk = std::size_t{32} << 20;  ///< of which only what is written costs memory

std::size_t round_up(std::size_t n, std::size_t to) noexcept { return (n + to - 1) / to * to; }

std::shared_ptr<std::byte> map_chunk(std::size_t bytes) {
  const auto mapped = bytes + huge_page;  // as much more as it takes to begin with a huge page
  void* base = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  const std::shared_ptr<void> all{base, [mapped](void* p) { ::munmap(p, mapped); }};
  const auto begin = round_up(reinterpret_cast<std::uintptr_t>(base), huge_page);
  auto* const at = reinterpret_cast<std::byte*>(begin);
  (void)::madvise(at, bytes, MADV_HUGEPAGE);  // advice: without it the same bytes are read more slowly
  return {all, at};
}

}  // namespace

result<std::shared_ptr<std::byte>> weight_arena::take(std::size_t bytes) {
  const std::lock_guard lock{mutex_};
  const auto needed = round_up(std::max<std::size_t>(bytes, 1), cache_line);
  if (!chunk_ || size_ - used_ < needed) {
    const auto size = std::max(round_up(needed, huge_page), least_chunk);
    auto fresh = map_chunk(size);
    if (!fresh) return fail(ec::out_of_space, std::to_string(bytes) + " bytes for a weight matrix");
    chunk_ = std::move(fresh);
    size_ = size;
    used_ = 0;
  }
  std::shared_ptr<std::byte> part{chunk_, chunk_.get() + used_};
  used_ += needed;
  return part;
}

}  // namespace mooncaf
