#include "storage/files/file_source.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include "storage/files/peers_page.hpp"

namespace mooncaf {

namespace {

using namespace std::chrono_literals;
constexpr auto in_a_block = file_manifest::hashes_per_block;

}  // namespace

result<void> file_source::describe() {
  const auto begin = engine_.first_address(at_);
  if (!begin) return fail(begin.error());
  std::array<std::byte, file_manifest::head_bytes> first{};
  if (auto got = read(*begin, first); !got) return got;
  const auto head = file_manifest::parse_head(first);
  if (!head) return fail(head.error());
  head_ = *head;
  std::vector<std::byte> whole(static_cast<std::size_t>(head_.bytes));
  if (auto got = read(*begin, whole); !got) return got;
  auto manifest = file_manifest::parse(whole);
  if (!manifest) return fail(manifest.error());
  manifest_ = std::move(*manifest);
  hashes_.resize(manifest_->parts());
  known_.resize((manifest_->parts() + in_a_block - 1) / in_a_block);
  return {};
}

result<void> file_source::move(const std::vector<file_range>& ranges, std::uint64_t into) {
  std::vector<engine_piece> pieces;
  for (const auto& r : ranges) {
    pieces.push_back({into, manifest_->files()[r.file].address + r.offset, r.bytes});
    into += r.bytes;
  }
  return engine_.move(transfer_op::read, at_, pieces, limit_);
}

result<hash128> file_source::hash(std::size_t part, duration patience) {
  std::lock_guard lock{mutex_};  // others want the same block
  const auto block = part / in_a_block;
  for (const auto until = clock_type::now() + patience; !known_[block];) {
    if (const auto learned = learn(block); learned) break;
    else if (learned.error() != ec::not_found) return fail(learned.error());
    if (clock_type::now() >= until) return fail(ec::timed_out, "it does not go on hashing its files");
    std::this_thread::sleep_for(20ms);
  }
  return hashes_[part];
}

std::vector<hash128> file_source::block_of(std::size_t part) {
  std::lock_guard lock{mutex_};
  const auto first = part / in_a_block * in_a_block, count = std::min(in_a_block, hashes_.size() - first);
  const auto begin = hashes_.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

std::vector<std::string> file_source::fetches() {
  std::array<std::byte, peers_page::size> page{};
  if (head_.at.fetches == 0 || !read(head_.at.fetches, page)) return {};
  return peers_page::parse(page);
}

result<std::vector<std::byte>> file_source::holds() {
  std::vector<std::byte> map(manifest_->parts());
  if (auto got = read(head_.at.map, map); !got) return fail(got.error());
  return map;
}

result<void> file_source::read(std::uint64_t address, std::span<std::byte> into) {
  return engine_.move(transfer_op::read, at_,
                      {{reinterpret_cast<std::uint64_t>(into.data()), address, into.size()}}, limit_);
}

result<void> file_source::learn(std::size_t block) {
  const auto first = block * in_a_block, count = std::min(in_a_block, hashes_.size() - first);
  std::vector<std::byte> bytes(count * file_manifest::hash_bytes);
  if (auto got = read(head_.at.hashes + first * file_manifest::hash_bytes, bytes); !got) return got;
  for (std::size_t i = 0; i < count; ++i)
    hashes_[first + i] = file_manifest::parse_hash(std::span<const std::byte>{bytes}
                                                       .subspan(i * file_manifest::hash_bytes)
                                                       .first<file_manifest::hash_bytes>());
  known_[block] = true;
  return {};
}

}  // namespace mooncaf
