#include "runtime/model/model_runner.hpp"

#include <doctest/doctest.h>

#include <array>
#include <thread>

#include "gpu/host/vocab_ops.hpp"
#include "gpu/linked/linked_device.hpp"
#include "runtime/model/text_loss.hpp"
#include "tests/runtime/model/allocation_counter.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

constexpr std::uint32_t runner_block_tokens = 16;

constexpr std::string_view usual = "dummy:layers=3,dim=128,heads=4,kv_heads=2,ffn=320,vocab=300,type=q4_1";

struct on_host {
  static constexpr bool linked = false;
};
/// A device with memory of its own, which holds a little more than the longest context of these tests.
struct on_linked {
  static constexpr bool linked = true;
};

struct set_up {
  std::unique_ptr<device> dev;
  std::shared_ptr<const model> m;
  runner_options options;

  explicit set_up(bool exact = false, kv_dtype dtype = kv_dtype::f16, std::string_view spec = usual,
                  bool linked = false) {
    const host_device_options host{.exact = exact};
    dev = linked
              ? unwrap(make_linked_device({host, {std::size_t{4} << 30, std::chrono::microseconds(20)}, 2}))
              : make_host_device(host);
    m = unwrap(model::dummy(*dev, unwrap(dummy_shape(spec)), 1));
    options.layout = m->layout(runner_block_tokens, dtype);
    options.max_logit_rows = 8;
    if (linked)
      options.device_blocks =
          unwrap(device_kv::make(*dev, options.layout, 14 * options.layout.block_bytes(), 200));
  }
  template <class Kind>
  static set_up of() {
    return set_up(false, kv_dtype::f16, usual, Kind::linked);
  }
  std::unique_ptr<model_runner> runner() const { return unwrap(model_runner::make(m, *dev, options)); }
};

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

}  // namespace

TEST_CASE_TEMPLATE("chunk size changes no bit of logits or KV", Kind, on_host, on_linked) {
  for (const bool exact : {true, false}) {
    for (const auto dtype : all_values<kv_dtype>()) {
      const set_up s(exact, dtype, usual, Kind::linked);
      const auto runner = s.runner();
      const auto ids = random_tokens(150, 300, 3);
      const kv_space whole(s.options.layout, ids.size());
      const auto expected = feed(*runner, whole, ids, ids.size());
      for (const std::size_t chunk : {1u, 7u, 16u, 32u, 33u, 64u, 149u}) {
        const kv_space kv(s.options.layout, ids.size());
        CAPTURE(chunk);
        CAPTURE(exact);
        CHECK(feed(*runner, kv, ids, chunk) == expected);
        for (std::size_t b = 0; b < kv.blocks().size(); ++b)
          CHECK(same_bytes(kv.block(b, s.options.layout), whole.block(b, s.options.layout)));
      }
    }
  }
}

TEST_CASE("a text's loss is the mean of what the logits of its prefixes say, in chunks of any size") {
  const auto s = set_up::of<on_host>();
  const auto runner = s.runner();
  const auto ids = random_tokens(70, 300, 5);
  double sum = 0;
  for (std::size_t n = 1; n < ids.size(); ++n) {
    const kv_space kv(s.options.layout, n);
    const auto logits = feed(*runner, kv, std::span(ids).first(n), 512);
    double total = 0;
    for (const float x : logits) total += std::exp(static_cast<double>(x));
    sum += std::log(total) - logits[static_cast<std::size_t>(ids[n])];
  }
  for (const std::uint32_t chunk : {1u, 16u, 33u, 512u})
    CHECK(unwrap(text_loss(*runner, ids, chunk)) == doctest::Approx(sum / 69).epsilon(1e-6));
  CHECK(text_loss(*runner, std::span(ids).first(1), 16).error() == ec::invalid_argument);
}

TEST_CASE_TEMPLATE("batch neighbours change no bit", Kind, on_host, on_linked) {
  const auto s = set_up::of<Kind>();
  const auto runner = s.runner();
  constexpr std::size_t n = 8;
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<std::vector<float>> expected;
  for (std::size_t i = 0; i < n; ++i) {
    prompts.push_back(random_tokens(5 + 9 * i, 300, 20 + static_cast<std::uint32_t>(i)));
    const kv_space kv(s.options.layout, prompts.back().size());
    expected.push_back(feed(*runner, kv, prompts.back(), 512));
  }
  std::vector<float> logits(n * 300);
  SUBCASE("prefill together") {
    std::vector<kv_space> spaces;
    for (const auto& p : prompts) spaces.emplace_back(s.options.layout, p.size());
    std::vector<batch_item> items;
    for (std::size_t i = 0; i < n; ++i) items.push_back({prompts[i], 0, spaces[i].blocks(), true});
    REQUIRE(runner->forward(items, logits).has_value());
  }
  SUBCASE("decode together") {
    std::vector<kv_space> spaces;
    std::vector<batch_item> items;
    for (const auto& p : prompts) {
      spaces.emplace_back(s.options.layout, p.size());
      feed(*runner, spaces.back(), std::span(p).first(p.size() - 1), 512);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const auto start = prompts[i].size() - 1;
      items.push_back(
          {std::span(prompts[i]).last(1), static_cast<std::uint32_t>(start), spaces[i].blocks(), true});
    }
    REQUIRE(runner->forward(items, logits).has_value());
  }
  SUBCASE("decode beside somebody's prefill that wants nothing") {
    const auto other = random_tokens(100, 300, 99);
    const kv_space other_space(s.options.layout, other.size());
    for (std::size_t i = 0; i < n; ++i) {
      const auto start = prompts[i].size() - 1;
      const kv_space kv(s.options.layout, prompts[i].size());
      feed(*runner, kv, std::span(prompts[i]).first(start), 512);
      const std::array items{
          batch_item{other, 0, other_space.blocks(), false},
          batch_item{std::span(prompts[i]).last(1), static_cast<std::uint32_t>(start), kv.blocks(), true}};
      REQUIRE(runner->forward(items, std::span(logits).subspan(i * 300, 300)).has_value());
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    CAPTURE(i);
    CHECK(std::ranges::equal(std::span(logits).subspan(i * 300, 300), expected[i]));
  }
}

TEST_CASE("the logits of every token are those that it has as the last one") {
  const set_up s;
  const auto runner = s.runner();
  const auto ids = random_tokens(45, 300, 5), other = random_tokens(20, 300, 6);
  std::vector<std::vector<float>> expected;
  for (std::size_t n = 1; n <= ids.size(); ++n) {
    const kv_space kv(s.options.layout, ids.size());
    expected.push_back(feed(*runner, kv, std::span(ids).first(n), 512));
  }
  for (const std::size_t chunk : {45u, 16u, 1u}) {
    CAPTURE(chunk);
    const kv_space kv(s.options.layout, ids.size()), beside(s.options.layout, other.size());
    std::vector<float> logits(300);
    std::size_t seen = 0;
    for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
      const auto part = std::span(ids).subspan(begin, std::min(chunk, ids.size() - begin));
      const auto show = [&](std::uint32_t row, std::span<float> shown) {
        REQUIRE(begin + row == seen);
        CHECK(std::ranges::equal(shown, expected[seen++]));
        std::ranges::fill(shown, 0.0f);  // it is ours
      };
      // A neighbour that wants its last row alone must not notice.
      const std::array items{batch_item{other, 0, beside.blocks(), false},
                             batch_item{part, static_cast<std::uint32_t>(begin), kv.blocks(), true, show}};
      REQUIRE(runner->forward(items, logits).has_value());
      CHECK(logits == expected[begin + part.size() - 1]);
    }
    CHECK(seen == ids.size());
  }
}

TEST_CASE_TEMPLATE("hidden states are the same whatever the chunks, and come before the logits of their rows",
                   Kind, on_host, on_linked) {
  const auto s = set_up::of<Kind>();
  const auto runner = s.runner();
  const auto ids = random_tokens(45, 300, 5), other = random_tokens(20, 300, 6);
  std::vector<std::vector<float>> expected;
  for (const std::size_t chunk : {45u, 16u, 1u}) {
    CAPTURE(chunk);
    const kv_space kv(s.options.layout, ids.size()), beside(s.options.layout, other.size());
    std::vector<std::vector<float>> hidden;
    std::size_t rows = 0;
    for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
      const auto part = std::span(ids).subspan(begin, std::min(chunk, ids.size() - begin));
      std::array items{batch_item{other, 0, beside.blocks(), false},
                       batch_item{part, static_cast<std::uint32_t>(begin), kv.blocks(), false}};
      items[1].each_hidden = [&](std::uint32_t row, std::span<const float> values) {
        REQUIRE(begin + row == hidden.size());
        hidden.emplace_back(values.begin(), values.end());
      };
      if (chunk == 16)
        items[1].each_row = [&](std::uint32_t, std::span<float>) { CHECK(hidden.size() > rows++); };
      REQUIRE(runner->forward(items, {}).has_value());
    }
    REQUIRE(hidden.size() == ids.size());
    CHECK(std::ranges::any_of(hidden[0], [](float v) { return v != 0; }));
    CHECK(hidden[0] != hidden[1]);
    if (expected.empty()) expected = hidden;
    CHECK(hidden == expected);
  }
}

TEST_CASE("a prefix from a cache continues as if computed here") {
  const set_up s;
  const auto runner = s.runner();
  auto ids = random_tokens(90, 300, 4);
  const kv_space cold(s.options.layout, ids.size());
  const auto expected = feed(*runner, cold, ids, 512);
  for (const std::size_t cached_blocks : {1u, 3u, 5u}) {
    // The donor computed the same prefix in other chunks, in front of another ending.
    const auto cached = cached_blocks * runner_block_tokens;
    auto donor_ids = ids;
    std::fill(donor_ids.begin() + static_cast<std::ptrdiff_t>(cached), donor_ids.end(), 5);
    const kv_space donor(s.options.layout, ids.size());
    feed(*s.runner(), donor, donor_ids, 13);
    kv_space kv(s.options.layout, ids.size());
    for (std::size_t b = 0; b < cached_blocks; ++b) kv.copy_block(b, donor, s.options.layout);
    CHECK(feed(*runner, kv, std::span(ids).subspan(cached), 512, static_cast<std::uint32_t>(cached)) ==
          expected);
  }
}

TEST_CASE_TEMPLATE("a layer is reported once its KV is final, in order", Kind, on_host, on_linked) {
  const auto s = set_up::of<Kind>();
  const auto runner = s.runner();
  const auto ids = random_tokens(40, 300, 5);
  const auto& layout = s.options.layout;
  const kv_space kv(layout, ids.size());
  std::vector<std::uint32_t> layers;
  std::vector<std::vector<std::byte>> seen;
  const layer_done_fn done = [&](std::uint32_t layer) {
    layers.push_back(layer);
    for (std::size_t b = 0; b < kv.blocks().size(); ++b) {
      const auto part = kv.block(b, layout).subspan(layout.offset(layer, 0, false, 0), layout.layer_bytes());
      seen.emplace_back(part.begin(), part.end());
    }
  };
  SUBCASE("with logits") {
    std::vector<float> logits(300);
    const batch_item item{ids, 0, kv.blocks(), true};
    REQUIRE(runner->forward({&item, 1}, logits, done).has_value());
  }
  SUBCASE("without logits") {
    const batch_item item{ids, 0, kv.blocks(), false};
    REQUIRE(runner->forward({&item, 1}, {}, done).has_value());
  }
  CHECK(layers == std::vector<std::uint32_t>{0, 1, 2});
  std::size_t i = 0;
  for (const auto layer : layers)
    for (std::size_t b = 0; b < kv.blocks().size(); ++b)
      CHECK(same_bytes(seen[i++],
                       kv.block(b, layout).subspan(layout.offset(layer, 0, false, 0), layout.layer_bytes())));
}

TEST_CASE_TEMPLATE("prefix KV may land layer by layer, just before each layer needs it", Kind, on_host,
                   on_linked) {
  const auto s = set_up::of<Kind>();
  const auto runner = s.runner();
  const auto ids = random_tokens(50, 300, 6);
  const auto& layout = s.options.layout;
  const kv_space donor(layout, ids.size());
  const auto expected = feed(*runner, donor, ids, 512);
  const kv_space kv(layout, ids.size());  // all NaN
  const before_layer_fn before = [&](std::uint32_t layer) -> result<void> {
    for (std::size_t b = 0; b < 2; ++b) {
      const auto at = layout.offset(layer, 0, false, 0);
      std::memcpy(kv.blocks()[b] + at, donor.blocks()[b] + at, layout.layer_bytes());
    }
    return {};
  };
  std::vector<float> logits(300);
  const batch_item item{std::span(ids).subspan(2 * runner_block_tokens), 2 * runner_block_tokens, kv.blocks(),
                        true};
  REQUIRE(runner->forward({&item, 1}, logits, {}, nullptr, before).has_value());
  CHECK(logits == expected);
}

TEST_CASE("a pass ends at the next layer when cancelled or when a load fails, and the runner stays usable") {
  const set_up s;
  const auto runner = s.runner();
  const auto ids = random_tokens(20, 300, 7);
  const kv_space kv(s.options.layout, ids.size());
  const auto expected = feed(*runner, kv, ids, 512);
  std::vector<float> logits(300);
  const batch_item item{ids, 0, kv.blocks(), true};
  std::atomic<bool> cancel{false};
  std::uint32_t layers = 0;
  const layer_done_fn done = [&](std::uint32_t layer) {
    ++layers;
    if (layer == 1) cancel = true;
  };
  const auto cancelled = runner->forward({&item, 1}, logits, done, &cancel);
  REQUIRE_FALSE(cancelled.has_value());
  CHECK(cancelled.error() == ec::cancelled);
  CHECK(layers == 2);
  const before_layer_fn broken = [](std::uint32_t layer) -> result<void> {
    if (layer == 1) return fail(ec::peer_lost, "node 7");
    return {};
  };
  const auto lost = runner->forward({&item, 1}, logits, {}, nullptr, broken);
  REQUIRE_FALSE(lost.has_value());
  CHECK(to_string(lost.error()) == "peer lost: node 7");
  CHECK(feed(*runner, kv, ids, 512) == expected);
}

TEST_CASE("a device with memory of its own chooses tokens there, beside items that want logits or none") {
  const auto s = set_up::of<on_linked>();
  const auto runner = s.runner();
  REQUIRE(runner->chooses());
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<std::vector<float>> expected;
  std::vector<kv_space> spaces;
  for (std::uint32_t i = 0; i < 5; ++i) {
    prompts.push_back(random_tokens(9 + 7 * i, 300, 40 + i));
    const kv_space kv(s.options.layout, prompts.back().size());
    expected.push_back(feed(*runner, kv, prompts.back(), 512));
    spaces.emplace_back(s.options.layout, prompts.back().size());
  }
  std::vector<candidate> top(3);
  token_choice greedy, drawn;
  drawn.greedy = false;
  drawn.limits.temperature = 3;
  drawn.u = 0.7;
  drawn.describe = true;
  drawn.top = top;
  std::vector<chosen_token> chosen(5);
  std::vector<batch_item> items;
  for (std::size_t i = 0; i < 5; ++i) items.push_back({prompts[i], 0, spaces[i].blocks()});
  items[0].choose = &greedy;
  items[1].want_logits = true;
  items[3].choose = &drawn;
  items[4].want_logits = true;
  for (auto& item : items) item.chosen = &chosen[static_cast<std::size_t>(&item - items.data())];
  std::vector<float> logits(2 * 300);
  REQUIRE(runner->forward(items, logits).has_value());
  CHECK(std::ranges::equal(std::span(logits).first(300), expected[1]));
  CHECK(std::ranges::equal(std::span(logits).last(300), expected[4]));
  CHECK(chosen[0].id == static_cast<std::int32_t>(testing::argmax(expected[0])));
  std::vector<candidate> want_top(3);
  auto how = drawn;
  how.top = want_top;
  const auto want = choose_token(expected[3], how);
  CHECK(chosen[3].id == want.id);
  CHECK(chosen[3].weights == want.weights);
  std::sort(top.begin(), top.end());
  std::sort(want_top.begin(), want_top.end());
  for (std::size_t i = 0; i < 3; ++i) CHECK(top[i].id == want_top[i].id);

  items[1].choose = &greedy;
  CHECK(runner->forward(items, logits).error().detail.find("batch item 1 has a choice") != std::string::npos);
  const auto host = set_up::of<on_host>();
  items.resize(1);
  CHECK(host.runner()->forward(items, {}).error().detail.find("batch item 0 has a choice") !=
        std::string::npos);
}

TEST_CASE("the device's checksums of filled blocks are those of the host's copies") {
  const auto s = set_up::of<on_linked>();
  const auto runner = s.runner();
  REQUIRE(runner->checks());
  const auto tokens = s.options.layout.block_tokens;
  const auto ids = random_tokens(3 * tokens + 5, 300, 50);
  const kv_space kv(s.options.layout, ids.size()), other(s.options.layout, 5);
  std::vector<std::uint64_t> sums(3);
  const auto feed_part = [&](std::size_t begin, std::size_t end, std::span<std::uint64_t> out) {
    batch_item neighbour{std::span(ids).first(5), 0, other.blocks()};
    batch_item item{std::span(ids).subspan(begin, end - begin), static_cast<std::uint32_t>(begin),
                    kv.blocks()};
    item.checksums = out;
    const std::array items{neighbour, item};
    REQUIRE(runner->forward(items, {}).has_value());
  };
  feed_part(0, tokens + 3, std::span(sums).first(1));
  feed_part(tokens + 3, 2 * tokens - 1, {});
  feed_part(2 * tokens - 1, ids.size(), std::span(sums).last(2));
  for (std::size_t b = 0; b < 3; ++b) CHECK(sums[b] == checksum64(kv.block(b, s.options.layout)));
}

TEST_CASE("a batch that cannot be run is refused with what is wrong") {
  const set_up s(false, kv_dtype::f16, "dummy:layers=1,dim=64,heads=2,ffn=64,vocab=100,ctx=600");
  const auto runner = s.runner();
  const kv_space kv(s.options.layout, 600);
  std::vector<float> logits(100);
  const auto refused = [&](const batch_item& item, std::span<float> out, std::string_view part) {
    const auto done = runner->forward({&item, 1}, out);
    REQUIRE_FALSE(done.has_value());
    INFO(to_string(done.error()));
    CHECK(done.error() == ec::invalid_argument);
    CHECK(done.error().detail.find(part) != std::string::npos);
  };
  const std::vector<std::int32_t> one{1}, negative{1, -1}, high{100}, many(513, 1);
  refused({{}, 0, kv.blocks(), true}, logits, "no tokens");
  refused({negative, 0, kv.blocks(), true}, logits, "token id -1");
  refused({high, 0, kv.blocks(), true}, logits, "token id 100");
  refused({many, 0, kv.blocks(), true}, logits, "513 tokens");
  refused({one, 600, kv.blocks(), true}, logits, "position 601");
  refused({one, 4000000000u, kv.blocks(), true}, logits, "position 4000000001");
  refused({one, 16, kv.blocks().first(1), true}, logits, "2 are needed");
  refused({one, 0, kv.blocks(), true}, {}, "100 are needed");
  refused({one, 0, kv.blocks(), false}, logits, "0 are needed");
  CHECK(runner->forward({}, {}).error() == ec::invalid_argument);
  const std::vector<batch_item> items(9, batch_item{one, 0, kv.blocks(), true});
  logits.resize(900);
  CHECK(runner->forward(items, logits).error().detail.find("at most 8") != std::string::npos);
}

TEST_CASE("a runner refuses a layout of another model") {
  const set_up s;
  auto options = s.options;
  options.layout.n_layers = 7;
  CHECK(model_runner::make(s.m, *s.dev, options).error() == ec::invalid_argument);
  options = s.options;
  options.layout.block_tokens = 0;
  CHECK(model_runner::make(s.m, *s.dev, options).error() == ec::invalid_argument);
  options = s.options;
  options.max_batch_tokens = 0;
  CHECK(model_runner::make(s.m, *s.dev, options).error() == ec::invalid_argument);
}

TEST_CASE_TEMPLATE("runners of one device share it from several threads without changing a bit", Kind,
                   on_host, on_linked) {
  const auto s = set_up::of<Kind>();
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<std::vector<float>> expected;
  for (std::uint32_t i = 0; i < 3; ++i) {
    prompts.push_back(random_tokens(40 + 30 * i, 300, 50 + i));
    const kv_space kv(s.options.layout, prompts.back().size());
    expected.push_back(feed(*s.runner(), kv, prompts.back(), 512));
  }
  std::vector<int> wrong(prompts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    threads.emplace_back([&, i] {
      auto options = s.options;
      options.priority = static_cast<int>(i % 2);
      const auto runner = unwrap(model_runner::make(s.m, *s.dev, options));
      for (int round = 0; round < 5; ++round) {
        const kv_space kv(options.layout, prompts[i].size());
        if (feed(*runner, kv, prompts[i], i == 0 ? 1 : 16) != expected[i]) ++wrong[i];
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == std::vector<int>(prompts.size()));
}

TEST_CASE("a pass allocates nothing once warm") {
  const set_up s;
  const auto runner = s.runner();
  const auto ids = random_tokens(200, 300, 8);
  const kv_space kv(s.options.layout, ids.size());
  std::vector<float> logits(300);
  const auto pass = [&](std::size_t begin, std::size_t n) {
    const batch_item item{std::span(ids).subspan(begin, n), static_cast<std::uint32_t>(begin), kv.blocks(),
                          true};
    return runner->forward({&item, 1}, logits).has_value();
  };
  REQUIRE(pass(0, 100));
  REQUIRE(pass(100, 1));
  const auto before = allocations_of_this_thread();
  const bool fine = pass(0, 100) && pass(100, 1) && pass(101, 1);
  const auto after = allocations_of_this_thread();
  CHECK(fine);
  CHECK(after == before);
}
