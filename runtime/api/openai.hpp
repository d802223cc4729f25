#pragma once
// The OpenAI API as values: request bodies in, answer bodies out. Pure; JSON stays inside the sources.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/model/generation_defaults.hpp"
#include "runtime/model/sampling_params.hpp"
#include "runtime/text/chat_template.hpp"
#include "runtime/tools/tool_call_reader.hpp"
#include "runtime/tools/tool_grammar.hpp"

namespace mooncaf {

/// A prompt as a client may give it.
using prompt_input = std::variant<std::string, std::vector<std::int32_t>>;

/// The fields that several kinds of request share.
/// A part of a prompt, from its beginning on, that the client wants kept in the cache.
struct prefix_mark {
  static constexpr std::uint32_t all = 0xFFFFFFFFu;

  std::uint32_t messages =
      all;  ///< leading messages of it; 0: what comes before them, such as tools; `all`: everything
  std::size_t bytes = std::string::npos;  ///< of the last one's content; npos: all of it
  std::chrono::seconds ttl{};
};

struct api_request {
  std::string model;
  sampling_params sampling;
  bool max_tokens_given = false;  ///< if not, `sampling.max_tokens` 0 stands for the room in the context
  bool seed_given = false;
  std::uint32_t n = 1;  ///< answers per prompt, [1, 128]
  bool stream = false;
  bool include_usage = false;
  bool include_stop = false;          ///< the stop string that ended an answer is its last text
  bool return_token_ids = false;      ///< ids of prompt and answer beside the text
  bool tokens_as_ids = false;         ///< log-probabilities name tokens as token_id:N
  std::int32_t prompt_logprobs = -1;  ///< alternatives to tell of the prompt's tokens, apart from an echo
  std::int32_t echo_logprobs = -1;    ///< … of an echoed prompt; `sampling.prompt_logprobs` is the larger
  std::optional<std::uint8_t> priority;  ///< 0 high, 1 normal, 2 low
  std::string cache_salt;
  std::string user;  ///< the user who asks, as the client names them
  /// Longer prompts lose their beginning; -1: longer than the context has room for.
  std::optional<std::int32_t> truncate_prompt_tokens;
  std::string form_field;              ///< where `sampling.grammar` came from, for errors; empty: no grammar
  std::vector<std::string> bad_words;  ///< as text; `sampling.bad_words` needs the vocabulary
  std::uint32_t ttft_slo_ms = 0;       ///< 0: the cluster's
  std::uint32_t tbt_slo_ms = 0;
  std::vector<prefix_mark> keep{};  ///< in the order of the prompt
};

/// How the text of a prompt is read.
struct prompt_reading {
  bool add_special_tokens = true;     ///< with the model's first token in front
  std::optional<bool> parse_special;  ///< whether special tokens are read as such; none: as the server is set
};

struct completion_request : api_request, prompt_reading {
  std::vector<prompt_input> prompts;
  bool echo = false;
};

/// A conversation, and its template's settings.
struct chat_prompt {
  std::vector<chat_message> messages;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::string variables;  ///< JSON text of an object; empty: none
  std::string tools;      ///< JSON text of a list, as the client sent it; empty: none, or none may be called
};

/// Whether an answer may, must not, or must be calls of tools.
enum class tool_choice : std::uint8_t { automatic, none, required };

struct chat_request : api_request, chat_prompt {
  std::vector<tool_function> functions;  ///< the ones that may be called: `tools`, or the one that was named
  tool_choice choice = tool_choice::automatic;
  bool parallel_tool_calls = true;
  bool separate_reasoning = true;  ///< the model's thoughts are no part of the answer's text
  bool include_reasoning = true;   ///< … and are told at all
};

/// Texts, or token ids, to be placed in the model's space.
struct embedding_request : api_request, prompt_reading {
  std::vector<prompt_input> inputs;
  bool base64 = false;  ///< as little-endian floats, else as numbers
};

struct tokenize_request : prompt_reading {
  std::string model;
  std::variant<std::string, chat_prompt> input;
};

struct detokenize_request {
  std::string model;
  std::vector<std::int32_t> tokens;
};

/// Each is linear in the bytes of `body`, and bounded in depth and in the number of values.
/// @param defaults  how tokens are drawn where the body does not say.
/// @error `ec::invalid_argument`: the name of the field, then its mistake.
result<completion_request> parse_completion(std::string_view body, const generation_defaults& defaults = {});
result<chat_request> parse_chat(std::string_view body, const generation_defaults& defaults = {});
result<embedding_request> parse_embeddings(std::string_view body);
result<tokenize_request> parse_tokenize(std::string_view body);
result<detokenize_request> parse_detokenize(std::string_view body);

// ---- answers
// --------------------------------------------------------------------------------------------------------

struct usage_counts {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t reasoning_tokens = 0;  ///< of the completion's
  std::uint32_t created_tokens =
      0;  ///< of the prompt, kept as the client wanted, that were not cached before; of them
  std::uint32_t created_long_tokens = 0;  ///< … for more than five minutes
};

/// A token with its text, for `logprobs`.
struct token_logprob {
  std::string text;
  std::optional<float> logprob;  ///< none for the first token of a prompt: it follows nothing
  std::vector<std::pair<std::string, float>> top;
  std::uint32_t offset = 0;  ///< completions: whole characters of the choice's text before the token
  std::int32_t id = -1;      ///< of the token
  std::vector<std::int32_t> top_ids{};  ///< of `top`
};

enum class api_kind : std::uint8_t { completion, chat };

/// The API that gives errors their words.
enum class error_form : std::uint8_t { openai, anthropic };

/// The fields that every answer and chunk of one request carries.
struct answer_head {
  api_kind kind = api_kind::completion;
  std::string id;            ///< "cmpl-…" or "chatcmpl-…"
  std::int64_t created = 0;  ///< seconds since 1970
  std::string model;
};

/// A call, or while streaming a piece of one.
struct tool_call_text {
  std::uint32_t index = 0;
  std::string id, name;  ///< in the first piece
  std::string arguments;
};

struct choice_text {
  std::uint32_t index = 0;
  std::string reasoning;  ///< the model's thoughts before; while streaming never beside text
  std::string text;
  std::vector<tool_call_text> calls;
  std::string finish_reason;  ///< "stop", "length", "tool_calls", or empty while streaming
  std::string stopped_by;     ///< the stop string that ended it; empty: none
  std::optional<std::vector<token_logprob>> logprobs;
  /// Of this text's tokens, the one that ended it included; nothing if they were not asked for.
  std::optional<std::vector<std::int32_t>> token_ids;
  std::vector<std::int32_t> prompt_token_ids;  ///< with `token_ids`: while streaming in the first piece alone
  /// Of the prompt's tokens, if they were asked for; while streaming in the first piece alone.
  std::optional<std::vector<token_logprob>> prompt_logprobs;
  std::vector<float> embedding;  ///< of the prompt; nothing else is then asked for
  bool role = false;             ///< chat stream: the first chunk of a choice names the role
};

/// Unicode characters of UTF-8 text, which offsets count.
std::uint32_t count_characters(std::string_view text) noexcept;

std::string format_answer(const answer_head& head, const std::vector<choice_text>& choices,
                          const usage_counts& usage);
/// One server-sent event with one choice, line ends included.
std::string format_chunk(const answer_head& head, const choice_text& choice, bool usage_null);
/// The last event before [DONE], with `stream_options.include_usage`.
std::string format_usage_chunk(const answer_head& head, const usage_counts& usage);
inline constexpr std::string_view done_event = "data: [DONE]\n\n";

struct api_error {
  unsigned status = 500;
  std::string body;
  std::int64_t retry_after_s = 0;  ///< 0: no such header
};

/// Puts one request's answer in the words of the API that it came by: as one body, or as events.
class answer_writer {
 public:
  virtual ~answer_writer() = default;

  /// @param choices  in the order of their indices.
  virtual std::string whole(const std::vector<choice_text>& choices, const usage_counts& usage) = 0;
  /// Events of a stream, line ends included: before anything else, for each piece, and behind the last.
  virtual std::string begin() { return {}; }
  virtual std::string piece(const choice_text& piece) = 0;
  virtual std::string end(const usage_counts& usage) = 0;
  /// An error as a body, and as an event of a stream that has begun.
  virtual api_error refusal(const error& cause, std::int64_t retry_after_s) const = 0;
  virtual std::string error_event(const error& cause) = 0;
};
/// For /v1/completions and /v1/chat/completions.
std::unique_ptr<answer_writer> openai_writer(answer_head head, bool include_usage);
/// For /v1/embeddings: answers with one embedding per choice.
std::unique_ptr<answer_writer> embeddings_writer(answer_head head, bool base64);

/// Our errors as HTTP and OpenAI's error object.
/// @param code  OpenAI's word for it, where clients look for one, e.g. "model_not_found"; empty: ours.
api_error format_error(const error& cause, std::int64_t retry_after_s = 0, std::string_view code = {},
                       error_form form = error_form::openai);
/// The same as an event, for a stream that has begun.
std::string format_error_event(const error& cause);

/// A model that requests may name.
struct model_card {
  std::string id;
  std::string parent;  ///< the model that this one changes the weights of; empty: none
};
std::string format_models(const std::vector<model_card>& models, std::int64_t created,
                          std::uint32_t context_length);
/// One of them, for /v1/models/{id}.
std::string format_model(const model_card& model, std::int64_t created, std::uint32_t context_length);
std::string format_tokens(const std::vector<std::int32_t>& tokens, std::uint32_t context_length);
std::string format_text(std::string_view text);

}  // namespace mooncaf
