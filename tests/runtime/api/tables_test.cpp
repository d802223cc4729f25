// The tables of endpoints and fields are what the code does and what the page says.

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "runtime/api/endpoints.hpp"
#include "runtime/api/messages_api.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/api/request_fields.hpp"
#include "runtime/api/responses_api.hpp"

using namespace mooncaf;

namespace {

/// The page with what stands between a mark and its end replaced.
std::string with_table(std::string page, const std::string& mark, const std::string& table) {
  const auto begin = page.find("<!-- " + mark + ":");
  REQUIRE(begin != std::string::npos);
  const auto from = page.find('\n', begin) + 1;
  const auto to = page.find("<!-- end -->", from);
  REQUIRE(to != std::string::npos);
  return page.replace(from, to - from, table);
}

/// What the parser of an endpoint says to a body with this field; empty: nothing.
std::string complaint(body_endpoint where, const std::string& name, const std::string& value) {
  std::string body = "{";
  if (where == body_endpoint::completions && name != "prompt") body += R"("prompt":"p",)";
  if (where == body_endpoint::tokenize && name != "prompt" && name != "messages") body += R"("prompt":"p",)";
  if (where == body_endpoint::chat && name != "messages")
    body += R"("messages":[{"role":"user","content":"x"}],)";
  if (where == body_endpoint::messages && name != "messages")
    body += R"("messages":[{"role":"user","content":"x"}],)";
  if (where == body_endpoint::messages && name != "max_tokens") body += R"("max_tokens":9,)";
  if ((where == body_endpoint::responses || where == body_endpoint::embeddings) && name != "input")
    body += R"("input":"x",)";
  if (where == body_endpoint::detokenize && name != "tokens") body += R"("tokens":[1],)";
  body += "\"" + name + "\":" + value + "}";
  const auto detail = [](const auto& r) { return r ? std::string{} : r.error().detail; };
  switch (where) {
    case body_endpoint::completions:
      return detail(parse_completion(body));
    case body_endpoint::chat:
      return detail(parse_chat(body));
    case body_endpoint::messages:
      return detail(parse_messages(body));
    case body_endpoint::responses:
      return detail(parse_responses(body));
    case body_endpoint::embeddings:
      return detail(parse_embeddings(body));
    case body_endpoint::tokenize:
      return detail(parse_tokenize(body));
    case body_endpoint::detokenize:
      return detail(parse_detokenize(body));
  }
  return {};
}

template <class Check>
void for_every_field(field_kind kind, Check check) {
  for (const auto& f : request_fields()) {
    for (const auto where :
         {body_endpoint::completions, body_endpoint::chat, body_endpoint::messages, body_endpoint::responses,
          body_endpoint::embeddings, body_endpoint::tokenize, body_endpoint::detokenize}) {
      if (f.kind != kind || !(f.where & static_cast<std::uint8_t>(where))) continue;
      INFO(f.name, " at endpoint ", static_cast<int>(where));
      check(where, f);
    }
  }
}

}  // namespace

TEST_CASE("the page shows the tables; MOONCAF_REWRITE_GOLDEN=1 rewrites it") {
  const std::string path = MOONCAF_HTTP_DIR "/README.md";
  std::ifstream in(path);
  REQUIRE(in.good());
  const std::string page{std::istreambuf_iterator<char>{in}, {}};
  const auto wanted =
      with_table(with_table(page, "endpoints", endpoints_as_markdown()), "fields", fields_as_markdown());
  if (std::getenv("MOONCAF_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << wanted;
  } else {
    CHECK(page == wanted);
  }
}

TEST_CASE("every field that is said to work is read: a wrong value is refused by its name") {
  for_every_field(field_kind::works, [](body_endpoint where, const request_field& f) {
    const std::string name{f.name};
    const auto object = complaint(where, name, R"({"wrong":[]})"), number = complaint(where, name, "-7.5");
    CHECK((object.starts_with(name + ": ") || number.starts_with(name + ": ")));
  });
}

TEST_CASE("a field that is ignored may be anything") {
  for_every_field(field_kind::ignored, [](body_endpoint where, const request_field& f) {
    for (const auto* value : {"null", "true", "7", R"("x")", R"([{"a":[]}])", R"({"deep":{"er":[1]}})"})
      CHECK(complaint(where, std::string{f.name}, value).empty());
  });
}

TEST_CASE(
    "a field that would change the answer and is not done is refused by its name, unless it asks for "
    "nothing") {
  for_every_field(field_kind::refused, [](body_endpoint where, const request_field& f) {
    const std::string name{f.name};
    for (const auto* value :
         {R"([{"type":"function"}])", R"({"type":"json_schema","json_schema":{}})", R"("required")", "2"})
      CHECK(complaint(where, name, value).starts_with(name + ": is not supported ("));
    CHECK(complaint(where, name, "null").empty());
    for (const auto idle : f.idle) {
      if (!idle.empty()) CHECK(complaint(where, name, std::string{idle}).empty());
    }
  });
}

TEST_CASE("every path of the table is found, and a name behind those that end in a slash") {
  for (const auto& e : endpoints()) {
    const auto path = std::string{e.path} + (e.path.size() > 1 && e.path.ends_with('/') ? "a/b" : "");
    REQUIRE(find_endpoint(path));
    CHECK(find_endpoint(path)->id == e.id);
  }
  for (const auto* path : {"", "/nowhere", "/v1", "/v1/models/", "/v1/completions/", "//"})
    CHECK(!find_endpoint(path));
}
