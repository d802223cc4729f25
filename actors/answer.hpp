#pragma once
// Turns the tokens of one HTTP request's generations into its answer: text pieces as they come, or one body
// at the end.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/client_request.hpp"
#include "actors/http/http_server.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/api/prompt_maker.hpp"
#include "runtime/model/stop_matcher.hpp"
#include "runtime/reasoning/reasoning_reader.hpp"
#include "runtime/text/incremental_decoder.hpp"

namespace mooncaf {

/// What an answer needs to know of its request.
struct answer_setup {
  std::unique_ptr<answer_writer> writer;
  std::string id;  ///< which ids of calls are made from
  std::shared_ptr<http_responder> responder;
  std::shared_ptr<const tokenizer> text;
  http_headers headers;  ///< of the answer, e.g. x-request-id
  bool stream = false;
  bool include_stop = false;   ///< the stop string that ends an answer is part of it
  bool token_ids = false;      ///< ids of prompt and answer beside the text
  bool tokens_as_ids = false;  ///< log-probabilities name tokens as token_id:N
  bool scores_only = false;    ///< the one token that is made is not part of the answer
  int echo_logprobs = -1;      ///< alternatives that are told of an echoed prompt's tokens; -1: nothing
  int prompt_logprobs = -1;    ///< … of a prompt's tokens apart from the text
  std::optional<tool_reading> tools;       ///< how calls are read; nothing: text is text
  std::optional<thought_reading> thought;  ///< how reasoning is read; nothing: it is text
  std::shared_ptr<void> held;              ///< kept until the answer is over
};

/// One per HTTP request; its sinks keep it alive. @thread That of the gateway.
class answer : public std::enable_shared_from_this<answer> {
 public:
  explicit answer(answer_setup setup) : setup_(std::move(setup)) {}
  /// The gateway has dropped the rest: the client gets 503, unless it got its end already.
  ~answer();
  answer(const answer&) = delete;
  answer& operator=(const answer&) = delete;

  /// Adds choice number `choices so far`. Call before the request is submitted.
  /// @param prompt  counted in `usage` for the first answer to it.
  /// @param echo    text that the answer begins with.
  std::shared_ptr<token_sink> add_choice(const sampling_params& sampling,
                                         const std::vector<std::int32_t>& prompt, bool first_answer,
                                         std::string echo);

 private:
  class choice;

  void begin();
  void send(const choice_text& piece);
  void choice_finished(choice_text done, const usage_counts& counts);
  void choice_failed(const error& cause, std::chrono::seconds retry_after);
  void tell(const error& cause, std::chrono::seconds retry_after);
  void finish();

  answer_setup setup_;
  std::size_t choices_ = 0;
  std::size_t open_ = 0;
  bool begun_ = false;
  bool over_ = false;
  bool client_gone_ = false;
  std::vector<choice_text> done_;
  usage_counts usage_;
};

}  // namespace mooncaf
