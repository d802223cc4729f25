// Steps of decoding as graphs: the same bits, in few calls of the driver.

#include <doctest/doctest.h>

#include <array>

#include "gpu/cuda/cuda_device.hpp"
#include "tests/gpu/cuda/counting_accelerator.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

constexpr std::uint32_t vocab = 200;

struct served {
  counting_accelerator::counts seen;
  std::unique_ptr<device> dev;
  std::shared_ptr<const model> m;
  runner_options options;
  std::unique_ptr<model_runner> runner;

  served(std::string_view spec, bool graphs)
      : dev(mooncaf::cuda::make_device(std::make_unique<counting_accelerator>(seen, graphs), 1)) {
    m = unwrap(model::dummy(*dev, unwrap(dummy_shape(spec)), 1));
    options.layout = m->layout(16, kv_dtype::f16);
    options.max_logit_rows = 4;
    options.device_blocks =
        unwrap(device_kv::make(*dev, options.layout, 80 * options.layout.block_bytes(), 320));
    runner = unwrap(model_runner::make(m, *dev, options));
  }

  /// As the arena is.
  void pin(const kv_space& kv) {
    for (auto* const block : kv.blocks())
      REQUIRE(dev->pin({block, options.layout.block_bytes()}, nullptr).has_value());
  }

  /// One step of all sequences; each token follows from what was fed. @returns the tokens chosen.
  std::vector<std::int32_t> step(std::span<const kv_space* const> where,
                                 std::span<const std::uint32_t> lengths,
                                 std::span<const std::int32_t> tokens) {
    const token_choice greedy;
    std::vector<chosen_token> chosen(where.size());
    std::vector<batch_item> items;
    for (std::size_t i = 0; i < where.size(); ++i) {
      batch_item item{tokens.subspan(i, 1), lengths[i], where[i]->blocks()};
      item.sequence = 100 + i;
      item.choose = &greedy;
      item.chosen = &chosen[i];
      items.push_back(item);
    }
    const auto done = runner->forward(items, {});
    REQUIRE_MESSAGE(done, to_string(done.error()));
    std::vector<std::int32_t> out;
    for (const auto& c : chosen) out.push_back(c.id);
    return out;
  }
};

/// Three answers that begin and end at different times, one of which passes the border of a split.
std::vector<std::int32_t> answers(served& s) {
  const std::array prompts{random_tokens(250, vocab, 1), random_tokens(14, vocab, 2),
                           random_tokens(31, vocab, 3)};
  const std::array<std::uint32_t, 3> from{0, 2, 6}, until{14, 12, 10};
  std::vector<std::unique_ptr<kv_space>> spaces;
  std::array<std::uint32_t, 3> lengths{};
  std::array<std::int32_t, 3> last{};
  for (std::size_t i = 0; i < 3; ++i) {
    spaces.push_back(std::make_unique<kv_space>(s.options.layout, 320));
    s.pin(*spaces[i]);
    const auto logits = feed(*s.runner, *spaces[i], prompts[i], 512);
    lengths[i] = static_cast<std::uint32_t>(prompts[i].size());
    last[i] = static_cast<std::int32_t>(argmax(logits));
  }
  std::vector<std::int32_t> all;
  for (std::uint32_t n = 0; n < 14; ++n) {
    std::vector<const kv_space*> where;
    std::vector<std::uint32_t> at;
    std::vector<std::int32_t> tokens;
    std::vector<std::size_t> who;
    for (std::size_t i = 0; i < 3; ++i) {
      if (n < from[i] || n >= until[i]) continue;
      who.push_back(i);
      where.push_back(spaces[i].get());
      at.push_back(lengths[i]);
      tokens.push_back(last[i]);
    }
    const auto chosen = s.step(where, at, tokens);
    for (std::size_t k = 0; k < who.size(); ++k) {
      last[who[k]] = chosen[k];
      ++lengths[who[k]];
      all.push_back(chosen[k]);
    }
  }
  for (const auto& space : spaces)
    for (const auto* block : space->blocks())
      for (std::size_t i = 0; i < s.options.layout.block_bytes(); i += 64)
        all.push_back(std::to_integer<int>(block[i]));
  return all;
}

}  // namespace

TEST_CASE("answers and their KV are the same with graphs and without, whoever joins and leaves a batch") {
  for (const auto* spec : {"dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=192,vocab=200,type=q4_1,ctx=400",
                           "dummy:gpt-oss-20b,layers=2,dim=64,heads=2,kv_heads=1,head_dim=32,ffn=32,vocab="
                           "200,type=q8_0,ctx=400"}) {
    CAPTURE(spec);
    served with(spec, true), without(spec, false);
    CHECK(answers(with) == answers(without));
    CHECK(without.seen.graphs == 0);
    CHECK(with.seen.graphs > 0);
  }
}

TEST_CASE("a step of decoding costs few calls of the driver, however many layers there are") {
  std::array<int, 2> with{}, without{};
  for (const int layers : {2, 6}) {
    for (const bool graphs : {true, false}) {
      served s("dummy:layers=" + std::to_string(layers) +
                   ",dim=64,heads=2,kv_heads=1,ffn=96,vocab=200,type=q8_0,ctx=400",
               graphs);
      const auto prompt = random_tokens(20, vocab, 4);
      const kv_space kv(s.options.layout, 64);
      s.pin(kv);
      auto token = static_cast<std::int32_t>(argmax(feed(*s.runner, kv, prompt, 512)));
      const std::array where{&kv};
      for (std::uint32_t n = 0; n < 6; ++n) {
        s.seen = {};
        const std::array at{20 + n};
        token = s.step(where, at, {&token, 1})[0];
      }
      CHECK(s.seen.changes == 0);
      CHECK(s.seen.made == 0);
      (graphs ? with : without)[layers == 6] = s.seen.calls();
    }
  }
  CHECK(with[0] == with[1]);
  CHECK(without[1] - without[0] >= 4 * 14);
  MESSAGE("calls of the driver per step, 2 and 6 layers: "
          << without[0] << " and " << without[1] << ", with graphs " << with[0] << " and " << with[1]);
}
