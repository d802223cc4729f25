#include "runtime/ranks/rank_order.hpp"

#include <algorithm>
#include <string>

#include "transport/net/bytes.hpp"

namespace mooncaf {

bool operator==(const rank_order::item& a, const rank_order::item& b) noexcept {
  return a.logits == b.logits && a.each_row == b.each_row && a.each_hidden == b.each_hidden &&
         a.start == b.start && a.tokens == b.tokens && a.reused == b.reused && a.sequence == b.sequence &&
         a.blocks == b.blocks && a.keys == b.keys;
}

std::size_t rank_order::tokens() const noexcept {
  std::size_t sum = 0;
  for (const auto& i : items) sum += i.tokens;
  return sum;
}

std::size_t rank_order::logit_rows() const noexcept {
  return static_cast<std::size_t>(std::ranges::count(items, true, &item::logits));
}

rank_order order_of(std::span<const batch_item> items, const std::byte* pages, bool embeds,
                    bool tells_layers) {
  rank_order out;
  out.tells_layers = tells_layers;
  for (const auto& from : items) {
    auto& item = out.items.emplace_back();
    item.start = from.start;
    item.tokens = static_cast<std::uint32_t>(from.tokens.size());
    item.reused = from.reused;
    item.logits = from.needs_logits();
    item.each_row = static_cast<bool>(from.each_row);
    item.each_hidden = static_cast<bool>(from.each_hidden);
    item.sequence = from.sequence;
    for (const auto* block : from.blocks) item.blocks.push_back(static_cast<std::uint64_t>(block - pages));
    item.keys.assign(from.keys.begin(), from.keys.end());
    if (embeds) out.ids.insert(out.ids.end(), from.tokens.begin(), from.tokens.end());
  }
  return out;
}

void encode(const rank_order& order, std::vector<std::byte>& out) {
  byte_writer to{out};
  to.put(static_cast<std::uint8_t>(order.tells_layers));
  to.put(static_cast<std::uint32_t>(order.items.size()));
  for (const auto& i : order.items) {
    to.put(i.start);
    to.put(i.tokens);
    to.put(i.reused);
    to.put(static_cast<std::uint8_t>(i.logits | i.each_row << 1 | i.each_hidden << 2));
    to.put(i.sequence);
    to.put(static_cast<std::uint32_t>(i.blocks.size()));
    for (const auto b : i.blocks) to.put(b);
    to.put(static_cast<std::uint32_t>(i.keys.size()));
    for (const auto& k : i.keys) to.put(k.high), to.put(k.low);
  }
  to.put(static_cast<std::uint32_t>(order.ids.size()));
  for (const auto id : order.ids) to.put(id);
}

namespace {

/// So many entries of this size; none if that is more than the bytes that are left.
std::size_t count_of(byte_reader& from, std::size_t entry_bytes) {
  const std::size_t n = from.get<std::uint32_t>();
  if (n > from.left() / entry_bytes) from.take(from.left() + 1);  // no longer ok
  return from.ok() ? n : 0;
}

rank_order::item item_of(byte_reader& from) {
  rank_order::item out;
  out.start = from.get<std::uint32_t>();
  out.tokens = from.get<std::uint32_t>();
  out.reused = from.get<std::uint32_t>();
  const auto wants = from.get<std::uint8_t>();
  out.logits = wants & 1;
  out.each_row = wants & 2;
  out.each_hidden = wants & 4;
  out.sequence = from.get<std::uint64_t>();
  out.blocks.resize(count_of(from, sizeof(std::uint64_t)));
  for (auto& b : out.blocks) b = from.get<std::uint64_t>();
  out.keys.resize(count_of(from, 2 * sizeof(std::uint64_t)));
  for (auto& k : out.keys) {
    k.high = from.get<std::uint64_t>();
    k.low = from.get<std::uint64_t>();
  }
  return out;
}

}  // namespace

result<rank_order> decode_rank_order(std::span<const std::byte>& bytes, const rank_limits& limits) {
  const auto bad = [](const std::string& why) { return fail(ec::corrupt, "an order to a rank " + why); };
  byte_reader from{bytes};
  rank_order out;
  out.tells_layers = from.get<std::uint8_t>() != 0;
  constexpr std::size_t least_item = 4 * 3 + 1 + 8 + 4 + 4;
  out.items.resize(count_of(from, least_item));
  for (auto& i : out.items) i = item_of(from);
  out.ids.resize(count_of(from, sizeof(std::int32_t)));
  for (auto& id : out.ids) id = from.get<std::int32_t>();
  if (!from.ok()) return bad("ends in the middle");
  if (out.tokens() == 0 || out.tokens() > limits.tokens)
    return bad("has " + std::to_string(out.tokens()) + " tokens; the most are " +
               std::to_string(limits.tokens));
  if (!out.ids.empty() && out.ids.size() != out.tokens()) return bad("names other tokens than it counts");
  for (const auto& i : out.items)
    for (const auto b : i.blocks)
      if (b > limits.pages_bytes || limits.block_bytes > limits.pages_bytes - b)
        return bad("names a block beyond the leader's pages");
  bytes = bytes.last(from.left());
  return out;
}

}  // namespace mooncaf
