// KV as bytes, as every device moves and checks it: lists of pieces, pinned memory, checksums.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "runtime/base/hash.hpp"
#include "tests/conformance/device_world.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

struct host_bytes {
  explicit host_bytes(std::size_t size)
      : memory(static_cast<std::byte*>(std::aligned_alloc(64, size)), &std::free),
        bytes(memory.get(), size) {}
  std::shared_ptr<std::byte> memory;
  std::span<std::byte> bytes;
};

std::vector<std::byte> random_bytes(random_source& r, std::size_t n) {
  std::vector<std::byte> out(n);
  for (auto& b : out) b = r.byte();
  return out;
}

struct move_case {
  std::size_t piece, pitch, count, offset;
};

}  // namespace

TEST_CASE("checksums are the host's, whatever the size") {
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto d = kind.make();
    device_world w(*d);
    random_source r(41);
    for (const std::size_t bytes :
         {320u, 1024u, 1088u, 2048u, 32u * 1024u, 33u * 1024u + 64u, 70u * 1024u + 960u}) {
      CAPTURE(bytes);
      REQUIRE(checksum_fits(bytes));
      std::vector<device_bytes> blocks;
      std::vector<std::uint64_t> want, got(3);
      for (int i = 0; i < 3; ++i) {
        auto content = random_bytes(r, bytes);
        blocks.push_back({reinterpret_cast<std::byte*>(w.room(1, bytes / sizeof(float)).data)});
        w.write(blocks.back(), content);
        want.push_back(checksum64(content));
      }
      {
        const device_turn turn(w.queue());
        w.queue().checksum(blocks, bytes, got);
        w.queue().synchronize();
      }
      CHECK(got == want);
    }
  }
}

TEST_CASE("lists of pieces come out as they went in, of pinned memory and of any other") {
  // Rows of tokens, with and without sixteens; whole layers; one piece.
  const std::vector<std::vector<move_case>> lists{{{48, 160, 4, 0}, {16, 320, 3, 1024}, {256, 256, 1, 2048}},
                                                  {{40, 100, 5, 8}, {16, 64, 2, 1024}},
                                                  {{65536, 65536, 2, 0}, {16, 16, 1, 131072}},
                                                  {{4096, 4096, 1, 16}},
                                                  {}};
  constexpr std::size_t size = 192 << 10;
  for (const auto& kind : device_kinds()) {
    for (const bool pinned : {true, false}) {
      CAPTURE(kind.name);
      CAPTURE(pinned);
      auto d = kind.make();
      host_bytes there(size), back(size);
      std::weak_ptr<std::byte> alive = back.memory;
      if (pinned) {
        REQUIRE(d->pin(there.bytes, there.memory).has_value());
        REQUIRE(d->pin(back.bytes, back.memory).has_value());
      }
      {
        device_world w(*d);
        random_source r(42);
        const device_bytes block{reinterpret_cast<std::byte*>(w.room(1, size / sizeof(float)).data)};
        for (const auto& list : lists) {
          const auto content = random_bytes(r, size);
          std::ranges::copy(content, there.bytes.begin());
          std::ranges::fill(back.bytes, std::byte{0});
          std::vector<kv_copy> loads, stores;
          std::vector<std::byte> want(size, std::byte{0});
          for (const auto& m : list) {
            loads.push_back({block + m.offset, there.bytes.data() + m.offset, m.piece, m.pitch, m.count});
            stores.push_back({block + m.offset, back.bytes.data() + m.offset, m.piece, m.pitch, m.count});
            for (std::size_t i = 0; i < m.count; ++i)
              std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(m.offset + i * m.pitch), m.piece,
                          want.begin() + static_cast<std::ptrdiff_t>(m.offset + i * m.pitch));
          }
          const auto loading = d->make_copy_queue(), storing = d->make_copy_queue();
          loading->load(loads);
          storing->wait(loading->record());
          storing->store(stores);
          wait_for(storing->record());
          CHECK(std::ranges::equal(back.bytes, want));
        }
      }
      d.reset();
      back.memory.reset();
      CHECK(alive.expired());
    }
  }
}
