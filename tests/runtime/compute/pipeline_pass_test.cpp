#include "runtime/compute/pipeline_pass.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <thread>

#include "gpu/device_failure.hpp"
#include "gpu/linked/linked_device.hpp"
#include "runtime/model/model_runner.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

constexpr std::uint32_t block_tokens = 16;

/// A model on one device, and the same one on the devices of a group.
struct group_world {
  model_config shape;
  std::unique_ptr<device> alone = make_host_device({.threads = 1});
  std::vector<std::unique_ptr<device>> devices;
  std::shared_ptr<const model> whole;
  std::vector<std::shared_ptr<const model>> parts;
  kv_layout layout;

  group_world(std::string_view spec, std::uint32_t stages, bool linked = false)
      : shape(unwrap(dummy_shape(spec))), whole(unwrap(model::dummy(*alone, shape, 1))) {
    layout = whole->layout(block_tokens, kv_dtype::f16);
    for (std::uint32_t i = 0; i < stages; ++i) {
      const host_device_options host{.threads = 1};
      devices.push_back(linked ? unwrap(make_linked_device({host, {std::size_t{4} << 30, {}}, 2}))
                               : make_host_device(host));
      parts.push_back(
          unwrap(model::dummy(*devices.back(), shape, 1, stage_layers(shape.n_layers, stages, i))));
    }
  }

  static runner_options options(const kv_layout& layout) {
    return {.max_batch_tokens = 512, .max_logit_rows = 8, .layout = layout};
  }
  std::unique_ptr<model_runner> one() const {
    return unwrap(model_runner::make(whole, *alone, options(layout)));
  }
  std::vector<std::unique_ptr<pass_stage>> stages() const {
    std::vector<std::unique_ptr<pass_stage>> out;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto o = options(parts[i]->layout(block_tokens, kv_dtype::f16));
      if (!devices[i]->info().host_memory)
        o.device_blocks = unwrap(device_kv::make(*devices[i], o.layout, 20 * o.layout.block_bytes(), 200));
      out.push_back(unwrap(model_runner::make(parts[i], *devices[i], o)));
    }
    return out;
  }
  std::unique_ptr<pipeline_pass> group() const {
    return unwrap(pipeline_pass::make(stages(), {layout, shape.vocab_size, shape.dim}));
  }
};

constexpr std::array staged_families{
    "dummy:layers=5,dim=128,heads=4,kv_heads=2,ffn=320,vocab=300,type=q4_1",
    "dummy:layers=5,dim=128,heads=4,kv_heads=2,ffn=320,vocab=300,type=q8_0,tied=1",
    "dummy:deepseek-v2-lite,layers=5,dim=256,heads=4,ffn=128,vocab=512,type=q4_0",
    "dummy:gpt-oss-20b,layers=5,dim=256,heads=8,kv_heads=2,ffn=128,vocab=512,type=q4_0",
};

}  // namespace

TEST_CASE("layers are divided evenly, and none is left out") {
  for (const std::uint32_t layers : {1u, 2u, 7u, 30u, 61u}) {
    for (std::uint32_t stages = 1; stages <= layers; ++stages) {
      std::uint32_t next = 0;
      for (std::uint32_t i = 0; i < stages; ++i) {
        const auto part = stage_layers(layers, stages, i);
        CHECK(part.first == next);
        CHECK(part.count >= layers / stages);
        CHECK(part.count <= layers / stages + 1);
        next = part.end();
      }
      CHECK(next == layers);
    }
  }
}

TEST_CASE("a group of any size gives the bits of one device, KV and logits, in chunks of any size") {
  for (const auto spec : staged_families) {
    CAPTURE(spec);
    const auto ids = random_tokens(90, 300, 3);
    for (const std::uint32_t size : {1u, 2u, 3u, 5u}) {
      CAPTURE(size);
      const group_world w(spec, size);
      const auto one = w.one();
      const kv_space expected_kv(w.layout, ids.size()), kv(w.layout, ids.size());
      const auto expected = feed(*one, expected_kv, ids, 90);
      const auto group = w.group();
      CHECK(group->stages() == size);
      CHECK(feed(*group, kv, ids, size == 2 ? 33 : 16) == expected);
      CHECK(same_kv(kv, expected_kv, w.layout));
    }
  }
}

TEST_CASE("stages whose devices have memory of their own give the same bits") {
  const group_world w(staged_families[0], 3, true);
  const auto ids = random_tokens(150, 300, 4);
  const kv_space expected_kv(w.layout, ids.size()), kv(w.layout, ids.size());
  const auto expected = feed(*w.one(), expected_kv, ids, 150);
  const auto group = w.group();
  CHECK(feed(*group, kv, ids, 48) == expected);
  CHECK(same_kv(kv, expected_kv, w.layout));
}

TEST_CASE("a part of a model has the whole one's identity and takes its share of the memory") {
  const group_world w(staged_families[0], 5);
  for (const auto& part : w.parts) {
    CHECK(part->fingerprint() == w.whole->fingerprint());
    CHECK(part->config().n_layers == 1);
  }
  CHECK(w.parts.front()->embeds());
  CHECK(!w.parts.front()->makes_logits());
  CHECK(!w.parts.back()->embeds());
  CHECK(w.parts.back()->makes_logits());
}

TEST_CASE("layers are told in order, those of a batch's every item, and each row is shown once") {
  const group_world w(staged_families[0], 3);
  const auto group = w.group();
  const auto one = w.one();
  const std::array prompts{random_tokens(40, 300, 1), random_tokens(70, 300, 2)};
  const auto pass = [&](forward_pass& p) {
    std::vector<std::uint32_t> before, done, rows;
    std::vector<float> logits(2 * w.shape.vocab_size), sums;
    const kv_space a(w.layout, 40), b(w.layout, 70);
    std::array items{batch_item{prompts[0], 0, a.blocks(), true},
                     batch_item{prompts[1], 0, b.blocks(), true}};
    items[1].each_row = [&](std::uint32_t row, std::span<float> of) {
      rows.push_back(row);
      sums.push_back(of[7]);
    };
    items[0].each_hidden = [&](std::uint32_t, std::span<const float> values) { sums.push_back(values[3]); };
    CHECK(p.forward(
               items, logits, [&](std::uint32_t layer) { done.push_back(layer); }, nullptr,
               [&](std::uint32_t layer) -> result<void> {
                 before.push_back(layer);
                 return {};
               })
              .has_value());
    CHECK(before == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
    CHECK(done == before);
    CHECK(rows.size() == 70);
    CHECK(sums.size() == 110);
    logits.insert(logits.end(), sums.begin(), sums.end());
    return logits;
  };
  CHECK(pass(*group) == pass(*one));
}

namespace {

/// Waits in a stage until the test lets it go on.
class held_stage final : public pass_stage {
 public:
  struct gate {
    std::mutex mutex;
    std::condition_variable changed;
    int open = 0, inside = 0;
    std::vector<std::int32_t> order;
  };
  held_stage(std::unique_ptr<pass_stage> inner, gate& g) : inner_(std::move(inner)), gate_(g) {}
  result<void> run(const stage_work& work) override {
    {
      std::unique_lock lock{gate_.mutex};
      ++gate_.inside;
      gate_.order.push_back(static_cast<std::int32_t>(work.items.front().start));
      gate_.changed.notify_all();
      gate_.changed.wait(lock, [&] { return gate_.open > 0; });
      --gate_.open;
      --gate_.inside;
    }
    return inner_->run(work);
  }
  layer_range layers() const noexcept override { return inner_->layers(); }
  const kv_layout& layout() const noexcept override { return inner_->layout(); }
  bool chooses() const noexcept override { return inner_->chooses(); }

 private:
  std::unique_ptr<pass_stage> inner_;
  gate& gate_;
};

void let_through(held_stage::gate& g, int count) {
  const std::lock_guard lock{g.mutex};
  g.open += count;
  g.changed.notify_all();
}

void await_inside(held_stage::gate& g, int count) {
  std::unique_lock lock{g.mutex};
  g.changed.wait(lock, [&] { return g.inside == count; });
}

}  // namespace

TEST_CASE("a prompt's chunks are at several stages at once, and come out in order with the same bits") {
  const group_world w(staged_families[0], 3);
  const auto ids = random_tokens(96, 300, 6);
  const kv_space expected_kv(w.layout, ids.size()), kv(w.layout, ids.size());
  const auto expected = feed(*w.one(), expected_kv, ids, 96);

  std::array<held_stage::gate, 3> gates;
  auto stages = w.stages();
  for (std::size_t i = 0; i < 3; ++i)
    stages[i] = std::make_unique<held_stage>(std::move(stages[i]), gates[i]);
  const auto group =
      unwrap(pipeline_pass::make(std::move(stages), {w.layout, w.shape.vocab_size, w.shape.dim}));
  held_stage::gate free;
  group->when_free([&] {
    const std::lock_guard lock{free.mutex};
    ++free.inside;
    free.changed.notify_all();
  });
  std::vector<float> logits(w.shape.vocab_size);
  std::vector<std::jthread> passes;
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
    passes.emplace_back([&, chunk] {
      const batch_item item{std::span(ids).subspan(32 * chunk, 32), 32 * chunk, kv.blocks(), chunk == 2};
      CHECK(group->forward({&item, 1}, chunk == 2 ? std::span{logits} : std::span<float>{}).has_value());
    });
    if (chunk == 2) break;
    let_through(gates[0], 1);
    await_inside(free, static_cast<int>(chunk) + 1);
    if (chunk == 0) let_through(gates[1], 1);
  }
  // The first is at the last stage, the second behind it, the third at the first one.
  for (auto& gate : gates) await_inside(gate, 1);
  for (auto& gate : gates) let_through(gate, 3);
  passes.clear();
  CHECK(logits == expected);
  CHECK(same_kv(kv, expected_kv, w.layout));
  for (const auto& gate : gates) CHECK(gate.order == std::vector<std::int32_t>{0, 32, 64});
}

TEST_CASE("a pass that is cancelled or fails at a stage holds up none behind it") {
  const group_world w(staged_families[0], 3);
  const auto group = w.group();
  int freed = 0;
  group->when_free([&] { ++freed; });
  const auto ids = random_tokens(40, 300, 9);
  const kv_space kv(w.layout, 40);
  std::vector<float> logits(w.shape.vocab_size);
  const batch_item item{ids, 0, kv.blocks(), true};
  for (const std::uint32_t at : {0u, 2u, 4u}) {
    std::vector<std::uint32_t> seen;
    const auto outcome =
        group->forward({&item, 1}, logits, {}, nullptr, [&](std::uint32_t layer) -> result<void> {
          seen.push_back(layer);
          if (layer == at) return fail(ec::timed_out, "no prefix");
          return {};
        });
    CHECK(outcome.error() == ec::timed_out);
    CHECK(seen.back() == at);
  }
  const std::atomic<bool> cancelled{true};
  CHECK(group->forward({&item, 1}, logits, {}, &cancelled).error() == ec::cancelled);
  CHECK_THROWS_AS((void)group->forward({&item, 1}, logits, {}, nullptr,
                                       [](std::uint32_t layer) -> result<void> {
                                         if (layer == 3) throw device_failure{"it burns"};
                                         return {};
                                       }),
                  device_failure);
  CHECK(freed == 5);
  CHECK(group->forward({&item, 1}, logits).has_value());
}

TEST_CASE("stages that do not belong together are refused, and a stage alone computes no pass") {
  const group_world w(staged_families[0], 2);
  const pipeline_shape shape{w.layout, w.shape.vocab_size, w.shape.dim};
  auto twice = w.stages();
  twice.pop_back();
  twice.push_back(std::move(w.stages().front()));
  CHECK(pipeline_pass::make(std::move(twice), shape).error() == ec::invalid_argument);
  auto missing = w.stages();
  missing.pop_back();
  CHECK(pipeline_pass::make(std::move(missing), shape).error() == ec::invalid_argument);
  CHECK(pipeline_pass::make({}, shape).error() == ec::invalid_argument);
  const auto ids = random_tokens(8, 300, 1);
  const kv_space kv(w.layout, 8);
  std::vector<float> logits(w.shape.vocab_size);
  const batch_item item{ids, 0, kv.blocks(), true};
  const auto half =
      unwrap(model_runner::make(w.parts.front(), *w.devices.front(),
                                group_world::options(w.parts.front()->layout(block_tokens, kv_dtype::f16))));
  CHECK(half->forward({&item, 1}, logits).error() == ec::invalid_argument);
}
