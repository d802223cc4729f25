#include "runtime/compute/tensor_pass.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "gpu/device_failure.hpp"
#include "gpu/linked/linked_device.hpp"
#include "runtime/compute/pipeline_pass.hpp"
#include "runtime/compute/shared_exchange.hpp"
#include "runtime/model/model_runner.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

constexpr std::uint32_t shared_block_tokens = 16;

/// A rank that fails in the pass that it is told to.
class mortal_rank final : public pass_stage {
 public:
  mortal_rank(std::unique_ptr<pass_stage> of, std::shared_ptr<std::atomic<bool>> dies)
      : of_(std::move(of)), dies_(std::move(dies)) {}
  result<void> run(const stage_work& work) override {
    if (*dies_) throw device_failure("this rank has no memory left");
    return of_->run(work);
  }
  layer_range layers() const noexcept override { return of_->layers(); }
  tensor_part part() const noexcept override { return of_->part(); }
  const kv_layout& layout() const noexcept override { return of_->layout(); }
  bool chooses() const noexcept override { return of_->chooses(); }

 private:
  std::unique_ptr<pass_stage> of_;
  std::shared_ptr<std::atomic<bool>> dies_;
};

/// A model on one device, and the same one divided among the ranks of a group, in stages if there are several.
struct tensor_world {
  model_config shape;
  std::unique_ptr<device> alone = make_host_device({.threads = 1});
  std::vector<std::unique_ptr<device>> devices;
  std::shared_ptr<const model> whole;
  std::vector<std::shared_ptr<const model>> shares;  ///< of the first stage, then of the next
  std::uint32_t ranks, stages;
  kv_layout layout;
  bool linked;
  std::vector<std::shared_ptr<device_kv>> device_blocks;  ///< of linked devices
  std::vector<std::shared_ptr<shared_exchange>> shared;   ///< … by stage: all passes take turns
  std::shared_ptr<std::atomic<bool>> dies = std::make_shared<std::atomic<bool>>(false);

  tensor_world(std::string_view spec, std::uint32_t of, std::uint32_t parts = 1,
               kv_dtype dtype = kv_dtype::f16, bool whole_experts = false, bool own_memory = false)
      : shape(unwrap(dummy_shape(spec))),
        whole(unwrap(model::dummy(*alone, shape, 1))),
        ranks(of),
        stages(parts),
        layout(whole->layout(shared_block_tokens, dtype)),
        linked(own_memory) {
    REQUIRE(check_tensor(shape, of, whole_experts));
    for (std::uint32_t i = 0; i < stages * ranks; ++i) {
      const host_device_options host{.threads = 1};
      devices.push_back(linked ? unwrap(make_linked_device({host, {std::size_t{4} << 30, {}}, 2}))
                               : make_host_device(host));
      shares.push_back(
          unwrap(model::dummy(*devices.back(), shape, 1, stage_layers(shape.n_layers, stages, i / ranks),
                              {i % ranks, ranks, whole_experts})));
      if (!linked) continue;
      const auto& share = *shares.back();
      auto own = layout;
      own.n_layers = share.part().count;
      device_blocks.push_back(
          unwrap(device_kv::make(*devices.back(), layout_of_share(own, share.share()).compact(),
                                 14 * layout.block_bytes(), 14 * shared_block_tokens)));
    }
    for (std::uint32_t i = 0; i < stages; ++i) shared.push_back(shared_exchange::make(ranks, 4096, true));
  }

  static runner_options options(const kv_layout& l) {
    return {.max_batch_tokens = 512, .max_logit_rows = 8, .layout = l};
  }
  std::unique_ptr<model_runner> one() const {
    return unwrap(model_runner::make(whole, *alone, options(layout)));
  }

  std::unique_ptr<pass_stage> stage(std::uint32_t index) const {
    const auto exchange = linked ? shared[index] : shared_exchange::make(ranks, 4096);
    std::vector<std::unique_ptr<pass_stage>> made;
    auto own = layout;
    own.n_layers = shares[index * ranks]->part().count;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const auto at = index * ranks + r;
      auto o = options(own);
      o.layout = layout_of_share(own, shares[at]->share());
      o.exchange = exchange->end(r);
      if (linked) o.device_blocks = device_blocks[at];
      std::unique_ptr<pass_stage> runner = unwrap(model_runner::make(shares[at], *devices[at], o));
      if (r == 1) runner = std::make_unique<mortal_rank>(std::move(runner), dies);
      made.push_back(std::move(runner));
    }
    return unwrap(tensor_pass::make(std::move(made), exchange, own, shape.vocab_size));
  }
  std::unique_ptr<pipeline_pass> group() const {
    std::vector<std::unique_ptr<pass_stage>> all;
    for (std::uint32_t i = 0; i < stages; ++i) all.push_back(stage(i));
    return unwrap(pipeline_pass::make(std::move(all), {layout, shape.vocab_size, shape.dim}));
  }
};

struct family {
  const char* spec;
  std::vector<std::uint32_t> sizes;
};

const std::array families{
    family{"dummy:layers=3,dim=128,heads=4,kv_heads=2,ffn=320,vocab=300,type=q4_1", {2, 4}},
    family{"dummy:layers=3,dim=96,heads=6,kv_heads=3,ffn=200,vocab=301,type=f32,tied=1", {3, 6}},
    family{"dummy:layers=3,dim=128,heads=4,kv_heads=1,ffn=352,vocab=300,type=q8_0,tied=1", {2, 4}},
    family{"dummy:deepseek-v2-lite,layers=3,dim=256,heads=4,ffn=128,vocab=512,type=q4_0", {2, 4}},
    family{"dummy:gpt-oss-20b,layers=3,dim=256,heads=8,kv_heads=2,ffn=128,vocab=512,type=q4_0", {2, 8}},
};

}  // namespace

TEST_CASE("a tensor group of any size gives the bits of one device, KV and logits, in chunks of any size") {
  for (const auto& [spec, sizes] : families) {
    CAPTURE(spec);
    const auto ids = random_tokens(90, 300, 3);
    for (const auto size : sizes) {
      CAPTURE(size);
      const tensor_world w(spec, size);
      const auto one = w.one();
      const auto group = w.group();
      const kv_space expected_kv(w.layout, ids.size()), kv(w.layout, ids.size());
      CHECK(feed(*group, kv, ids, size == 2 ? 33 : 16) == feed(*one, expected_kv, ids, 90));
      CHECK(same_kv(kv, expected_kv, w.layout));
    }
  }
}

TEST_CASE("stages of tensor groups give the same bits, in any format of KV") {
  for (const auto dtype : {kv_dtype::f16, kv_dtype::int8, kv_dtype::k8v4}) {
    const tensor_world w(families[0].spec, 2, 3, dtype);
    const auto ids = random_tokens(120, 300, 4);
    const kv_space expected_kv(w.layout, ids.size()), kv(w.layout, ids.size());
    const auto expected = feed(*w.one(), expected_kv, ids, 120);
    CHECK(feed(*w.group(), kv, ids, 48) == expected);
    CHECK(same_kv(kv, expected_kv, w.layout));
  }
}

TEST_CASE("ranks that divide a mixture's experts give the same bits, and hold none of each other's") {
  for (const auto* spec :
       {families[3].spec, families[4].spec,
        "dummy:gpt-oss-20b,layers=2,dim=256,heads=6,kv_heads=2,ffn=128,vocab=512,type=f32"}) {
    CAPTURE(spec);
    const auto ids = random_tokens(600, 300, 3);  // more than a tile of the feed-forward part
    const auto shape = unwrap(dummy_shape(spec));
    const std::uint32_t size = shape.n_heads % 4 == 0 ? 4 : 2;
    const tensor_world w(spec, size, 1, kv_dtype::f16, true);
    for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer)
      for (std::uint32_t e = 0; shape.has_experts(layer) && e < shape.n_experts; ++e) {
        std::size_t holders = 0;
        for (const auto& net : w.shares) {
          const auto& expert = net->layer(layer).ffn[e];
          holders += expert.down != nullptr;
          if (expert.down) CHECK(expert.down->rows() == shape.dim);
        }
        CHECK(holders == 1);
      }
    const auto one = w.one();
    const auto group = w.group();
    const kv_space expected_kv(w.layout, ids.size()), kv(w.layout, ids.size());
    CHECK(feed(*group, kv, ids, 512) == feed(*one, expected_kv, ids, 512));
    CHECK(same_kv(kv, expected_kv, w.layout));
    const kv_space step_kv(w.layout, 40);
    const kv_space step_expected(w.layout, 40);
    CHECK(feed(*group, step_kv, std::span(ids).first(40), 1) ==
          feed(*one, step_expected, std::span(ids).first(40), 1));
  }
}

TEST_CASE("ranks on devices with memory of their own give the bits of one device") {
  for (const auto& [spec, sizes] : families) {
    CAPTURE(spec);
    for (const bool whole_experts : {false, true}) {
      if (whole_experts && unwrap(dummy_shape(spec)).n_experts == 0) continue;
      const tensor_world w(spec, sizes.front(), 2, kv_dtype::f16, whole_experts, true);
      const auto ids = random_tokens(150, 300, 3);
      const auto one = w.one();
      const auto group = w.group();
      const kv_space expected_kv(w.layout, ids.size()), kv(w.layout, ids.size());
      CHECK(feed(*group, kv, std::span(ids).first(140), 48) ==
            feed(*one, expected_kv, std::span(ids).first(140), 140));
      CHECK(feed(*group, kv, std::span(ids).last(10), 1, 140) ==
            feed(*one, expected_kv, std::span(ids).last(10), 1, 140));
      CHECK(same_kv(kv, expected_kv, w.layout));
      const auto another = w.group();  // has nothing on its devices but what the first one's passes left
      std::vector<float> logits(w.shape.vocab_size);
      CHECK(feed(*another, kv, std::span(ids).last(1), 1, 149) ==
            feed(*one, expected_kv, std::span(ids).last(1), 1, 149));
    }
  }
}

TEST_CASE("passes of several workers share the devices of a group, however little memory they have") {
  const tensor_world w(families[0].spec, 2, 1, kv_dtype::f16, false, true);
  const auto ids = random_tokens(200, 300, 9);
  const kv_space expected_kv(w.layout, 200);
  const auto expected = feed(*w.one(), expected_kv, ids, 200);
  std::vector<std::jthread> workers;
  std::atomic<int> wrong = 0;
  for (int k = 0; k < 3; ++k)
    workers.emplace_back([&] {
      const auto group = w.group();
      const kv_space kv(w.layout, 200);
      for (int i = 0; i < 4; ++i)
        if (feed(*group, kv, ids, 40) != expected) ++wrong;
    });
  workers.clear();
  CHECK(wrong == 0);
}

TEST_CASE("a share of a model has the whole one's identity and a part of every matrix") {
  const tensor_world w(families[0].spec, 4);
  for (const auto& share : w.shares) {
    CHECK(share->fingerprint() == w.whole->fingerprint());
    const auto &own = share->layer(0), &all = w.whole->layer(0);
    CHECK(own.q->rows() * 4 == all.q->rows());
    CHECK(own.k->rows() * 2 == all.k->rows());  // two ranks have one KV head
    CHECK(own.attention_out->rows() * 4 == all.attention_out->rows());
    CHECK(own.ffn[0].gate->rows() * 4 == all.ffn[0].gate->rows());
    CHECK(own.ffn[0].down->rows() * 4 == all.ffn[0].down->rows());
    CHECK(share->output().rows() * 4 == w.whole->output().rows());
  }
}

TEST_CASE("requests of one pass, their rows and hidden states are those of one device") {
  const tensor_world w(families[4].spec, 2);
  const auto group = w.group();
  const auto one = w.one();
  const std::array prompts{random_tokens(40, 300, 1), random_tokens(70, 300, 2)};
  const auto pass = [&](forward_pass& p) {
    std::vector<float> logits(2 * w.shape.vocab_size), seen;
    std::vector<std::uint32_t> done;
    const kv_space a(w.layout, 40), b(w.layout, 70);
    std::array items{batch_item{prompts[0], 0, a.blocks(), true},
                     batch_item{prompts[1], 0, b.blocks(), true}};
    items[1].each_row = [&](std::uint32_t, std::span<float> of) { seen.push_back(of[7]); };
    items[0].each_hidden = [&](std::uint32_t, std::span<const float> values) { seen.push_back(values[3]); };
    REQUIRE(p.forward(items, logits, [&](std::uint32_t layer) { done.push_back(layer); }));
    CHECK(done == std::vector<std::uint32_t>{0, 1, 2});
    return std::pair{logits, seen};
  };
  CHECK(pass(*group) == pass(*one));
}

TEST_CASE("when a layer is told, the heads of all ranks are in the blocks") {
  const tensor_world w(families[0].spec, 4);
  const auto ids = random_tokens(64, 300, 5);
  const kv_space expected(w.layout, 64), kv(w.layout, 64);
  std::vector<float> logits(w.shape.vocab_size);
  batch_item item{ids, 0, expected.blocks(), true};
  REQUIRE(w.one()->forward({&item, 1}, logits));
  const auto group = w.group();
  item.blocks = kv.blocks();
  REQUIRE(group->forward({&item, 1}, logits, [&](std::uint32_t layer) {
    for (std::size_t b = 0; b < kv.blocks().size(); ++b) {
      const auto at = layer * w.layout.layer_bytes(), n = w.layout.layer_bytes();
      CHECK(std::ranges::equal(kv.block(b, w.layout).subspan(at, n),
                               expected.block(b, w.layout).subspan(at, n)));
    }
  }));
}

TEST_CASE("a pass that is cancelled, or whose prefix fails, ends at all ranks, and the next one is right") {
  const tensor_world w(families[0].spec, 4);
  const auto group = w.group();
  const auto ids = random_tokens(64, 300, 6);
  const kv_space expected_kv(w.layout, 64), kv(w.layout, 64);
  const auto expected = feed(*w.one(), expected_kv, ids, 64);
  std::vector<float> logits(w.shape.vocab_size);
  const batch_item item{ids, 0, kv.blocks(), true};
  for (std::uint32_t at = 0; at < 3; ++at) {
    std::atomic<bool> cancel = false;
    const auto stop = [&](std::uint32_t layer) -> result<void> {
      cancel = layer == at;
      return {};
    };
    CHECK(group->forward({&item, 1}, logits, {}, &cancel, stop).has_value() ==
          (at == 2));  // behind the last layer
    const auto lost =
        group->forward({&item, 1}, logits, {}, nullptr, [&](std::uint32_t layer) -> result<void> {
          if (layer == at) return fail(ec::peer_lost, "the source is gone");
          return {};
        });
    REQUIRE(!lost);
    CHECK(lost.error() == ec::peer_lost);
    CHECK(feed(*group, kv, ids, 32) == expected);
  }
  batch_item wrong = item;
  const std::vector<std::int32_t> bad{1, 2, 9999};
  wrong.tokens = bad;
  CHECK(!group->forward({&wrong, 1}, logits));
  CHECK(feed(*group, kv, ids, 64) == expected);
}

TEST_CASE("a rank that fails is the group's failure, with its reason, and nobody waits for it") {
  for (const bool own_memory : {false, true}) {
    const tensor_world w(families[0].spec, 4, 1, kv_dtype::f16, false, own_memory);
    const auto group = w.group();
    const auto ids = random_tokens(20, 300, 7);
    const kv_space kv(w.layout, 20);
    const auto expected = feed(*group, kv, ids, 20);
    for (int i = 0; i < 20; ++i) {
      *w.dies = true;
      std::vector<float> logits(w.shape.vocab_size);
      const batch_item item{ids, 0, kv.blocks(), true};
      CHECK_THROWS_WITH_AS((void)group->forward({&item, 1}, logits), "this rank has no memory left",
                           device_failure);
      *w.dies = false;
      CHECK(feed(*group, kv, ids, 20) == expected);
    }
  }
}

TEST_CASE("two passes of one group's devices, prefill and decode, never wait for each other's turns") {
  const tensor_world w(families[0].spec, 2);
  const auto prefill = w.group(), decode = w.group();
  const auto ids = random_tokens(60, 300, 8);
  const kv_space kv(w.layout, 60), other(w.layout, 60);
  const auto expected = feed(*prefill, kv, ids, 60);
  std::thread beside([&] {
    for (int i = 0; i < 30; ++i) CHECK(feed(*decode, other, ids, 1) == expected);
  });
  for (int i = 0; i < 60; ++i) CHECK(feed(*prefill, kv, ids, 20) == expected);
  beside.join();
}

TEST_CASE("a model whose heads cannot be shared is refused with what it has") {
  const auto shape = unwrap(dummy_shape("dummy:layers=1,dim=96,heads=6,kv_heads=3,ffn=64,vocab=300"));
  CHECK(check_tensor(shape, 3));
  CHECK(check_tensor(shape, 4).error().detail.starts_with(
      "tensor: 4 ranks cannot share the model's 6 attention heads"));
  CHECK(check_tensor(shape, 2).error().detail.starts_with(
      "tensor: 2 ranks cannot share the model's 3 KV heads"));
}
