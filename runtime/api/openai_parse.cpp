#include <algorithm>

#include "runtime/api/body_reader.hpp"
#include "runtime/api/chat_messages.hpp"
#include "runtime/api/json_body.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/api/request_reading.hpp"

namespace mooncaf {

using reader = body_reader;

result<completion_request> parse_completion(std::string_view body, const generation_defaults& defaults) {
  const auto parsed = parse_body(body, body_endpoint::completions);
  if (!parsed) return fail(parsed.error());
  reader in{*parsed};
  completion_request out;
  begin_with(defaults, out.sampling);
  read_common(in, out, 0);
  out.prompts = read_prompts(in, "prompt");
  in.boolean("add_special_tokens", out.add_special_tokens);
  in.boolean("parse_special", out.parse_special);
  in.boolean("echo", out.echo);
  in.number("logprobs", out.sampling.logprobs, 0, 20);
  if (out.echo) out.echo_logprobs = out.sampling.logprobs;
  out.sampling.prompt_logprobs = std::max(out.prompt_logprobs, out.echo_logprobs);
  if (!out.max_tokens_given) out.sampling.max_tokens = 16;
  if (const auto problem = in.problem()) return fail(*problem);
  return out;
}

result<chat_request> parse_chat(std::string_view body, const generation_defaults& defaults) {
  const auto parsed = parse_body(body, body_endpoint::chat);
  if (!parsed) return fail(parsed.error());
  reader in{*parsed};
  chat_request out;
  begin_with(defaults, out.sampling);
  read_common(in, out, 1);
  read_messages(in, out);
  read_template_options(in, out);
  read_tools(in, out);
  in.boolean("include_reasoning", out.include_reasoning);
  in.boolean("separate_reasoning", out.separate_reasoning);
  bool wanted = false;
  std::int32_t top = 0;
  in.boolean("logprobs", wanted);
  in.number("top_logprobs", top, 0, 20);
  if (top > 0 && !wanted) in.complain("top_logprobs", "needs logprobs: true");
  if (wanted) out.sampling.logprobs = top;
  if (const auto problem = in.problem()) return fail(*problem);
  return out;
}

result<tokenize_request> parse_tokenize(std::string_view body) {
  const auto parsed = parse_body(body, body_endpoint::tokenize);
  if (!parsed) return fail(parsed.error());
  reader in{*parsed};
  tokenize_request out;
  in.string("model", out.model);
  in.boolean("add_special_tokens", out.add_special_tokens);
  in.boolean("parse_special", out.parse_special);
  chat_prompt conversation;
  read_template_options(in, conversation);
  read_tool_list(in, conversation.tools);
  if (in.find("messages")) {
    read_messages(in, conversation);
    out.input = std::move(conversation);
  } else {
    std::string text;
    if (!in.find("prompt")) in.complain("prompt", "is required");
    in.string("prompt", text);
    out.input = std::move(text);
  }
  if (const auto problem = in.problem()) return fail(*problem);
  return out;
}

result<detokenize_request> parse_detokenize(std::string_view body) {
  const auto parsed = parse_body(body, body_endpoint::detokenize);
  if (!parsed) return fail(parsed.error());
  reader in{*parsed};
  detokenize_request out;
  in.string("model", out.model);
  const auto* tokens = in.find("tokens");
  auto list = tokens && tokens->is_array() ? token_list(*tokens) : std::nullopt;
  if (!list) in.complain("tokens", "must be a list of token ids");
  if (const auto problem = in.problem()) return fail(*problem);
  out.tokens = std::move(*list);
  return out;
}

}  // namespace mooncaf
