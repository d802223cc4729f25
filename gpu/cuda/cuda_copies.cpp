#include "gpu/cuda/cuda_copies.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "runtime/base/hash.hpp"

namespace mooncaf::cuda {

namespace {

/// Bytes of a piece from which on a copy engine is as fast, and takes nothing from computing.
constexpr std::size_t large_piece = std::size_t{64} << 10;

bool of_sixteen(const kv_copy& c) {
  const auto all = reinterpret_cast<std::uintptr_t>(c.device.at) | reinterpret_cast<std::uintptr_t>(c.host) |
                   c.piece_bytes | (c.count > 1 ? c.pitch_bytes | c.host_pitch() : 0);
  return all % 16 == 0;
}

}  // namespace

pinned_memory::~pinned_memory() {
  for (const auto& [memory, held] : ranges_) gpu_.unpin(memory);
}

result<void> pinned_memory::add(std::span<std::byte> memory, std::shared_ptr<const void> owner) {
  const std::lock_guard lock{mutex_};
  const auto there = gpu_.pin(memory);
  if (!there) return fail(there.error());
  ranges_[memory.data()] = {memory.size(), *there, std::move(owner)};
  return {};
}

std::byte* pinned_memory::find(const std::byte* host, std::size_t bytes) const {
  const std::lock_guard lock{mutex_};
  auto next = ranges_.upper_bound(const_cast<std::byte*>(host));
  if (next == ranges_.begin()) return nullptr;
  const auto& [begin, held] = *--next;
  return host + bytes <= begin + held.bytes ? held.there + (host - begin) : nullptr;
}

/// Hands the copies to a kernel if that is better; else nothing is done.
bool cuda_copies::carries(std::span<const kv_copy> copies, bool to_device) {
  moves_.clear();
  std::size_t pieces = 0;
  for (const auto& c : copies) {
    pieces += c.count;
    if (c.bytes() == 0) continue;
    if (c.piece_bytes >= large_piece || !of_sixteen(c)) return false;
    auto* const there = pinned_.find(c.host, c.host_reach());
    if (there == nullptr) return false;
    moves_.push_back({to_device ? there : c.device.at, to_device ? c.device.at : there,
                      static_cast<std::uint32_t>(c.piece_bytes), static_cast<std::uint32_t>(c.count),
                      to_device ? c.host_pitch() : c.pitch_bytes,
                      to_device ? c.pitch_bytes : c.host_pitch()});
  }
  if (pieces < 2 || moves_.empty()) return false;
  carry_params p;
  p.moves = table_.put(*stream_, moves_);
  p.count = static_cast<std::uint32_t>(moves_.size());
  p.blocks = std::min(blocks_, p.count);
  stream_->launch(kernel::carry, {p.blocks}, &p);
  return true;
}

void cuda_copies::load(std::span<const kv_copy> copies) {
  if (carries(copies, true)) return;
  for (const auto& c : copies) stream_->load(c);
}

void cuda_copies::store(std::span<const kv_copy> copies) {
  if (carries(copies, false)) return;
  for (const auto& c : copies) stream_->store(c);
}

checksum_params checksum_secrets() {
  checksum_params p;
  // At bytes 0, 8, …; at 121, for the last stripe; at 11, for the end.
  std::memcpy(p.secret, XXH3_kSecret, sizeof p.secret);
  std::memcpy(p.last, XXH3_kSecret + 121, sizeof p.last);
  std::memcpy(p.merge, XXH3_kSecret + 11, sizeof p.merge);
  return p;
}

namespace {

quotient quotient_by(std::size_t divisor) {
  quotient q;
  q.divisor = static_cast<std::uint32_t>(divisor);
  q.shift = 31 + static_cast<std::uint32_t>(std::bit_width(divisor - 1));
  q.factor = static_cast<std::uint32_t>(((std::uint64_t{1} << q.shift) + divisor - 1) / divisor);
  return q;
}

page_words words_of(const kv_layout& layout) {
  page_words out;
  const auto pieces = layout.pieces();
  out.piece = quotient_by(pieces.bytes / 8);
  out.stride = static_cast<std::uint32_t>(pieces.stride() / 8);
  if (layout.pages != page_order::page_first) {
    out.row = out.piece;
    return out;
  }
  out.row = quotient_by(layout.row_bytes() / 8);
  out.rows = quotient_by(layout.n_layers * layout.planes());
  out.tokens = layout.block_tokens;
  return out;
}

}  // namespace

bool cuda_copies::store_checked(std::span<const device_bytes> blocks, std::span<std::byte* const> pages,
                                const kv_layout& layout, std::span<std::uint64_t> sums) {
  from_.clear();
  to_.clear();
  const auto pieces = layout.pieces();
  const auto reach = pieces.stride() * (pieces.count - 1) + pieces.bytes;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    to_.push_back(pinned_.find(pages[i], reach));
    if (to_.back() == nullptr) return false;
    from_.push_back(blocks[i].at);
  }
  if (from_.empty()) return true;
  gather_params p;
  p.sums = checksum_secrets();
  p.sums.blocks = gathered_.put(*stream_, from_);
  p.sums.out = sums_.of(sums.size());
  p.sums.bytes = layout.block_bytes();
  p.words = words_of(layout);
  p.pages = pages_.put(*stream_, to_);
  p.count = static_cast<std::uint32_t>(from_.size());
  p.shares = std::min(blocks_, p.count);
  const auto which = layout.pages == page_order::page_first ? kernel::gather_tokens
                     : pieces.count > 1                     ? kernel::gather_pieces
                                                            : kernel::gather;
  stream_->launch(which, {p.shares}, &p);
  stream_->download(sums.data(), reinterpret_cast<const std::byte*>(p.sums.out), sums.size_bytes());
  return true;
}

}  // namespace mooncaf::cuda
