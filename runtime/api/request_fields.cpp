#include "runtime/api/request_fields.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

constexpr std::uint8_t completions = 1, chat = 2, messages = 4, responses = 8, embeddings = 16, tokenize = 32,
                       detokenize = 64;
constexpr std::uint8_t both = completions | chat, answering = both | messages | responses,
                       reading = answering | embeddings, every = reading | tokenize | detokenize;
constexpr auto works = field_kind::works, ignored = field_kind::ignored, refused = field_kind::refused;

constexpr request_field all_fields[] = {
    {"model", every, works, "the server's model, an alias, or an adapter; absent: its model"},
    {"prompt", completions | tokenize, works, "text, and for completions token ids, or a list of either"},
    {"messages", chat | messages | tokenize, works,
     "role and text, or parts of type text, which are joined by a line end; calls and results of tools"},
    {"system", messages, works, "text in front of the messages, or parts of type text"},
    {"input", responses | embeddings, works,
     "responses: text, or items: messages, calls, their results; embeddings: text, token ids, or a list of "
     "either"},
    {"instructions", responses, works, "a system message in front of the input"},
    {"chat_template_kwargs", chat | tokenize, works, "values that the chat template sees by name"},
    {"add_generation_prompt", chat | tokenize, works, "whether the prompt opens the answer; absent: it does"},
    {"continue_final_message", chat | tokenize, works, "the answer goes on within the last message"},
    {"tools", chat | messages | responses | tokenize, works, "functions that the model may call, up to 128"},
    {"tool_choice", chat | messages | responses, works,
     "auto, none, required (messages: any), or one function by its name"},
    {"parallel_tool_calls", chat | responses, works,
     "whether an answer may hold several calls; absent: it may"},
    {"tokens", detokenize, works, "token ids"},
    {"thinking", messages, works, "type enabled or disabled: the chat template sees enable_thinking"},
    {"include_reasoning", chat, works, "false: what the model thinks is not told"},
    {"separate_reasoning", chat, works,
     "false: what the model thinks is part of the content, as it wrote it"},
    {"add_special_tokens", completions | embeddings | tokenize, works,
     "whether the model's first token is put in front"},
    {"parse_special", completions | embeddings | tokenize, works,
     "whether <|im_start|> and the like in a prompt are tokens"},
    {"max_tokens", both | messages, works, "output tokens at most; 0 for completions: the prompt is scored"},
    {"max_output_tokens", responses, works, "output tokens at most"},
    {"max_completion_tokens", both, works, "the newer name of max_tokens"},
    {"min_tokens", both, works, "no end before so many tokens"},
    {"temperature", answering, works, "0 to 2; absent: as the model's makers want it, or 1"},
    {"top_p", answering, works, "above 0, at most 1; absent: the makers', or 1"},
    {"top_k", answering, works, "-1 or 0: all; absent: the makers', or all"},
    {"min_p", answering, works, "0 to 1; absent: the makers', or 0"},
    {"repetition_penalty", answering, works, "above 0, at most 10; absent: the makers', or 1"},
    {"presence_penalty", answering, works, "-2 to 2"},
    {"frequency_penalty", answering, works, "-2 to 2"},
    {"seed", answering, works, "the same seed, the same answer"},
    {"stop", both, works, "up to 16 strings"},
    {"stop_sequences", messages, works, "up to 16 strings"},
    {"stop_token_ids", both, works, "up to 1,024 ids"},
    {"include_stop_str_in_output", both, works, "the stop string that ends an answer is part of it"},
    {"return_token_ids", both, works, "ids of prompt and answer: token_ids, prompt_token_ids"},
    {"return_tokens_as_token_ids", both, works, "log-probabilities name tokens as token_id:N"},
    {"ignore_eos", both, works, "go on past the model's end"},
    {"logit_bias", both, works, "token id to a number from -100 to 100, up to 4,096"},
    {"logprobs", both, works, "completions: 0 to 20 alternatives; chat: true or false"},
    {"top_logprobs", chat, works, "0 to 20 alternatives"},
    {"echo", completions, works, "the answer begins with the prompt; with logprobs it is scored"},
    {"n", both, works, "1 to 128 answers for each prompt"},
    {"stream", answering, works, "server-sent events"},
    {"stream_options", both, works, "include_usage"},
    {"response_format", both, works, "text, json_object or json_schema, which is held whether strict or not"},
    {"guided_json", both, works, "a JSON schema, or its text"},
    {"guided_regex", both, works, "a regular expression for the whole answer"},
    {"guided_choice", both, works, "a list of texts, one of which is the answer"},
    {"guided_grammar", both, works, "a grammar as GBNF"},
    {"structured_outputs", both, works, "one of json, json_object, regex, choice and grammar, as above"},
    {"json_schema", both, works, "llama.cpp's name of guided_json"},
    {"grammar", both, works, "llama.cpp's name of guided_grammar"},
    {"allowed_token_ids", both, works, "up to 16,384 ids that alone may come, beside the model's end"},
    {"bad_words", both, works, "up to 1,024 texts whose last token does not come behind the others"},
    {"prompt_logprobs", both, works,
     "0 to 20 alternatives for every token of the prompt; which is then computed anew"},
    {"truncate_prompt_tokens", reading, works,
     "so many of the prompt's last tokens; -1: what the context holds"},
    {"encoding_format", embeddings, works, "float, or base64: little-endian floats"},
    {"pooling", embeddings, works, "which hidden states make the embedding: mean, or last; absent: mean"},
    {"text", responses, works, "format: text, json_object or json_schema"},
    {"output_config", messages, works, "format: json_schema, which holds the answer; effort is a hint"},
    {"output_format", messages, works, "the older place of output_config's format"},
    {"priority", reading, works, "0 high, 1 normal, 2 low"},
    {"prompt_cache_retention", both | responses, works,
     "keeps the prompt in the cache: in_memory (10 minutes) or 24h"},
    {"cache_control", messages, works,
     "at the top, or at parts of system, tools and messages: keeps the prompt up to there"},
    {"cache_salt", reading, works, "only requests with the same one share cached prefixes"},
    {"ttft_slo_ms", reading, works, "time to the first token that this request needs"},
    {"tbt_slo_ms", reading, works, "time between tokens that this request needs"},

    {"user", both | responses | embeddings, ignored,
     "who asks: how long their answers have been is expected of the next"},
    {"safety_identifier", both | responses, ignored, "who asks"},
    {"metadata", answering, ignored, "the client's own notes"},
    {"store", both, ignored, "nothing is stored"},
    {"service_tier", answering, ignored, "there is one"},
    {"prompt_cache_key", both | responses, ignored, "prefixes are found without it"},
    {"prediction", chat, ignored, "would only change the speed"},
    {"reasoning_effort", chat, ignored, "a hint"},
    {"reasoning", responses, ignored, "hints"},
    {"include", responses, works, "what is told is told always; message.output_text.logprobs is refused"},
    {"verbosity", chat, ignored, "a hint"},

    {"functions", chat, refused, "the older name of tools", {"[]"}},
    {"function_call", chat, refused, "the older name of tool_choice", {"\"none\"", "\"auto\""}},
    {"guided_whitespace_pattern", both, refused, "white space of the client's own"},
    {"structural_tag", both, refused, "forms within free text"},
    {"suffix", completions, refused, "text to be filled in before", {"\"\""}},
    {"best_of", both, refused, "more answers than are returned", {"1"}},
    {"echo", chat, refused, "the last message in front of the answer", {"false"}},
    {"add_special_tokens", chat, refused, "tokens in front of what the chat template says", {"false"}},
    {"logits_processors", both, refused, "code of the client's own", {"[]"}},
    {"vllm_xargs", both, refused, "arguments of vLLM's extensions", {"{}"}},
    {"kv_transfer_params", both, refused, "the client's own choice of where KV comes from", {"{}"}},
    {"use_beam_search", both, refused, "beam search", {"false"}},
    {"length_penalty", both, refused, "beam search", {"1"}},
    {"modalities", chat, refused, "anything but text", {R"(["text"])", "[]"}},
    {"audio", chat, refused, "anything but text"},
    {"web_search_options", chat, refused, "web search"},
    {"chat_template", chat | tokenize, refused, "a template of the request's own"},
    {"documents", chat, refused, "documents for the template", {"[]"}},
    {"store", responses, refused, "answers that are kept", {"false"}},
    {"previous_response_id", responses, refused, "answers that are kept"},
    {"conversation", responses, refused, "conversations that are kept"},
    {"background", responses, refused, "answers that are kept", {"false"}},
    {"prompt", responses, refused, "prompts that are kept"},
    {"truncation", responses, refused, "inputs that are cut in the middle", {"\"disabled\""}},
    {"max_tool_calls", responses, refused, "tools of the server's own"},
    {"top_logprobs", responses, refused, "log-probabilities; use chat completions", {"0"}},
    {"dimensions", embeddings, refused, "embeddings that are cut"},
    {"mcp_servers", messages, refused, "tools of the server's own", {"[]"}},
    {"container", messages, refused, "tools of the server's own"},
    {"context_management", messages, refused, "conversations that are cut"},
    {"skip_special_tokens", both, refused, "special tokens in the text", {"true"}},
    {"repeat_penalty", both, refused, "llama.cpp's name; use repetition_penalty", {"1"}},
    {"typical_p", both, refused, "typical sampling", {"1"}},
    {"mirostat", both, refused, "Mirostat", {"0"}},
    {"dry_multiplier", both, refused, "DRY", {"0"}},
    {"xtc_probability", both, refused, "XTC", {"0"}},
};

void append_row(std::string& out, const request_field& f) {
  out += "| `" + std::string{f.name} + "` |";
  for (const auto bit : {completions, chat, messages, responses, embeddings, tokenize, detokenize})
    out += (f.where & bit) ? " x |" : " |";
  out += " " + std::string{f.meaning};
  if (f.kind == refused) {
    out += "; passes: null";
    for (const auto idle : f.idle) {
      if (!idle.empty()) out += ", `" + std::string{idle} + "`";
    }
  }
  out += " |\n";
}

}  // namespace

std::span<const request_field> request_fields() noexcept { return all_fields; }

const request_field* find_field(body_endpoint where, std::string_view name) noexcept {
  const auto i = std::ranges::find_if(all_fields, [&](const request_field& f) {
    return f.name == name && (f.where & static_cast<std::uint8_t>(where)) != 0;
  });
  return i == std::end(all_fields) ? nullptr : i;
}

std::string fields_as_markdown() {
  std::string out;
  for (const auto& [kind, title] :
       {std::pair{works, "Works"}, {ignored, "Accepted and ignored"}, {refused, "Refused"}}) {
    out += "\n**" + std::string{title} +
           "**\n\n| field | completions | chat | messages | responses | embeddings "
           "| tokenize | detokenize | |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for (const auto& f : request_fields()) {
      if (f.kind == kind) append_row(out, f);
    }
  }
  return out;
}

}  // namespace mooncaf
