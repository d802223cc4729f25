// Chat templates against Jinja2 as transformers sets it up; make_templates.py beside this file made
// templates.json.

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/text/chat_template.hpp"
#include "runtime/text/dummy_vocab.hpp"

using namespace mooncaf;
using ordered = nlohmann::ordered_json;

namespace {

ordered golden_templates() {
  const char* other = std::getenv("MOONCAF_TEMPLATES");
  std::ifstream in(other ? std::string{other} : std::string{MOONCAF_TEXT_GOLDEN} + "/templates.json");
  REQUIRE(in.good());
  return ordered::parse(in);
}

std::string source_of(const ordered& t) {
  if (t.contains("source")) return t["source"];
  std::ifstream in(std::string{MOONCAF_TEXT_GOLDEN} + "/templates/" + t["name"].get<std::string>() +
                   ".jinja");
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A token per byte, so that decoding gives the rendered text; <s> and </s> are the ends.
std::shared_ptr<const tokenizer> bytes_alone() {
  auto vocab = *dummy_vocab(smallest_dummy_vocab);
  vocab.tokens[256] = "<s>";
  vocab.tokens[257] = "</s>";
  vocab.eos = 257;
  vocab.eot = -1;
  return *tokenizer::from_vocab(std::move(vocab));
}

std::vector<chat_message> messages_of(const ordered& from) {
  std::vector<chat_message> out;
  for (const auto& m : from) {
    chat_message made;
    made.role = m["role"];
    if (m["content"].is_string()) made.content = m["content"];
    if (m.contains("content") && made.content.empty())
      made.bare = m["content"].is_null() ? bare_content::null : bare_content::empty;
    made.name = m.value("name", "");
    made.tool_call_id = m.value("tool_call_id", "");
    made.reasoning_content = m.value("reasoning_content", "");
    for (const auto& c : m.value("tool_calls", ordered::array()))
      made.tool_calls.push_back({c["id"], c["function"]["name"], c["function"]["arguments"].dump()});
    out.push_back(std::move(made));
  }
  return out;
}

chat_render_options options_of(ordered more) {
  chat_render_options out;
  out.add_generation_prompt = more.value("add_generation_prompt", true);
  out.continue_final_message = more.value("continue_final_message", false);
  if (more.contains("tools")) out.tools = more["tools"].dump();
  for (const auto* taken : {"add_generation_prompt", "continue_final_message", "tools"}) more.erase(taken);
  if (!more.empty()) out.variables = more.dump();
  out.now.tm_year = 126, out.now.tm_mon = 10, out.now.tm_mday = 22;
  out.now.tm_hour = 9, out.now.tm_min = 5, out.now.tm_sec = 3;
  out.now.tm_wday = 0, out.now.tm_yday = 325;
  return out;
}

}  // namespace

TEST_CASE("templates of every family are rendered as Jinja2 renders them, and refuse what they refuse") {
  const auto tok = bytes_alone();
  const auto all = golden_templates();
  for (const auto& t : all["templates"]) {
    const auto chat = chat_template::from_source(tok, source_of(t));
    if (t["cases"].empty()) {
      CHECK_MESSAGE(!chat, t["name"].get<std::string>(), " was to be refused");
      continue;
    }
    CHECK_MESSAGE(chat.has_value(), t["name"].get<std::string>(), ": ",
                  (chat ? "" : to_string(chat.error())));
    if (!chat) continue;
    for (const auto& c : t["cases"]) {
      const std::string about = t["name"].get<std::string>() + ", " + c["chat"].get<std::string>();
      const auto& asked = all["chats"][c["chat"].get<std::string>()];
      const auto ids = chat->render(messages_of(asked["messages"]), options_of(asked["more"]));
      if (c.contains("error")) {
        CHECK_MESSAGE(!ids, about, ": was to be refused: ", c["error"].get<std::string>());
        if (ids) continue;
        CHECK_MESSAGE(ids.error().detail.find(c["error"].get<std::string>()) != std::string::npos, about,
                      ": ", ids.error().detail);
      } else {
        CHECK_MESSAGE(ids.has_value(), about, ": ", (ids ? "" : to_string(ids.error())));
        if (!ids) continue;
        const auto said = tok->decode(*ids, special_text::show);
        const auto expected = c["text"].get<std::string>();
        CHECK_MESSAGE(said == expected, about, ":\n", said, "\nexpected\n", expected);
      }
    }
  }
}
