#include "storage/disk_probe.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "runtime/base/posix.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t piece = 1 * MiB;
constexpr std::size_t page = 4 * KiB;
constexpr std::size_t most_pieces = 16;

struct freed {
  void operator()(std::byte* p) const noexcept { std::free(p); }
};
using aligned_bytes = std::unique_ptr<std::byte, freed>;

aligned_bytes make_aligned(std::size_t bytes) {
  return aligned_bytes{static_cast<std::byte*>(std::aligned_alloc(page, (bytes + page - 1) / page * page))};
}

}  // namespace

std::vector<disk_sample> probe_reads(rocksdb_tier& tier, std::span<const ssd_block> held,
                                     std::size_t block_bytes) {
  const auto count = std::min(held.size(), std::clamp<std::size_t>(32 * MiB / block_bytes, 1, most_pieces));
  const auto memory = make_aligned(count * block_bytes);
  std::vector<disk_sample> out;
  if (!memory) return out;
  std::vector<get_item> items;
  for (std::size_t i = 0; i < count; ++i) {
    // Spread over all blocks held: neighbours may share the disk's read-ahead.
    items.push_back({held[i * held.size() / count].name.key, {memory.get() + i * block_bytes, block_bytes}});
  }
  const auto began = clock_type::now();
  std::uint64_t bytes = 0;
  for (const auto& read : tier.multi_get(items)) bytes += read ? block_bytes : 0;
  if (bytes > 0) out.push_back({bytes, clock_type::now() - began});
  return out;
}

// The file is read back past the page cache, in large pieces and then one page: two sizes tell bandwidth and
// latency apart.
std::vector<disk_sample> probe_folder(const std::string& folder, duration limit) {
  std::vector<disk_sample> out;
  const unique_fd file{::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  const auto memory = make_aligned(piece);
  if (!file || !memory) return out;
  // Neither zeros nor a pattern: some disks store such data without writing it.
  std::uint64_t word = 0x9E3779B97F4A7C15ull;
  auto* words = reinterpret_cast<std::uint64_t*>(memory.get());
  for (std::size_t i = 0; i < piece / sizeof(word); ++i) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    words[i] = word;
  }
  const auto began = clock_type::now();
  std::size_t pieces = 0;
  while (pieces < most_pieces && (pieces == 0 || clock_type::now() - began < limit / 2)) {
    const auto at = static_cast<off_t>(pieces * piece);
    if (::pwrite(file.get(), memory.get(), piece, at) != static_cast<ssize_t>(piece)) break;
    if (::fdatasync(file.get()) != 0) break;
    ++pieces;
  }
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  const int flags = ::fcntl(file.get(), F_GETFL);
  ::fcntl(file.get(), F_SETFL, flags | O_DIRECT);  // where it fails the cache was at least asked to forget
  const auto read_began = clock_type::now();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pieces && (i == 0 || clock_type::now() - read_began < limit / 2); ++i) {
    const auto got = ::pread(file.get(), memory.get(), piece, static_cast<off_t>(i * piece));
    if (got != static_cast<ssize_t>(piece)) break;
    bytes += piece;
  }
  if (bytes > 0) out.push_back({bytes, clock_type::now() - read_began});
  const auto page_began = clock_type::now();
  if (bytes > 0 && ::pread(file.get(), memory.get(), page, 0) == static_cast<ssize_t>(page))
    out.push_back({page, clock_type::now() - page_began});
  return out;
}

}  // namespace mooncaf
