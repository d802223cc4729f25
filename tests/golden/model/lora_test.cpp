// Adapters against PEFT's logits, and what they must leave alone; make_lora.py made the files.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gpu/linked/linked_device.hpp"
#include "runtime/model/lora_adapter.hpp"
#include "tests/golden/model/gguf_of_folder.hpp"
#include "tests/golden/model/golden_file.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using json = nlohmann::json;

namespace {

const std::string data_folder = std::string(MOONCAF_TEST_DATA) + "/model/";

std::string base_of(const std::string& adapter) {
  if (adapter == "lora-mistral") return "hf-mistral";
  return adapter == "lora-phi3" ? "hf-phi3" : "hf-served";
}

std::shared_ptr<const lora_adapter> adapter_of(device& dev, const model& m, const std::string& name) {
  return unwrap(lora_adapter::load(&dev, m.config(), name, map_files_of<mapped_file>(data_folder + name)));
}

runner_options options_for(const model& m, kv_dtype dtype) {
  runner_options options;
  options.layout = m.layout(16, dtype);
  options.lora_rank = 9;
  options.max_logit_rows = 4;
  return options;
}

double distance(device& dev, const golden_case& golden, kv_dtype dtype) {
  const auto m = load_folder(dev, data_folder + base_of(golden.name));
  const auto adapter = adapter_of(dev, *m, golden.name);
  const auto options = options_for(*m, dtype);
  const auto runner = unwrap(model_runner::make(m, dev, options));
  double worst = 0;
  for (const auto& [position, expected] : golden.at) {
    const kv_space kv(options.layout, position + 1);
    const auto got = feed(*runner, kv, std::span(golden.ids).first(position + 1), 48, 0, adapter.get());
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
  }
  return worst;
}

/// Reading an adapter of hf-served whose adapter_config.json has one more field.
result<std::shared_ptr<const lora_adapter>> with_field(const model_config& config, const json& field,
                                                       const char* weights = "lora-served") {
  const auto files = map_files_of<mapped_file>(data_folder + weights);
  const auto read = [&](const std::string& name) -> result<owned_bytes> {
    auto bytes = files(name);
    if (!bytes || name != "adapter_config.json") return bytes;
    auto changed = json::parse(bytes->text());
    changed.update(field);
    const auto text = std::make_shared<const std::string>(changed.dump());
    return owned_bytes{std::as_bytes(std::span{*text}), text};
  };
  return lora_adapter::load(nullptr, config, "a", read);
}

}  // namespace

TEST_CASE("an adapted model gives PEFT's logits, with every kind of module") {
  const auto cases = read_golden(std::string(MOONCAF_GOLDEN) + "/lora.txt");
  CHECK(cases.size() == 4);
  const auto exact = make_host_device({.exact = true}), fast = make_host_device({});
  for (const auto& golden : cases) {
    CAPTURE(golden.name);
    CHECK(distance(*exact, golden, kv_dtype::f32) < 1e-3);
    CHECK(distance(*fast, golden, kv_dtype::f16) < 0.08);
  }
}

TEST_CASE("an adapter fits a GGUF file of the same weights, whose rotary pairs lie side by side") {
  const auto exact = make_host_device({.exact = true});
  const auto folder = open_rewritten(data_folder + "hf-mistral");
  const auto bytes = to_gguf(*folder);
  const auto file = unwrap(parse_gguf(as_bytes_of(bytes), "file"));
  const auto a = unwrap(model::load(*exact, *folder)), b = unwrap(model::load(*exact, gguf_source(file)));
  const auto left = adapter_of(*exact, *a, "lora-mistral"), right = adapter_of(*exact, *b, "lora-mistral");
  const auto options = options_for(*a, kv_dtype::f32);
  const auto ids = random_tokens(90, 96, 5);
  const kv_space one(options.layout, ids.size()), other(options.layout, ids.size());
  const auto want = feed(*unwrap(model_runner::make(a, *exact, options)), one, ids, 512, 0, left.get());
  const auto got = feed(*unwrap(model_runner::make(b, *exact, options)), other, ids, 512, 0, right.get());
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(got[i] - want[i]) < 1e-4f);
}

TEST_CASE(
    "sequences of different adapters and of none share a batch, and each has the bits that it has alone") {
  const auto host = make_host_device({});
  const auto linked =
      unwrap(make_linked_device({{}, {std::size_t{4} << 30, std::chrono::microseconds(20)}, 2}));
  const std::vector<std::vector<std::int32_t>> ids{random_tokens(61, 300, 1), random_tokens(40, 300, 2),
                                                   random_tokens(77, 300, 3), random_tokens(33, 300, 4)};
  const auto plain = load_folder(*host, data_folder + "hf-served");
  runner_options without = options_for(*plain, kv_dtype::f16);
  without.lora_rank = 0;
  const auto untouched = unwrap(model_runner::make(plain, *host, without));
  std::vector<std::vector<float>> expected;
  for (auto* dev : {host.get(), linked.get()}) {
    const auto m = load_folder(*dev, data_folder + "hf-served");
    const auto first = adapter_of(*dev, *m, "lora-served"), second = adapter_of(*dev, *m, "lora-second");
    const std::array<const lora_adapter*, 4> adapters{first.get(), nullptr, second.get(), first.get()};
    auto options = options_for(*m, kv_dtype::f16);
    if (dev == linked.get())
      options.device_blocks =
          unwrap(device_kv::make(*dev, options.layout, 40 * options.layout.block_bytes(), 150));
    const auto runner = unwrap(model_runner::make(m, *dev, options));
    if (expected.empty()) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const kv_space kv(options.layout, ids[i].size());
        expected.push_back(feed(*runner, kv, ids[i], 512, 0, adapters[i]));
        const kv_space chunked(options.layout, ids[i].size());
        CHECK(feed(*runner, chunked, ids[i], 7, 0, adapters[i]) == expected.back());
      }
      const kv_space kv(options.layout, ids[1].size());
      CHECK(feed(*untouched, kv, ids[1], 512) == expected[1]);
      CHECK(expected[0] != feed(*untouched, kv_space(options.layout, ids[0].size()), ids[0], 512));
    }
    std::vector<std::unique_ptr<kv_space>> spaces;
    std::vector<batch_item> items;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      spaces.push_back(std::make_unique<kv_space>(options.layout, ids[i].size()));
      items.push_back({ids[i], 0, spaces.back()->blocks(), true});
      items.back().adapter = adapters[i];
    }
    const auto vocab = runner->vocab_size();
    std::vector<float> logits(ids.size() * vocab);
    REQUIRE(runner->forward(items, logits).has_value());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      CAPTURE(i);
      CHECK(std::ranges::equal(std::span(logits).subspan(i * vocab, vocab), expected[i]));
    }
  }
}

TEST_CASE("what an adapter asks for and is not offered is refused by name, and a broken one with the place") {
  const auto host = make_host_device({});
  const auto config = load_folder(*host, data_folder + "hf-served")->config();
  const auto why = [&](const json& field, const char* weights = "lora-served") {
    const auto made = with_field(config, field, weights);
    return made ? std::string{} : to_string(made.error());
  };
  CHECK(why(json::object()).empty());
  CHECK(why({{"use_dora", true}}) == "unsupported: a: 'use_dora' is not offered");
  CHECK(why({{"modules_to_save", {"lm_head"}}}) == "unsupported: a: 'modules_to_save' is not offered");
  CHECK(why({{"bias", "all"}}) == "unsupported: a: 'bias' of 'all' is not offered");
  CHECK(why({{"peft_type", "IA3"}}) == "unsupported: a: an adapter of peft_type 'IA3' is not offered");
  CHECK(why({{"alpha_pattern", {{"q_proj", 3}}}}) == "unsupported: a: 'alpha_pattern' is not offered");
  CHECK(why({{"init_lora_weights", "pissa"}}) ==
        "unsupported: a: 'init_lora_weights' of 'pissa' is not offered");
  CHECK(why({{"r", 0}}).find("a/adapter_config.json") != std::string::npos);
  CHECK(why({{"r", 5}}).find("lora_A.weight' is not [5, 64]") != std::string::npos);
  auto mixture = config;
  mixture.n_experts = 4;
  const auto experts = with_field(mixture, json::object());
  REQUIRE_FALSE(experts.has_value());
  CHECK(
      to_string(experts.error()).find("mlp.down_proj.lora_A.weight', of a module that is not adapted here") !=
      std::string::npos);
  // The same bytes with another factor are another adapter: their blocks may not be shared.
  CHECK(unwrap(with_field(config, {{"lora_alpha", 9}}))->fingerprint() !=
        unwrap(with_field(config, json::object()))->fingerprint());
}
