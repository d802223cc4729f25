// KV in the memory of a device that is not the host's: what it saves, and that it is never seen.

#include "runtime/model/kv_mirror.hpp"

#include <doctest/doctest.h>

#include <future>
#include <random>

#include "gpu/linked/linked_device.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

/// A device that counts the bytes that cross its link, over another.
class counted_device final : public device {
 public:
  explicit counted_device(std::unique_ptr<device> inner) : inner_(std::move(inner)) {}

  std::size_t loaded_bytes = 0, stored_bytes = 0;

  device_info info() const override { return inner_->info(); }
  result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                              std::span<const std::byte> data) override {
    return inner_->load_weight(type, rows, cols, data);
  }
  result<std::unique_ptr<buffer>> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  result<void> pin(std::span<std::byte>, std::shared_ptr<const void>) override { return {}; }
  std::unique_ptr<compute_queue> make_queue(int priority) override { return inner_->make_queue(priority); }
  std::unique_ptr<copy_queue> make_copy_queue() override {
    return std::make_unique<counted_copies>(inner_->make_copy_queue(), *this);
  }

 private:
  class counted_copies final : public copy_queue {
   public:
    counted_copies(std::unique_ptr<copy_queue> inner, counted_device& counts)
        : inner_(std::move(inner)), counts_(counts) {}
    void load(std::span<const kv_copy> copies) override {
      for (const auto& c : copies) counts_.loaded_bytes += c.bytes();
      inner_->load(copies);
    }
    void store(std::span<const kv_copy> copies) override {
      for (const auto& c : copies) counts_.stored_bytes += c.bytes();
      inner_->store(copies);
    }
    void wait(const event_ptr& e) override { inner_->wait(e); }
    event_ptr record() override { return inner_->record(); }

   private:
    std::unique_ptr<copy_queue> inner_;
    counted_device& counts_;
  };
  std::unique_ptr<device> inner_;
};

constexpr std::uint32_t block_tokens = 16, mirror_longest = 128;

struct mirror_world {
  counted_device dev{unwrap(make_linked_device({}))};
  std::shared_ptr<const model> m = unwrap(model::dummy(
      dev, unwrap(dummy_shape("dummy:layers=3,dim=128,heads=4,kv_heads=2,ffn=320,vocab=300,type=q4_1")), 1));
  runner_options options;
  std::unique_ptr<model_runner> runner;

  explicit mirror_world(std::size_t blocks, page_order pages = page_order::page_first_direct,
                        device_write_rule rule = {}) {
    options.layout = m->layout(block_tokens, kv_dtype::f16);
    options.layout.pages = pages;
    options.max_logit_rows = 8;
    options.device_blocks = unwrap(
        device_kv::make(dev, options.layout, blocks * options.layout.block_bytes(), mirror_longest, rule));
    runner = unwrap(model_runner::make(m, dev, options));
  }
  std::size_t block_bytes() const { return options.layout.block_bytes(); }

  std::vector<float> step(const kv_space& kv, std::span<const std::int32_t> ids, std::size_t begin,
                          std::size_t count, std::uint64_t sequence, std::uint32_t* written_from = nullptr) {
    std::vector<float> logits(300);
    batch_item item{
        ids.subspan(begin, count), static_cast<std::uint32_t>(begin), kv.blocks(), true, {}, 0, sequence};
    item.may_stay = written_from != nullptr;
    item.written_from = written_from;
    REQUIRE(runner->forward({&item, 1}, logits).has_value());
    return logits;
  }
};

}  // namespace

TEST_CASE("a sequence that goes on is not loaded again, and writes back its new rows alone") {
  mirror_world w(16);
  const auto ids = random_tokens(70, 300, 1);
  const kv_space kv(w.options.layout, ids.size());
  w.step(kv, ids, 0, 64, 7);
  CHECK(w.dev.loaded_bytes == 0);
  CHECK(w.dev.stored_bytes == 4 * w.block_bytes());
  w.dev.stored_bytes = 0;
  for (std::size_t at = 64; at < 70; ++at) w.step(kv, ids, at, 1, 7);
  CHECK(w.dev.loaded_bytes == 0);
  CHECK(w.dev.stored_bytes == 6 * w.options.layout.bytes_per_token());
}

TEST_CASE("a device knows how long its link takes for what it lacks") {
  constexpr std::size_t rate = 64 * MiB;
  counted_device dev{unwrap(make_linked_device({{}, {rate, {}}, 1}))};
  kv_layout layout{4, 2, 32, block_tokens, kv_dtype::f16};
  const auto kv = unwrap(device_kv::make(dev, layout, 16 * layout.block_bytes(), mirror_longest));
  const block_key keys[] = {{1, 1}, {1, 2}};
  CHECK(kv->loading({}, 8) == duration{});  // nothing is known yet
  std::vector<std::byte> memory(16 * layout.block_bytes());
  kv->measure_link(dev, memory);
  const auto least = [&](std::size_t blocks) {
    return from_seconds(0.99 * static_cast<double>(blocks * layout.block_bytes()) / rate);
  };
  CHECK(kv->loading({}, 8) >= least(8));
  CHECK(kv->loading(keys, 8) == kv->loading({}, 8));
  const auto place = kv->take({1, keys, 0, 2 * block_tokens});
  REQUIRE(place);
  kv->give_back(place->ticket, 2 * block_tokens);
  CHECK(kv->loading(keys, 8) == kv->loading({}, 6));
  CHECK(kv->loading(keys, 1) == duration{});
}

TEST_CASE("what somebody else computed into the host's blocks is loaded once") {
  mirror_world w(16);
  const auto ids = random_tokens(66, 300, 2);
  const kv_space kv(w.options.layout, ids.size());
  const auto expected = feed(*w.runner, kv, ids, 512);
  w.dev.loaded_bytes = 0;
  w.step(kv, ids, 64, 1, 9);
  CHECK(w.dev.loaded_bytes == 4 * w.block_bytes());
  CHECK(w.step(kv, ids, 65, 1, 9) == expected);
  CHECK(w.dev.loaded_bytes == 4 * w.block_bytes());
}

TEST_CASE("a write-back leaves rows that are not the pass's own alone") {
  mirror_world w(16);
  const auto ids = random_tokens(40, 300, 3);
  kv_space kv(w.options.layout, ids.size());
  feed(*w.runner, kv, ids, 512);
  const std::vector<std::byte> before(kv.blocks()[2], kv.blocks()[2] + w.block_bytes());
  // Row 0 of block 2, as the host has it, is somebody's prefix by now: a mark stands for that.
  auto& mark = kv.blocks()[2][w.options.layout.offset(0, 0, false, 1)];
  mark = std::byte{0x55};
  w.step(kv, ids, 36, 2, 4);
  CHECK(mark == std::byte{0x55});
}

TEST_CASE("a pass that ends early leaves nothing behind that a later one would believe") {
  mirror_world w(16);
  const auto ids = random_tokens(60, 300, 4);
  const kv_space donor(w.options.layout, ids.size());
  const auto expected = feed(*w.runner, donor, ids, 512);
  const kv_space kv(w.options.layout, ids.size());
  std::vector<float> logits(300);
  const auto land = [&](std::uint32_t layer) {
    const auto at = w.options.layout.offset(layer, 0, false, 0);
    for (std::size_t b = 0; b < 2; ++b)
      std::memcpy(kv.blocks()[b] + at, donor.blocks()[b] + at, w.options.layout.layer_bytes());
  };
  const batch_item item{std::span(ids).subspan(32), 32, kv.blocks(), true, {}, 0, 5};
  const before_layer_fn broken = [&](std::uint32_t layer) -> result<void> {
    if (layer == 2) return fail(ec::timed_out, "the prefix did not come");
    land(layer);
    return {};
  };
  CHECK(w.runner->forward({&item, 1}, logits, {}, nullptr, broken).error() == ec::timed_out);
  std::atomic<bool> cancel{false};
  const before_layer_fn cancelling = [&](std::uint32_t layer) -> result<void> {
    land(layer);
    cancel = layer == 1;
    return {};
  };
  CHECK(w.runner->forward({&item, 1}, logits, {}, &cancel, cancelling).error() == ec::cancelled);
  for (std::uint32_t layer = 0; layer < 3; ++layer) land(layer);
  REQUIRE(w.runner->forward({&item, 1}, logits).has_value());
  CHECK(logits == expected);
}

TEST_CASE(
    "sequences in any order get the logits of a device with room for all, and no more than fits is held") {
  const auto seed = 20;
  std::mt19937 random(seed);
  constexpr std::size_t n = 6, tokens = 60;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::vector<std::vector<float>>> expected(n);
  mirror_world small(9), large(64);
  std::vector<kv_space> kv, whole;
  for (std::size_t i = 0; i < n; ++i) {
    ids.push_back(random_tokens(tokens, 300, static_cast<std::uint32_t>(30 + i)));
    kv.emplace_back(small.options.layout, tokens);
    whole.emplace_back(small.options.layout, tokens);
    large.step(whole[i], ids[i], 0, 20, i + 1);
    for (std::size_t at = 20; at < tokens; ++at)
      expected[i].push_back(large.step(whole[i], ids[i], at, 1, i + 1));
    small.step(kv[i], ids[i], 0, 20, i + 1);
  }
  std::vector<std::size_t> at(n, 20);
  // Batches of one to all sequences, none of which fit together when they are long.
  for (int round = 0; round < 300; ++round) {
    std::vector<batch_item> items;
    std::vector<std::size_t> who;
    for (std::size_t i = 0; i < n; ++i) {
      if (at[i] == tokens || random() % 3 == 0) continue;
      items.push_back({std::span(ids[i]).subspan(at[i], 1),
                       static_cast<std::uint32_t>(at[i]),
                       kv[i].blocks(),
                       true,
                       {},
                       0,
                       i + 1});
      who.push_back(i);
    }
    if (items.empty()) continue;
    std::vector<float> logits(items.size() * 300);
    REQUIRE(small.runner->forward(items, logits).has_value());
    for (std::size_t k = 0; k < who.size(); ++k) {
      CAPTURE(round);
      CAPTURE(seed);
      const auto row = std::span(logits).subspan(k * 300, 300);
      REQUIRE(std::ranges::equal(row, expected[who[k]][at[who[k]]++ - 20]));
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(at[i] == tokens);
    for (std::size_t b = 0; b + 1 < kv[i].blocks().size(); ++b)
      CHECK(
          std::ranges::equal(kv[i].block(b, small.options.layout), whole[i].block(b, small.options.layout)));
  }
}

TEST_CASE(
    "a layer of a batch that takes turns on the device is told once, with all of its KV in the host's "
    "blocks") {
  mirror_world w(9);
  const auto& layout = w.options.layout;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<kv_space> kv;
  std::vector<batch_item> items;
  for (std::uint32_t i = 0; i < 3; ++i) {
    ids.push_back(random_tokens(96, 300, 50 + i));
    kv.emplace_back(layout, 96);
  }
  for (std::size_t i = 0; i < 3; ++i) items.push_back({ids[i], 0, kv[i].blocks(), true, {}, 0, i + 1});
  std::vector<std::uint32_t> layers;
  std::vector<std::vector<std::byte>> seen;
  const auto copy = [&](std::uint32_t layer) {
    std::vector<std::byte> all;
    for (const auto& space : kv) {
      for (std::size_t b = 0; b < space.blocks().size(); ++b) {
        const auto part = space.block(b, layout).subspan(layer * layout.layer_bytes(), layout.layer_bytes());
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    return all;
  };
  const layer_done_fn done = [&](std::uint32_t layer) {
    layers.push_back(layer);
    seen.push_back(copy(layer));
  };
  std::vector<float> logits(3 * 300);
  REQUIRE(w.runner->forward(items, logits, done).has_value());
  REQUIRE(layers == std::vector<std::uint32_t>{0, 1, 2});
  for (const auto layer : layers) CHECK(seen[layer] == copy(layer));
  for (std::size_t i = 0; i < 3; ++i) {
    const kv_space alone(layout, 96);
    CHECK(std::ranges::equal(std::span(logits).subspan(i * 300, 300), feed(*w.runner, alone, ids[i], 512)));
  }
}

TEST_CASE("pages of any order hold the same rows, each where its order has it, and give the same logits") {
  for (const auto order : {page_order::page_first, page_order::layer_first}) {
    CAPTURE(static_cast<int>(order));
    mirror_world direct(9), other(9, order);
    const auto& layout = other.options.layout;
    const auto ids = random_tokens(70, 300, 9);
    const kv_space a(direct.options.layout, ids.size()), b(layout, ids.size());
    CHECK(direct.step(a, ids, 0, 70, 1) == other.step(b, ids, 0, 70, 1));
    const auto page = layout.page();
    for (std::uint32_t p = 0; p < 70; ++p) {
      for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer) {
        for (std::uint32_t plane = 0; plane < layout.planes(); ++plane) {
          const auto row = a.blocks()[p / block_tokens] +
                           layout.offset(layer, plane / 2, plane % 2 == 1, p % block_tokens);
          const auto moved = b.blocks()[p / block_tokens] + page.offset(layer, plane, p % block_tokens);
          REQUIRE(std::equal(row, row + layout.row_bytes(), moved));
        }
      }
    }
    // Loaded from those pages: whole blocks, and the rows of the last one.
    CHECK(direct.step(a, ids, 69, 1, 2) == other.step(b, ids, 69, 1, 2));
    CHECK(other.dev.loaded_bytes == direct.dev.loaded_bytes);
    // What a device says of a block is what memory and disk say of the page, but for rows by token.
    if (order == page_order::layer_first) {
      CHECK(other.runner->checks());
      CHECK(checksum64(b.blocks()[0], layout.pieces()) == checksum64(a.block(0, direct.options.layout)));
    }
  }
}

TEST_CASE(
    "what stays costs no byte of the link, and is in the host's blocks once it may not stay any longer") {
  mirror_world through(40),
      w(24, page_order::page_first_direct, {false, 0});  // 8 of 24 blocks for whoever comes
  const auto ids = random_tokens(90, 300, 11), others = random_tokens(120, 300, 12);
  const kv_space kv(w.options.layout, ids.size()), expected(w.options.layout, ids.size()),
      other(w.options.layout, others.size());
  std::uint32_t from = 0;
  CHECK(w.step(kv, ids, 0, 64, 7, &from) == through.step(expected, ids, 0, 64, 7));
  CHECK(from == 64);
  for (std::size_t at = 64; at < 80; ++at) {
    CHECK(w.step(kv, ids, at, 1, 7, &from) == through.step(expected, ids, at, 1, 7));
    CHECK(from == at + 1);
  }
  w.step(other, others, 0, 120, 8, &from);
  CHECK(w.dev.stored_bytes == 0);
  // 5 and 8 blocks of 16 stay; 4 more are too many.
  const kv_space third(w.options.layout, 64);
  w.dev.stored_bytes = 0;
  w.step(third, random_tokens(64, 300, 13), 0, 64, 10, &from);
  CHECK(from == 0);
  CHECK(w.dev.stored_bytes == 4 * w.block_bytes());
  w.options.device_blocks->let_go(10);
  const kv_space fourth(w.options.layout, 48);
  w.step(fourth, random_tokens(48, 300, 14), 0, 48, 11, &from);
  CHECK(from == 48);
  w.dev.stored_bytes = 0;
  CHECK(w.step(kv, ids, 80, 10, 7, &from) == through.step(expected, ids, 80, 10, 7));
  CHECK(from == 0);
  CHECK(w.dev.stored_bytes == 90 * w.options.layout.bytes_per_token());
  for (std::size_t b = 0; b < 5; ++b)
    CHECK(std::ranges::equal(kv.block(b, w.options.layout), expected.block(b, w.options.layout)));
  CHECK(w.options.device_blocks->stats().unwritten_blocks == 0);
}

TEST_CASE("a device whose KV memory holds no whole context is refused with the option and the numbers") {
  const mirror_world w(16);
  counted_device dev{unwrap(make_linked_device({}))};
  const auto made = device_kv::make(dev, w.options.layout, 7 * w.block_bytes(), mirror_longest);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error() == ec::invalid_argument);
  CHECK(made.error().detail.find("device-kv") != std::string::npos);
  CHECK(made.error().detail.find("needs 8") != std::string::npos);
}

TEST_CASE("a runner finds what another computed on the same device, and loads nothing") {
  mirror_world w(16);
  const auto other = unwrap(model_runner::make(w.m, w.dev, w.options));
  const auto ids = random_tokens(66, 300, 8);
  const std::vector<block_key> keys{{1, 1}, {1, 2}, {1, 3}, {1, 4}};
  const kv_space kv(w.options.layout, ids.size());
  std::vector<float> expected(300), logits(300);
  const batch_item prompt{std::span{ids}.first(65), 0, kv.blocks(), true, {}, 0, 3, keys};
  REQUIRE(w.runner->forward({&prompt, 1}, expected).has_value());
  // Another request with the same prefix, on the other runner: its blocks are in the host's memory, too.
  const batch_item again{std::span{ids}.subspan(64, 1), 64, kv.blocks(), true, {}, 0, 4, keys};
  REQUIRE(other->forward({&again, 1}, logits).has_value());
  CHECK(w.dev.loaded_bytes == 0);
  CHECK(logits == expected);
  const auto stats = w.options.device_blocks->stats();
  CHECK(stats.hit_tokens == 64);
  CHECK(stats.stored_bytes == w.dev.stored_bytes);
}

TEST_CASE("runners that share a device too small for both take turns") {
  mirror_world w(9);
  const auto other = unwrap(model_runner::make(w.m, w.dev, w.options));
  const auto alone = [&](std::uint32_t seed) {
    const auto ids = random_tokens(120, 300, seed);
    const kv_space kv(w.options.layout, ids.size());
    return feed(*w.runner, kv, ids, 512);
  };
  const auto first = alone(61), second = alone(62);
  const auto many = [&](model_runner& runner, std::uint32_t seed, const std::vector<float>& expected) {
    const auto ids = random_tokens(120, 300, seed);
    bool equal = true;
    for (int i = 0; i < 20; ++i) {
      const kv_space kv(w.options.layout, ids.size());
      std::vector<float> logits(300);
      const batch_item item{ids, 0, kv.blocks(), true, {}, 0, seed};
      equal = equal && runner.forward({&item, 1}, logits).has_value() && logits == expected;
    }
    return equal;
  };
  auto beside = std::async(std::launch::async, [&] { return many(*other, 62, second); });
  CHECK(many(*w.runner, 61, first));
  CHECK(beside.get());
}

TEST_CASE(
    "whoever takes KV from the device gets each layer before the host is told of it, and as the host gets "
    "it") {
  struct taker final : device_reader {
    mirror_world& w;
    std::unique_ptr<copy_queue> copies = w.dev.make_copy_queue();
    std::vector<std::byte> taken = std::vector<std::byte>(3 * w.block_bytes());
    std::vector<std::uint32_t> layers;
    int let_gone = 0;

    explicit taker(mirror_world& in) : w(in) {}
    void on_device(std::uint32_t layer, std::uint32_t start, std::uint32_t count,
                   std::span<const device_bytes> blocks) override {
      layers.push_back(layer);
      CHECK(start == 0);
      CHECK(count == 48);
      std::vector<kv_copy> rows;
      for (std::size_t b = 0; b < 3; ++b)
        append_rows(w.options.layout, blocks[b], taken.data() + b * w.block_bytes(), layer, 0, block_tokens,
                    rows);
      copies->store(rows);
    }
    void let_go() override {
      ++let_gone;
      wait_for(copies->record());
    }
  };
  // The second item does not fit beside the first: each has its blocks for a part of the pass.
  mirror_world w(8);
  const auto ids = random_tokens(48, 300, 21), others = random_tokens(96, 300, 22);
  const kv_space kv(w.options.layout, 48), other(w.options.layout, 96);
  taker reader(w);
  std::vector<float> logits(600);
  std::array items{batch_item{ids, 0, kv.blocks(), true, {}, 0, 3},
                   batch_item{others, 0, other.blocks(), true, {}, 0, 4}};
  items[0].reader = &reader;
  std::size_t before = 0;
  REQUIRE(
      w.runner->forward(items, logits, [&](std::uint32_t layer) { before += reader.layers.size() > layer; })
          .has_value());
  CHECK(before == 3);
  CHECK(reader.layers == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(reader.let_gone == 1);
  for (std::size_t b = 0; b < 3; ++b)
    CHECK(std::ranges::equal(kv.block(b, w.options.layout),
                             std::span{reader.taken}.subspan(b * w.block_bytes(), w.block_bytes())));
}
