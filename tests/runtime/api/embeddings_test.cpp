// /v1/embeddings: what may be asked, and how numbers come out.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "runtime/api/openai.hpp"

using namespace mooncaf;
using json = nlohmann::json;

TEST_CASE("inputs are texts or token ids, one or many, and the pooling is the client's choice") {
  const auto one = parse_embeddings(R"({"input":"a"})");
  REQUIRE(one.has_value());
  CHECK(one->inputs.size() == 1);
  CHECK(one->sampling.pooling == pooling_kind::mean);
  CHECK_FALSE(one->base64);
  const auto many = parse_embeddings(
      R"({"input":[[1,2],"b"],"encoding_format":"base64","pooling":"last","truncate_prompt_tokens":5})");
  REQUIRE(many.has_value());
  CHECK(many->inputs.size() == 2);
  CHECK(many->sampling.pooling == pooling_kind::last);
  CHECK(many->base64);
  CHECK(many->truncate_prompt_tokens == 5);
  const auto complaint = [](const char* body) {
    const auto r = parse_embeddings(body);
    return r ? std::string{} : r.error().detail;
  };
  CHECK(complaint("{}") == "input: is required");
  CHECK(complaint(R"({"input":"a","dimensions":64})").starts_with("dimensions: is not supported"));
  CHECK(complaint(R"({"input":"a","encoding_format":"int8"})").starts_with("encoding_format: "));
  CHECK(complaint(R"({"input":"a","pooling":"cls"})").starts_with("pooling: "));
  CHECK(complaint(R"({"input":"a","truncate_prompt_tokens":0})").starts_with("truncate_prompt_tokens: "));
}

TEST_CASE("embeddings have length 1, as numbers or as the bytes of floats") {
  choice_text c;
  c.embedding = {3, -4};
  const answer_head head{api_kind::completion, "", 0, "m"};
  const auto plain = json::parse(embeddings_writer(head, false)->whole({c}, {7, 0, 1, 0}));
  CHECK(plain["object"] == "list");
  CHECK(plain["model"] == "m");
  CHECK(plain["usage"] == json::parse(R"({"prompt_tokens":7,"total_tokens":7})"));
  CHECK(plain["data"][0]["embedding"][0].get<float>() == doctest::Approx(0.6f));
  CHECK(plain["data"][0]["embedding"][1].get<float>() == doctest::Approx(-0.8f));
  // 0.6f is 0x3F19999A, -0.8f 0xBF4CCCCD.
  const auto coded = json::parse(embeddings_writer(head, true)->whole({c}, {}));
  CHECK(coded["data"][0]["embedding"] == "mpkZP83MTL8=");
  c.embedding = {0, 0};
  CHECK(json::parse(embeddings_writer(head, false)->whole({c}, {}))["data"][0]["embedding"] ==
        json::parse("[0.0,0.0]"));
}
