#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "runtime/base/hash.hpp"
#include "transport/copy/stream_copy.hpp"

using namespace mooncaf;

TEST_CASE("every copy kernel copies exactly and hashes as checksum64 does, at any size and alignment") {
  std::mt19937_64 random{3};
  std::vector<std::byte> from(300000);
  for (auto& b : from) b = static_cast<std::byte>(random());
  std::vector<std::byte> to(from.size() + 256);
  const auto kernels = available_copy_kernels();
  for (std::size_t k = 0; k < kernels.count; ++k) {
    CAPTURE(kernels.items[k].isa);
    std::vector<std::size_t> sizes{0,    1,     16,    63,    64,    65,    128,    240,
                                   241,  32767, 32768, 32769, 33793, 65537, 100001, 1023,
                                   1024, 1025,  1087,  1088,  2048,  2049,  262144};
    for (int i = 0; i < 200; ++i) sizes.push_back(random() % 40000);
    for (const auto n : sizes) {
      const auto at = random() % 130;
      const auto source = random() % 70;
      std::memset(to.data(), 0xA5, to.size());
      const auto sum = kernels.items[k].copy_checksum(to.data() + at, from.data() + source, n);
      REQUIRE_MESSAGE(sum == checksum64({from.data() + source, n}), "size " << n << " to +" << at);
      REQUIRE(std::memcmp(to.data() + at, from.data() + source, n) == 0);
      if (at > 0) REQUIRE(to[at - 1] == std::byte{0xA5});
      REQUIRE(to[at + n] == std::byte{0xA5});
      std::memset(to.data(), 0xA5, to.size());
      kernels.items[k].copy(to.data() + at, from.data() + source, n);
      REQUIRE(std::memcmp(to.data() + at, from.data() + source, n) == 0);
      REQUIRE(to[at + n] == std::byte{0xA5});
      std::memset(to.data(), 0xA5, to.size());
      REQUIRE(kernels.items[k].near_copy_checksum(to.data() + at, from.data() + source, n) == sum);
      REQUIRE(std::memcmp(to.data() + at, from.data() + source, n) == 0);
      if (at > 0) REQUIRE(to[at - 1] == std::byte{0xA5});
      REQUIRE(to[at + n] == std::byte{0xA5});
      REQUIRE(kernels.items[k].checksum(from.data() + source, n) == sum);
      REQUIRE(kernels.items[k].cold_checksum(from.data() + source, n) == sum);
    }
  }
}

TEST_CASE(
    "a copy in parts of any sizes is the copy, and its checksum that of the whole, whatever is left over "
    "each time") {
  std::mt19937_64 random{4};
  std::vector<std::byte> from(300000);
  for (auto& b : from) b = static_cast<std::byte>(random());
  std::vector<std::byte> to(from.size() + 256);
  const auto kernels = available_copy_kernels();
  for (std::size_t k = 0; k < kernels.count; ++k) {
    CAPTURE(kernels.items[k].isa);
    std::vector<std::size_t> sizes{0,    1,    63,   64,   240,  241,  1023,  1024,
                                   1025, 1087, 1088, 1089, 2111, 2112, 65536, 262144};
    for (int i = 0; i < 100; ++i) sizes.push_back(random() % 40000);
    for (const auto n : sizes) {
      CAPTURE(n);
      const auto at = random() % 130;
      std::memset(to.data(), 0xA5, to.size());
      copy_in_parts state;
      std::size_t come = 0, copied = 0;
      while (come < n) {
        come = std::min(n, come + 1 + random() % 5000);
        if (come == n) break;
        const auto taken =
            kernels.items[k].copy_part(state, to.data() + at + copied, from.data() + copied, come - copied);
        const auto left = come - copied - taken;
        REQUIRE((taken == 0 || left >= 64));
        REQUIRE(left < 1088);
        copied += taken;
        REQUIRE(to[at + copied] == std::byte{0xA5});
      }
      const auto sum =
          kernels.items[k].copy_last(state, to.data() + at + copied, from.data() + copied, n - copied);
      REQUIRE(sum == checksum64({from.data(), n}));
      REQUIRE(std::memcmp(to.data() + at, from.data(), n) == 0);
      REQUIRE(to[at + n] == std::byte{0xA5});
    }
  }
}

TEST_CASE("a near copy's checksum is of the bytes that it stored, whoever writes to the source meanwhile") {
  constexpr std::size_t n = 100 * 1024 + 77, mapped = 128 * 1024;
  void* const memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  // The same memory at another address, as another process has it.
  void* const elsewhere = ::mremap(memory, 0, mapped, MREMAP_MAYMOVE);
  REQUIRE(elsewhere != MAP_FAILED);
  std::vector<std::byte> to(n);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> rounds{0};
  std::thread other([&] {
    auto* const words = static_cast<std::uint64_t*>(elsewhere);
    for (std::uint64_t x = 1; !done; ++x, ++rounds) std::fill_n(words, mapped / sizeof(x), x);
  });
  while (rounds == 0) std::this_thread::yield();
  const auto kernels = available_copy_kernels();
  for (std::size_t k = 0; k < kernels.count; ++k) {
    CAPTURE(kernels.items[k].isa);
    for (int i = 0; i < 300; ++i) {
      const auto sum = kernels.items[k].near_copy_checksum(to.data(), memory, n);
      CHECK(sum == checksum64(to));
    }
  }
  done = true;
  other.join();
  ::munmap(elsewhere, mapped);
  ::munmap(memory, mapped);
}
