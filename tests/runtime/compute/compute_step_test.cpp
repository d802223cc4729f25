// What a worker's step asks of its forward pass, and what becomes of the answer.

#include "runtime/compute/compute_step.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "gpu/host/vocab_ops.hpp"

using namespace mooncaf;

namespace {

constexpr std::size_t vocab = 50;

/// Gives the sequence that begins with token t the logits i·t mod 7, where it is asked to.
class pass_that_chooses final : public forward_pass {
 public:
  explicit pass_that_chooses(bool chooses) : chooses_(chooses) {}

  static std::vector<float> logits_of(std::int32_t token) {
    std::vector<float> out(vocab);
    for (std::size_t i = 0; i < vocab; ++i)
      out[i] = static_cast<float>((i * static_cast<std::size_t>(token)) % 7);
    return out;
  }
  result<void> forward(std::span<const batch_item> items, std::span<float> logits, const layer_done_fn&,
                       const std::atomic<bool>*, const before_layer_fn&) override {
    floats_out = logits.size();
    for (const auto& item : items) {
      auto row = logits_of(item.tokens[0]);
      for (auto& sum : item.checksums) sum = 1000 + static_cast<std::uint64_t>(item.tokens[0]);
      if (item.choose != nullptr) *item.chosen = choose_token(row, *item.choose);
      if (!item.want_logits) continue;
      std::ranges::copy(row, logits.begin());
      logits = logits.subspan(vocab);
    }
    return {};
  }
  bool checks() const noexcept override { return chooses_; }
  bool chooses() const noexcept override { return chooses_; }
  const kv_layout& layout() const noexcept override { return layout_; }
  std::size_t vocab_size() const noexcept override { return vocab; }

  std::size_t floats_out = 0;

 private:
  bool chooses_;
  kv_layout layout_{1, 1, 8, 16, kv_dtype::f16};
};

std::vector<sampling_params> requests() {
  std::vector<sampling_params> all(4);
  all[0].temperature = 0;
  all[1].seed = 3;
  all[1].top_k = 5;
  all[1].logprobs = 2;
  all[2].allowed_token_ids = {8, 11};  // a mask: the host's
  all[3].repetition_penalty = 1.5f;
  all[3].seed = 9;
  return all;
}

struct run {
  std::vector<sampled_token> tokens;
  std::vector<std::uint32_t> positions;
  std::size_t floats_out;
};

run step(bool chooses) {
  auto machine = std::make_shared<engine>();
  auto pass = std::make_unique<pass_that_chooses>(chooses);
  const auto& seen = *pass;
  machine->runner = std::move(pass);
  static constexpr std::array<std::int32_t, 4> tokens{2, 3, 5, 6};
  std::vector<step_item> items;
  for (std::size_t i = 0; i < 4; ++i) {
    step_item item;
    item.tokens = std::span{tokens}.subspan(i, 1);
    item.sample =
        std::make_shared<sampler>(requests()[i], item.tokens, std::span<const std::int32_t>{}, vocab);
    items.push_back(std::move(item));
  }
  compute_step task(machine, std::move(items));
  task.run();
  REQUIRE(task.outcome().code == ec::none);
  run out{{}, {}, seen.floats_out};
  for (const auto& item : task.items()) {
    REQUIRE(item.token.has_value());
    out.tokens.push_back(*item.token);
    out.positions.push_back(item.sample->position());
  }
  return out;
}

}  // namespace

TEST_CASE("where the pass chooses, logits leave it for masks alone, and the tokens are the same") {
  const auto here = step(false), there = step(true);
  CHECK(here.floats_out == 4 * vocab);
  CHECK(there.floats_out == 1 * vocab);
  CHECK(there.positions == std::vector<std::uint32_t>(4, 1));
  for (std::size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    CHECK(there.tokens[i].id == here.tokens[i].id);
    CHECK(there.tokens[i].logprob == here.tokens[i].logprob);
    CHECK(there.tokens[i].top == here.tokens[i].top);
  }
}

TEST_CASE("blocks that a step fills are checksummed where the pass does it, or in the host's memory") {
  for (const bool there : {false, true}) {
    auto machine = std::make_shared<engine>();
    machine->runner = std::make_unique<pass_that_chooses>(there);
    const auto bytes = machine->runner->layout().block_bytes();
    std::vector<std::vector<std::byte>> memory(3, std::vector<std::byte>(bytes, std::byte{5}));
    memory[1].assign(bytes, std::byte{6});
    std::vector<std::byte*> blocks;
    for (auto& m : memory) blocks.push_back(m.data());
    const std::vector<std::int32_t> tokens(20, 4);
    std::vector<step_item> items(2);
    for (auto& item : items) {
      item.tokens = tokens;
      item.blocks = blocks;
    }
    items[0].start = 15;  // to the middle of the third
    items[1].start = 0;
    items[1].tokens = std::span{tokens}.first(15);
    compute_step task(machine, std::move(items));
    task.run();
    REQUIRE(task.outcome().code == ec::none);
    const auto& sums = task.items()[0].checksums;
    if (there) CHECK(sums == std::vector<std::uint64_t>{1004, 1004});
    else CHECK(sums == std::vector<std::uint64_t>{checksum64(memory[0]), checksum64(memory[1])});
    CHECK(task.items()[1].checksums.empty());
  }
}
