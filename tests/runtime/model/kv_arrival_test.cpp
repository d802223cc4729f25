// A prompt's KV that goes on to a device while it lands: each position once, in any order of landings, and
// whatever ends it early leaves the device's blocks to others.

#include "runtime/model/kv_arrival.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "gpu/linked/linked_device.hpp"
#include "runtime/model/kv_mirror.hpp"

using namespace mooncaf;

namespace {

constexpr kv_layout layout{2, 1, 8, 4, kv_dtype::f16};
static_assert(layout.block_tokens == 4);
constexpr std::uint32_t longest = 8 * layout.block_tokens;

/// Copies of a card that dies after so many calls.
class dying_copies final : public copy_queue {
 public:
  dying_copies(std::unique_ptr<copy_queue> inner, int calls) : inner_(std::move(inner)), left_(calls) {}
  void load(std::span<const kv_copy> copies) override {
    live();
    inner_->load(copies);
  }
  void store(std::span<const kv_copy>) override { FAIL("nothing is stored"); }
  void wait(const event_ptr&) override { FAIL("nothing is waited for"); }
  event_ptr record() override {
    live();
    return inner_->record();
  }

 private:
  void live() {
    if (left_-- <= 0) throw device_failure("the card is no longer there");
  }
  std::unique_ptr<copy_queue> inner_;
  int left_;
};

struct arrival_world {
  explicit arrival_world(std::size_t blocks = 24)
      : kv(*device_kv::make(*dev, layout, blocks * layout.block_bytes(), longest)),
        queue(dev->make_copy_queue()) {}

  kv_arrival::prompt prompt(std::uint64_t sequence, std::uint32_t tokens) {
    kv_arrival::prompt p{sequence, {}, {}, tokens};
    for (std::uint32_t b = 0; b < layout.blocks_for(tokens); ++b) {
      if ((b + 1) * layout.block_tokens <= tokens) p.keys.push_back({sequence, b});
      pages.emplace_back(layout.block_bytes());
      p.blocks.push_back(pages.back().data());
    }
    return p;
  }
  std::shared_ptr<kv_arrival> begin(const kv_arrival::prompt& p) {
    return kv_arrival::make(kv, queue, p, dev);
  }
  /// All rows of these positions become those of `salt`.
  static void write(const kv_arrival::prompt& p, std::uint32_t layer, std::uint32_t first, std::uint32_t last,
                    std::uint8_t salt = 0) {
    for (auto at = first; at < last; ++at)
      for (std::uint32_t i = 0; i < layout.planes(); ++i)
        std::fill_n(p.blocks[at / layout.block_tokens] +
                        layout.offset(layer, 0, i % 2 == 1, at % layout.block_tokens),
                    layout.row_bytes(), static_cast<std::byte>(1 + salt + 64 * layer + at));
  }
  /// The first pass of the prompt. @returns what it has to load, in positions; what it finds is compared.
  std::uint32_t first_pass(const kv_arrival::prompt& p, kv_arrival* arrival) {
    const std::vector<std::int32_t> token(1);
    auto blocks = p.blocks;
    if (p.tokens % layout.block_tokens == 0)
      blocks.push_back(pages.emplace_back(layout.block_bytes()).data());
    batch_item item{token, p.tokens, blocks, false, {}, 0, p.sequence, p.keys};
    item.arrival = arrival;
    const auto before = kv->stats();
    kv_mirror mirror(*dev, kv, kv->layout());
    REQUIRE(mirror.begin({&item, 1}) == 1);
    mirror.load_all();
    wait_for(mirror.loaded(layout.n_layers - 1));
    REQUIRE(mirror.blocks(0).size() > p.tokens / layout.block_tokens);
    std::vector<std::vector<std::byte>> seen;
    std::vector<kv_copy> out;
    for (std::uint32_t b = 0; b < p.blocks.size(); ++b) {
      seen.emplace_back(layout.block_bytes());
      out.push_back({mirror.blocks(0)[b], seen.back().data(), layout.block_bytes(), 0, 1});
    }
    queue->store(out);
    wait_for(queue->record());
    for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
      for (std::uint32_t at = 0; at < p.tokens; ++at)
        for (const bool value : {false, true}) {
          const auto row = layout.offset(layer, 0, value, at % layout.block_tokens);
          const auto b = at / layout.block_tokens;
          REQUIRE(
              std::equal(p.blocks[b] + row, p.blocks[b] + row + layout.row_bytes(), seen[b].data() + row));
        }
    mirror.end(false);
    return static_cast<std::uint32_t>(kv->stats().loaded_tokens - before.loaded_tokens);
  }
  /// Every block is free or may leave.
  bool all_free() {
    const auto all =
        kv->take({0, {}, 0, static_cast<std::uint32_t>(kv->stats().blocks) * layout.block_tokens});
    if (all) kv->give_back(all->ticket, 0);
    return all.has_value();
  }

  std::shared_ptr<device> dev = *make_linked_device({});
  std::shared_ptr<device_kv> kv;
  std::shared_ptr<copy_queue> queue;
  std::deque<std::vector<std::byte>> pages;
};

}  // namespace

TEST_CASE("a prompt that landed in any order of pieces is on the device, each row of it brought once") {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    arrival_world w;
    const auto p = w.prompt(7, 1 + below(longest - 1));
    const auto arrival = w.begin(p);
    REQUIRE(arrival);
    struct piece {
      std::uint32_t layer, first, last;
    };
    std::vector<piece> pieces;
    for (std::uint32_t at = 0; at < p.tokens;) {
      const auto last = std::min(p.tokens, at + 1 + below(9));
      for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer) pieces.push_back({layer, at, last});
      at = last;
    }
    std::ranges::shuffle(pieces, random);
    // Of some the board never told; and one that says what cannot be is of no matter.
    const auto told = seed % 3 == 0 ? below(static_cast<std::uint32_t>(pieces.size())) : pieces.size();
    arrival->landed(99, 0, p.tokens);
    arrival->landed(0, p.tokens, p.tokens + 50);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      arrival_world::write(p, pieces[i].layer, pieces[i].first, pieces[i].last);
      if (i < told) arrival->landed(pieces[i].layer, pieces[i].first, pieces[i].last);
    }
    if (told == pieces.size()) CHECK(w.kv->stats().loaded_bytes == p.tokens * layout.bytes_per_token());
    CHECK_FALSE(arrival->loaded());
    arrival->finish();
    CHECK(arrival->loaded());
    CHECK(w.kv->stats().loaded_bytes == p.tokens * layout.bytes_per_token());
    CHECK(w.first_pass(p, arrival.get()) == 0);
    CHECK(w.kv->stats().loaded_bytes == p.tokens * layout.bytes_per_token());
    CHECK(w.all_free());
  }
}

TEST_CASE("what arrived is not pushed out before its first pass, and what others read is not written") {
  arrival_world w(20);
  const auto p = w.prompt(7, 18), again = [&] {
    auto q = w.prompt(8, 18);
    for (std::uint32_t b = 0; b < 4; ++b) q.keys[b] = {7, b};  // the same prompt
    return q;
  }();
  for (const auto* q : {&p, &again})
    for (std::uint32_t layer = 0; layer < 2; ++layer) arrival_world::write(*q, layer, 0, 18);
  const auto first = w.begin(p);
  first->finish();
  REQUIRE(first->loaded());
  // As many as there is room for want it meanwhile.
  for (std::uint64_t other = 100; other < 110; ++other) {
    const auto place = w.kv->take({other, {}, 0, longest});
    REQUIRE(place);
    w.kv->give_back(place->ticket, longest);
  }
  CHECK(w.first_pass(p, first.get()) == 0);
  // The second's four full blocks are the first's: two positions are its own.
  const auto bytes = w.kv->stats().loaded_bytes;
  const auto second = w.begin(again);
  REQUIRE(second);
  CHECK_FALSE(second->loaded());
  second->finish();
  CHECK(w.kv->stats().loaded_bytes - bytes == 2 * layout.bytes_per_token());
  CHECK(w.first_pass(again, second.get()) == 0);
  // And of a prompt that ends with a block nothing is missing.
  auto whole = again;
  whole.sequence = 9, whole.tokens = 16, whole.blocks.resize(4);
  const auto third = w.begin(whole);
  REQUIRE(third);
  CHECK(third->loaded());
  CHECK(w.first_pass(whole, third.get()) == 0);
}

TEST_CASE("a prompt for which passes would have no room does not arrive") {
  arrival_world w(8 + 5);  // a longest context, and five blocks
  const auto p = w.prompt(1, 17), q = w.prompt(2, 1);
  auto held = w.begin(p);
  REQUIRE(held);
  CHECK_FALSE(w.begin(q));
  const auto longest_pass = w.kv->take({3, {}, 0, longest});
  REQUIRE(longest_pass);
  w.kv->give_back(longest_pass->ticket, 0);
  held.reset();
  CHECK(w.begin(q));
}

TEST_CASE("what is stopped, dropped or lost with its device gives up its blocks") {
  for (int calls = 0; calls < 6; ++calls) {
    CAPTURE(calls);
    arrival_world w;
    const auto p = w.prompt(7, 19);
    for (std::uint32_t layer = 0; layer < 2; ++layer) arrival_world::write(p, layer, 0, 19);
    {
      const auto a =
          kv_arrival::make(w.kv, std::make_shared<dying_copies>(w.dev->make_copy_queue(), calls), p, w.dev);
      for (const auto layer : {0u, 1u}) a->landed(layer, 0, 9);
      a->landed(0, 9, 19);
      a->finish();
      CHECK(a->failure().has_value() == (calls < 5));  // four loads, one event
      CHECK(a->loaded() == (calls >= 5));
      a->landed(1, 0, 19);
    }
    // What did not come whole nobody believes.
    CHECK(w.first_pass(p, nullptr) == (calls < 5 ? 19 : 0));
    CHECK(w.all_free());
  }
  arrival_world w;
  const auto p = w.prompt(7, 19);
  const auto a = w.begin(p);
  a->landed(0, 0, 19);
  a->stop();
  a->landed(1, 0, 19);
  a->finish();
  CHECK_FALSE(a->loaded());
  CHECK(w.kv->stats().loaded_bytes == 19 * layout.bytes_per_token() / 2);
  CHECK(w.kv->stats().blocks_used == 0);
}
