// Answers of engines: those that vLLM and SGLang gave, cut anywhere, and wrong ones.

#include "runtime/engines/completion_reader.hpp"

#include <doctest/doctest.h>

#include <random>

#include "recorded.hpp"

using namespace mooncaf;

namespace {

struct whole {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  std::vector<std::vector<std::int32_t>> top;
  finish_reason finish = finish_reason::none;
  std::optional<std::uint32_t> cached;
  bool over = false;
  bool operator==(const whole&) const = default;
};

whole read(const std::string& stream, const std::vector<std::size_t>& cuts,
           engine_make make = engine_make::vllm) {
  completion_reader reader{make};
  whole out;
  std::size_t begin = 0;
  auto ends = cuts;
  ends.push_back(stream.size());
  for (const auto end : ends) {
    const auto piece = reader.take(std::string_view{stream}.substr(begin, end - begin));
    REQUIRE_MESSAGE(piece, (piece ? "" : piece.error().detail));
    begin = end;
    for (const auto& token : piece->tokens) {
      out.ids.push_back(token.id);
      out.logprobs.push_back(token.logprob);
      out.top.emplace_back();
      for (const auto& [id, logprob] : token.top) out.top.back().push_back(id);
    }
    if (piece->finish != finish_reason::none) out.finish = piece->finish;
    if (piece->cached_tokens) out.cached = piece->cached_tokens;
    out.over = out.over || piece->over;
  }
  return out;
}

error refused(const std::string& stream, engine_make make = engine_make::vllm) {
  completion_reader reader{make};
  const auto piece = reader.take(stream);
  REQUIRE_FALSE(piece);
  return piece.error();
}

}  // namespace

TEST_CASE("vLLM's answers are read, however the network cuts them") {
  const auto answers = recorded().answers;
  const auto plain = read(answers[0], {});
  CHECK(plain.ids.size() == 6);
  CHECK(std::vector(plain.ids.begin(), plain.ids.begin() + 4) == std::vector{288, 325, 476, 476});
  CHECK(plain.finish == finish_reason::length);
  CHECK(plain.over);
  const auto described = read(answers[1], {});
  CHECK(described.ids.size() == 4);
  CHECK(described.logprobs[0] == doctest::Approx(-3.71465));
  CHECK(described.top[0] == std::vector{288, 327});
  CHECK(described.cached == 0u);  // its salt keeps it from the first one's blocks
  std::mt19937 random{3};
  for (const auto& answer : answers) {
    for (int i = 0; i < 50; ++i) {
      std::vector<std::size_t> cuts;
      for (int c = 0; c < 20; ++c) cuts.push_back(random() % answer.size());
      std::ranges::sort(cuts);
      CHECK(read(answer, cuts) == read(answer, {}));
    }
  }
}

TEST_CASE("SGLang's answers are read, whether each event has all tokens so far or the new ones") {
  constexpr auto sglang = engine_make::sglang;
  const auto answers = recorded("sglang_0.5.23").answers;
  const auto plain = read(answers[0], {}, sglang);
  CHECK(plain.ids == std::vector{216, 33, 33, 33});
  CHECK((plain.finish == finish_reason::length && plain.over && plain.cached == 0u));
  const auto described = read(answers[1], {}, sglang);
  CHECK(described.ids == std::vector{216, 33, 33});
  CHECK(described.cached == 64u);
  CHECK(described.logprobs[1] == doctest::Approx(-1.823846));
  CHECK(described.top == std::vector<std::vector<std::int32_t>>{{216, 88}, {33, 34}, {33, 34}});
  CHECK(read(answers[2], {}, sglang).finish == finish_reason::stop);
  std::mt19937 random{4};
  for (const auto& answer : answers) {
    for (int i = 0; i < 50; ++i) {
      std::vector<std::size_t> cuts;
      for (int c = 0; c < 20; ++c) cuts.push_back(random() % answer.size());
      std::ranges::sort(cuts);
      CHECK(read(answer, cuts, sglang) == read(answer, {}, sglang));
    }
  }
  const auto event = [](const std::string& ids, int so_far, const std::string& finish) {
    return R"(data: {"output_ids":)" + ids + R"(,"meta_info":{"completion_tokens":)" +
           std::to_string(so_far) + R"(,"finish_reason":)" + finish + "}}\n\n";
  };
  CHECK(read(event("[5]", 1, "null") + event("[6,7]", 3, R"({"type":"stop"})"), {}, sglang).ids ==
        std::vector{5, 6, 7});
  CHECK(refused(event("[5]", 1, "null") + event("[7]", 3, "null"), sglang).code == ec::corrupt);
  CHECK(refused(event("[5]", 1, "null") + event("[]", 0, "null"), sglang).code == ec::corrupt);
  CHECK(refused(event("[-5]", 1, "null"), sglang).code == ec::corrupt);
  CHECK(refused(event("5", 1, "null"), sglang).code == ec::corrupt);
  CHECK(refused("data: {\"text\":\"x\"}\n", sglang).code == ec::corrupt);
  const auto gone = refused(event("[5]", 1, R"({"type":"abort","message":"out of memory"})"), sglang);
  CHECK((gone.code == ec::unavailable && gone.detail == "the engine ended the answer: out of memory"));
}

TEST_CASE("an engine that gives up, or is none, is told from an answer") {
  CHECK(refused("data: {\"error\":{\"message\":\"out of memory\"}}\n").detail ==
        "the engine gave up: out of memory");
  CHECK(refused("data: {\"choices\":[{\"token_ids\":[1],\"finish_reason\":\"abort\"}]}\n").code ==
        ec::unavailable);
  CHECK(refused("data: {\"choices\":[{\"token_ids\":[-1]}]}\n").code == ec::corrupt);
  CHECK(refused("data: {\"choices\":[{\"token_ids\":[\"1\"]}]}\n").code == ec::corrupt);
  CHECK(refused("data: {\"choices\":[7]}\n").code == ec::corrupt);
  CHECK(refused("data: <html>\n").code == ec::corrupt);
  CHECK(refused(std::string(20 << 20, 'x')).code == ec::corrupt);
  CHECK(read(": a comment\r\nevent: x\r\ndata: {\"choices\":[]}\r\n\r\ndata: [DONE]\r\n", {}).over);
}

TEST_CASE("the reason of a refusal is what the engine says") {
  CHECK(refusal_in(R"({"error":{"message":"too long"}})") == "too long");
  CHECK(refusal_in(R"({"detail":"no such model"})") == "no such model");
  CHECK(refusal_in("<h1>502</h1>") == "<h1>502</h1>");
  CHECK(refusal_in(std::string(9999, 'x')).size() == 300);
}
