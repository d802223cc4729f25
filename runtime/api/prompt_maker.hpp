#pragma once
// Prompts of clients, as the token ids and sampling settings that the cluster is given.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/api/front_context.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/base/units.hpp"
#include "runtime/reasoning/reasoning_form.hpp"

namespace mooncaf {

/// Why a request is refused. @see format_error
struct api_refusal {
  api_refusal(error e, std::string_view c = {}) : cause(std::move(e)), code(c) {}  // NOLINT: is an error

  error cause;
  std::string_view code;  ///< OpenAI's word for it; empty: none
};
template <class T>
using api_result = tl::expected<T, api_refusal>;

/// How an answer with calls is read.
struct tool_reading {
  tool_format format = tool_format::hermes;
  bool forced = false;   ///< held to calls by a grammar
  bool several = false;  ///< more than one call is wanted
  std::vector<tool_function> functions;
  std::vector<std::int32_t> markers;  ///< special tokens that are part of calls
};

/// How an answer is read in which the model thinks first.
struct thought_reading {
  reasoning_form form = reasoning_form::think;
  thought_state state = thought_state::may_open;
  bool shown = true;                  ///< to the client
  std::vector<std::int32_t> markers;  ///< special tokens among the marks
};

/// @thread Immutable; shareable. Its work is as long as the prompts: not for an I/O thread, unless they are
/// short.
class prompt_maker {
 public:
  explicit prompt_maker(std::shared_ptr<const front_context> context);

  /// @param may_be_long  the prompt is going to be cut: text that cannot fit is not refused.
  api_result<std::vector<std::int32_t>> tokens_of(const chat_prompt& conversation,
                                                  bool may_be_long = false) const;
  /// @param field  where the prompt came from, for errors.
  api_result<std::vector<std::int32_t>> tokens_of(const prompt_input& prompt, const prompt_reading& how,
                                                  std::string_view field, bool may_be_long = false) const;
  /// The tokens of each marked part of a conversation, as far as the prompt begins with them. @param prompt  that was
  /// made of it, whole.
  std::vector<std::pair<std::uint32_t, duration>> marked(const chat_prompt& conversation,
                                                         std::span<const prefix_mark> marks,
                                                         std::span<const std::int32_t> prompt) const;
  /// How calls in the answer are read; nothing if no tool may be called. Where one must be, fills in the
  /// grammar of `api`.
  api_result<std::optional<tool_reading>> prepare_tools(chat_request& api) const;
  /// How reasoning in the answer to `prompt` is read; nothing if the model does not think, or the request
  /// does not want it apart. A form that the answer is held to begins behind it. Comes after `prepare_tools`.
  std::optional<thought_reading> prepare_thought(chat_request& api,
                                                 std::span<const std::int32_t> prompt) const;
  /// Cuts off the beginning of a prompt that is longer than the request wants it, or than fits.
  void truncate(const api_request& api, std::vector<std::int32_t>& prompt) const;
  /// The text of a prompt as `echo` repeats it: special tokens are part of it, but for the model's first.
  std::string echo_of(const std::vector<std::int32_t>& tokens) const;

  /// Fills in fields that the client left open and makes the checks that need the model; the seed is left
  /// alone.
  /// @param field  where the prompt came from, for errors.
  api_result<sampling_params> complete(const api_request& api, std::size_t prompt_tokens,
                                       std::string_view field) const;
  /// @error names the first id that the model has no token for.
  api_result<void> check_vocabulary(const std::vector<std::int32_t>& ids, std::string_view field) const;
  /// @error 404 "model_not_found", as OpenAI says it, for a name that is neither empty nor one of ours.
  api_result<void> check_model(std::string_view name) const;

  /// The models that requests may name: ours, and its adapters.
  std::vector<model_card> cards() const;
  /// The adapter of this name, else the model, whatever its alias.
  model_card card_of(std::string_view name) const;

  std::uint32_t context_length() const noexcept { return context_length_; }

 private:
  /// A conversation's token ids, by the chat template.
  api_result<std::vector<std::int32_t>> render(const chat_prompt& conversation) const;
  /// Refuses text that cannot fit the context, before time is spent on its tokens.
  api_result<void> may_fit(std::size_t text_bytes, std::string_view field) const;

  std::shared_ptr<const front_context> context_;
  std::optional<tool_format> calls_;         ///< how the model writes calls
  bool general_tools_ = false;               ///< the chat template has no place for tools, and needs none
  bool has_system_ = true;                   ///< the chat template renders system messages
  std::optional<reasoning_form> reasoning_;  ///< how it marks reasoning
  std::uint32_t context_length_ = 0;
  std::size_t longest_piece_ = 1;  ///< bytes that one token stands for at most
  std::vector<std::string> names_;
  bool any_name_ = false;
};

}  // namespace mooncaf
