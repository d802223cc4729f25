// News of an engine's cache come from another program: whatever they are, they are read or refused, and what is held
// afterwards is announced without a gap, each block once.

#include <cstdlib>
#include <set>

#include "runtime/engines/told_blocks.hpp"

using namespace mooncaf;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

/// Messages of up to 255 bytes behind their length; a message of no bytes stands for a new beginning. The first byte is the
/// size of our blocks.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span all{reinterpret_cast<const std::byte*>(data), size};
  told_blocks told{{1, 2}, 1 + static_cast<std::uint32_t>(data[0] % 64)};
  held_blocks held;
  std::set<block_key> seen;
  std::uint64_t next = 1;
  for (std::size_t at = 1; at < size;) {
    const auto length = std::min<std::size_t>(data[at], size - at - 1);
    const auto message = all.subspan(at + 1, length);
    at += 1 + length;
    if (length == 0) told.forget(held);
    else if (const auto news = read_kv_news(message))
      for (const auto& one : *news) told.apply(one, held);
    for (const auto& batch : held.take_changes({7})) {
      require(batch.first_seq == next);
      next += batch.events.size();
      for (const auto& e : batch.events)
        require(e.what == block_change::removed ? seen.erase(e.name.key) == 1
                                                : seen.insert(e.name.key).second);
    }
    require(seen.size() == held.size());
  }
  if (const auto whole = read_kv_news(all.subspan(1)))
    for (const auto& one : *whole)
      require(one.what == block_change::removed || one.tokens.size() == one.blocks.size() * one.block_tokens);
  return 0;
}
