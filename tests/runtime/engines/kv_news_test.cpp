// News of an engine's cache, as vLLM really writes them, in the older form, and damaged.

#include "runtime/engines/kv_news.hpp"

#include <doctest/doctest.h>

#include <random>

#include "recorded.hpp"
#include "runtime/engines/news_order.hpp"

using namespace mooncaf;
using nlohmann::json;

namespace {

std::vector<std::byte> packed(const json& message) {
  const auto bytes = json::to_msgpack(message);
  std::vector<std::byte> out;
  for (const auto byte : bytes) out.push_back(static_cast<std::byte>(byte));
  return out;
}

std::vector<kv_news> news_in(const json& events) {
  auto got = read_kv_news(packed(json::array({1.5, events, 0})));
  REQUIRE_MESSAGE(got, (got ? "" : got.error().detail));
  return *got;
}

std::string refusal_of(const json& message) {
  const auto got = read_kv_news(packed(message));
  return got ? "" : got.error().detail;
}

}  // namespace

TEST_CASE("what a server of SGLang published is read whole") {
  std::vector<kv_news> all;
  for (const auto& payload : recorded("sglang_0.5.23").news) {
    auto some = read_kv_news(payload);
    REQUIRE_MESSAGE(some, (some ? "" : some.error().detail));
    all.insert(all.end(), some->begin(), some->end());
  }
  REQUIRE(all.size() == 3);
  CHECK((all[0].all && all[2].all));
  const auto& stored = all[1];
  CHECK(stored.blocks.size() == 2);
  CHECK_FALSE(stored.parent);
  CHECK(stored.tokens == numbers(1000, 64));
  CHECK((stored.block_tokens == 32 && stored.plain == 2 && stored.medium == "GPU"));
}

TEST_CASE("what a server of vLLM published is read whole") {
  std::vector<kv_news> all;
  for (const auto& payload : recorded().news) {
    auto some = read_kv_news(payload);
    REQUIRE(some);
    all.insert(all.end(), some->begin(), some->end());
  }
  REQUIRE(all.size() == 4);
  const auto& plain = all[0];
  CHECK(plain.what == block_change::stored);
  CHECK(plain.tokens == numbers(1000, 96));
  CHECK(plain.block_tokens == 32);
  CHECK(plain.blocks.size() == 3);
  CHECK(plain.plain == 3);
  CHECK(plain.salt.empty());
  CHECK(plain.medium == "GPU");
  CHECK_FALSE(plain.parent);
  const auto& salted = all[1];
  CHECK(salted.salt == "0123456789abcdef0123456789abcdef");
  CHECK(salted.plain == 3);
  CHECK(salted.blocks[0] != plain.blocks[0]);
  CHECK(all[2].all);
  CHECK(all[3].tokens == numbers(2000, 32));
}

TEST_CASE("the form of older versions says the same") {
  const auto bytes = json::binary({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17});
  const auto got = news_in(
      json::array({json::array({"BlockStored", json::array({bytes}), 7, numbers(5, 2), 2, nullptr}),
                   json::array({"BlockRemoved", json::array({7})}), json::array({"AllBlocksCleared"})}));
  REQUIRE(got.size() == 3);
  CHECK(got[0].blocks == std::vector{hash128{0x0807060504030201, 0x100F0E0D0C0B0A09}});
  CHECK(got[0].parent == hash128{0, 7});
  CHECK(got[0].plain == 1);
  CHECK(got[1].blocks == std::vector{hash128{0, 7}});
}

TEST_CASE("blocks with adapters, pictures and windows are not taken for text") {
  json event{{"type", "BlockStored"},
             {"block_hashes", {1, 2}},
             {"parent_block_hash", nullptr},
             {"token_ids", {1, 2, 3, 4}},
             {"block_size", 2}};
  CHECK(news_in(json::array({event})).at(0).plain == 2);
  auto adapted = event;
  adapted["lora_name"] = "x";
  CHECK(news_in(json::array({adapted})).at(0).plain == 0);
  auto picture = event;
  picture["extra_keys"] = json::array({nullptr, json::array({json::array({"picture", 3})})});
  CHECK(news_in(json::array({picture})).at(0).plain == 1);
  auto window = event;
  window["kv_cache_spec_sliding_window"] = 128;
  CHECK(news_in(json::array({window})).empty());
  auto group = event;
  group["group_idx"] = 1;
  CHECK(news_in(json::array({group})).empty());
  CHECK(news_in(json::array({json{{"type", "Rewritten"}}})).empty());
}

TEST_CASE("a message that is wrong is refused with the reason") {
  CHECK(refusal_of(json::object()).find("no list") != std::string::npos);
  CHECK(refusal_of(json::array({1.0})).find("no events") != std::string::npos);
  CHECK(refusal_of(json::array({1.0, json::array({3})})).find("neither a map nor a list") !=
        std::string::npos);
  json event{{"type", "BlockStored"}, {"block_hashes", {1, 2}}, {"token_ids", {1, 2, 3}}, {"block_size", 2}};
  CHECK(refusal_of(json::array({1.0, json::array({event})})).find("token_ids are not block_size") !=
        std::string::npos);
  event["token_ids"] = {1, 2, 3, -4};
  CHECK(refusal_of(json::array({1.0, json::array({event})})).find("out of range") != std::string::npos);
  event["block_size"] = 0;
  CHECK(refusal_of(json::array({1.0, json::array({event})})).find("block_size") != std::string::npos);
  // Deeper than a stack should follow.
  std::vector<std::byte> deep(100'000, std::byte{0x91});
  CHECK_FALSE(read_kv_news(deep));
  CHECK_FALSE(read_kv_news({}));
  // A length that no memory has.
  CHECK_FALSE(read_kv_news(from_hex("92cb3ff8000000000000ddffffffff")));
}

TEST_CASE("damaged bytes are refused or read as something else, and nothing worse") {
  std::mt19937 random{7};
  for (const auto& payload : recorded().news) {
    for (int i = 0; i < 2000; ++i) {
      auto damaged = payload;
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      if (random() % 4 == 0) damaged.resize(random() % damaged.size());
      if (const auto got = read_kv_news(damaged))
        for (const auto& news : *got)
          if (news.what == block_change::stored)
            CHECK(news.tokens.size() == news.blocks.size() * news.block_tokens);
    }
  }
}

TEST_CASE("lost messages, repeated ones and a new beginning are told apart") {
  news_order order;
  CHECK(order.arrived(0) == news_verdict::next);
  CHECK(order.arrived(1) == news_verdict::next);
  CHECK(order.arrived(5) == news_verdict::gap);
  order.replayed(7);  // 2 to 7 came once more
  CHECK(order.arrived(6) == news_verdict::known);
  CHECK(order.arrived(7) == news_verdict::known);
  CHECK(order.arrived(8) == news_verdict::next);
  CHECK(order.arrived(0) == news_verdict::anew);
  CHECK(order.arrived(1) == news_verdict::next);
  news_order late;
  CHECK(late.arrived(40) == news_verdict::gap);
  CHECK(late.arrived(41) == news_verdict::next);
}
