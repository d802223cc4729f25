#include "actors/answer.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

class answer::choice final : public token_sink {
 public:
  choice(std::shared_ptr<answer> owner, std::uint32_t index, const sampling_params& sampling,
         const std::vector<std::int32_t>& prompt, bool first_answer, std::string echo)
      : owner_(std::move(owner)),
        decoder_(owner_->setup_.text),
        stops_(sampling.stop, owner_->setup_.include_stop),
        min_tokens_(sampling.min_tokens),
        wants_logprobs_(sampling.logprobs >= 0),
        prompt_tokens_(first_answer ? static_cast<std::uint32_t>(prompt.size()) : 0),
        pending_(std::move(echo)) {
    whole_.index = index;
    if (wants_logprobs_) whole_.logprobs.emplace();
    if (owner_->setup_.token_ids) {
      whole_.token_ids.emplace();
      whole_.prompt_token_ids = prompt;
    }
    if (const auto& t = owner_->setup_.tools) {
      reader_.emplace(t->format, t->forced, t->several, t->functions);
      markers_ = t->markers;
    }
    if (const auto& t = owner_->setup_.thought) {
      thought_.emplace(t->form, t->state);
      markers_.insert(markers_.end(), t->markers.begin(), t->markers.end());
    }
  }

  void prompt(std::span<const std::int32_t> tokens, std::span<const sampled_token> scores) override {
    const auto& text = owner_->setup_.text;
    const auto scored = [&](std::size_t i, int most) {
      if (i == 0) return token_logprob{std::string{text->piece(tokens[0])}, std::nullopt, {}, 0, tokens[0]};
      auto score = scores[i - 1];
      score.top.resize(std::min(score.top.size(), static_cast<std::size_t>(most)));
      return describe(score);
    };
    if (const auto most = owner_->setup_.prompt_logprobs; most >= 0) {
      auto& all = whole_.prompt_logprobs.emplace();
      for (std::size_t i = 0; i < tokens.size(); ++i) all.push_back(scored(i, most));
    }
    if (owner_->setup_.echo_logprobs < 0) return;
    // The same text as `echo`, token by token: all special tokens but the model's first.
    incremental_decoder decoder{text, special_text::show, stream_start::begins_text};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      note(scored(i, owner_->setup_.echo_logprobs));
      if (i > 0 || !text->add_bos() || tokens[0] != text->bos())
        described_ += count_characters(decoder.push(tokens[i]));
    }
    described_ += count_characters(decoder.finish());
  }

  void pooled(std::span<const float> values) override {
    whole_.embedding.assign(values.begin(), values.end());
  }

  bool token(const sampled_token& t) override {
    if (owner_->setup_.scores_only) return true;
    ++tokens_;
    if (thought_ && thought_->thinking()) ++thought_tokens_;
    auto piece = decoder_.push(t.id);
    if (std::ranges::find(markers_, t.id) != markers_.end()) piece += owner_->setup_.text->piece(t.id);
    if (wants_logprobs_) note(describe(t));
    if (whole_.token_ids) whole_.token_ids->push_back(t.id);
    described_ += count_characters(piece);
    take(stops_.feed(piece, tokens_ > min_tokens_));
    flush({});
    return !stops_.stopped() && !(reader_ && reader_->complete()) && !owner_->client_gone_ && !owner_->over_;
  }

  void finished(finish_reason reason, const generation_report& report) override {
    if (!stops_.stopped()) {
      take(stops_.feed(decoder_.finish(), tokens_ > min_tokens_));
      take(stops_.finish());
    }
    if (thought_) heed(thought_->finish());
    if (reader_) add(reader_->finish());
    whole_.stopped_by = stops_.matched();
    const bool cut = reason == finish_reason::length || owner_->setup_.scores_only;
    flush(cut ? "length" : reader_ && reader_->calls() > 0 ? "tool_calls" : "stop");
    usage_counts used{prompt_tokens_, 0, tokens_, thought_ && has_thought_ ? thought_tokens_ : 0};
    if (prompt_tokens_ > 0) {
      used.cached_tokens = report.cached_tokens;
      const auto beyond = [&](std::uint32_t kept) { return kept - std::min(kept, report.cached_tokens); };
      used.created_tokens = beyond(report.prefill.kept_tokens);
      used.created_long_tokens = beyond(report.prefill.kept_long_tokens);
    }
    owner_->choice_finished(std::move(whole_), used);
  }

  void failed(const error& cause, std::chrono::seconds retry_after) override {
    owner_->choice_failed(cause, retry_after);
  }

 private:
  /// A token that begins after `described_` whole characters.
  void note(token_logprob t) {
    t.offset = described_;
    logprobs_.push_back(std::move(t));
  }

  /// Text that is certain: reasoning, content, or part of a call.
  void take(const std::string& said) {
    if (thought_) heed(thought_->feed(said));
    else say(said);
  }

  void heed(const thought_parts& parts) {
    has_thought_ |= !parts.reasoning.empty();
    if (owner_->setup_.thought->shown) pending_thought_ += parts.reasoning;
    say(parts.rest);
  }

  void say(const std::string& said) {
    if (reader_) add(reader_->feed(said));
    else pending_ += said;
  }

  void add(answer_parts parts) {
    pending_ += parts.content;
    for (auto& c : parts.calls) {
      auto id = c.name.empty() ? std::string{} : call_id(c.index);
      calls_.push_back({c.index, std::move(id), std::move(c.name), std::move(c.arguments)});
    }
  }

  /// Nine letters and digits, which is what Mistral's templates take back.
  std::string call_id(std::uint32_t call) const {
    constexpr std::string_view signs = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    auto rest =
        hash_text128(owner_->setup_.id + ' ' + std::to_string(whole_.index) + ' ' + std::to_string(call)).low;
    std::string out;
    for (int i = 0; i < 9; ++i, rest /= signs.size()) out += signs[rest % signs.size()];
    return out;
  }

  token_logprob describe(const sampled_token& t) const {
    const auto name = [this](std::int32_t id) {
      const auto& setup = owner_->setup_;
      return setup.tokens_as_ids ? "token_id:" + std::to_string(id) : std::string{setup.text->piece(id)};
    };
    token_logprob out{name(t.id), t.logprob, {}, 0, t.id};
    for (const auto& [id, logprob] : t.top) {
      out.top.emplace_back(name(id), logprob);
      out.top_ids.push_back(id);
    }
    return out;
  }

  /// Sends or keeps what has become certain since the last time.
  void flush(std::string reason) {
    const bool streams = owner_->setup_.stream;
    if (!streams) {
      whole_.reasoning += std::exchange(pending_thought_, {});
      whole_.text += std::exchange(pending_, {});
      for (auto& c : calls_) {
        if (!c.name.empty()) whole_.calls.push_back(std::move(c));
        else whole_.calls.back().arguments += c.arguments;
      }
      calls_.clear();
      whole_.finish_reason = std::move(reason);
      for (auto& t : logprobs_) whole_.logprobs->push_back(std::move(t));
      logprobs_.clear();
      return;
    }
    const bool ids = whole_.token_ids && !whole_.token_ids->empty();
    if (pending_.empty() && pending_thought_.empty() && calls_.empty() && logprobs_.empty() && !ids &&
        reason.empty() && !first_)
      return;
    choice_text piece;
    piece.index = whole_.index;
    if (!pending_thought_.empty() && !pending_.empty()) {  // a piece is of one kind
      piece.reasoning = std::exchange(pending_thought_, {});
      piece.role = std::exchange(first_, false);
      owner_->send(piece);
      piece = {};
      piece.index = whole_.index;
    }
    piece.reasoning = std::exchange(pending_thought_, {});
    piece.text = std::exchange(pending_, {});
    piece.calls = std::exchange(calls_, {});
    piece.role = std::exchange(first_, false);
    if (wants_logprobs_) piece.logprobs = std::exchange(logprobs_, {});
    if (whole_.token_ids) {
      piece.token_ids = std::exchange(*whole_.token_ids, {});
      piece.prompt_token_ids = std::exchange(whole_.prompt_token_ids, {});
    }
    piece.prompt_logprobs = std::exchange(whole_.prompt_logprobs, std::nullopt);
    piece.finish_reason = std::move(reason);
    piece.stopped_by = whole_.stopped_by;
    owner_->send(piece);
  }

  const std::shared_ptr<answer> owner_;
  incremental_decoder decoder_;
  stop_matcher stops_;
  std::optional<reasoning_reader> thought_;
  std::optional<tool_call_reader> reader_;
  std::vector<std::int32_t> markers_;  ///< special tokens that the readers have to see
  const std::uint32_t min_tokens_;
  const bool wants_logprobs_;
  const std::uint32_t prompt_tokens_;
  std::uint32_t tokens_ = 0;
  std::uint32_t thought_tokens_ = 0;  ///< of them: so many of the reasoning, if there is any
  bool has_thought_ = false;
  std::uint32_t described_ = 0;  ///< whole characters of the tokens so far
  bool first_ = true;
  std::string pending_thought_;          ///< reasoning that is certain and not sent
  std::string pending_;                  ///< text that is certain and not sent
  std::vector<tool_call_text> calls_;    ///< pieces of calls that are certain and not sent
  std::vector<token_logprob> logprobs_;  ///< of tokens that are not sent
  choice_text whole_;                    ///< without streaming: the answer so far; else ids that are not sent
};

std::shared_ptr<token_sink> answer::add_choice(const sampling_params& sampling,
                                               const std::vector<std::int32_t>& prompt, bool first_answer,
                                               std::string echo) {
  ++open_;
  return std::make_shared<choice>(shared_from_this(), static_cast<std::uint32_t>(choices_++), sampling,
                                  prompt, first_answer, std::move(echo));
}

void answer::begin() {
  if (std::exchange(begun_, true)) return;
  auto headers = setup_.headers;
  headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  headers.emplace_back("Cache-Control", "no-cache");
  setup_.responder->begin_stream(200, std::move(headers));
  if (const auto events = setup_.writer->begin(); !events.empty()) setup_.responder->write(events);
}

void answer::send(const choice_text& piece) {
  if (over_) return;
  begin();
  const auto events = setup_.writer->piece(piece);
  if (!events.empty() && !setup_.responder->write(events)) client_gone_ = true;
}

void answer::choice_finished(choice_text finished, const usage_counts& counts) {
  usage_.prompt_tokens += counts.prompt_tokens;
  usage_.cached_tokens += counts.cached_tokens;
  usage_.completion_tokens += counts.completion_tokens;
  usage_.reasoning_tokens += counts.reasoning_tokens;
  usage_.created_tokens += counts.created_tokens;
  usage_.created_long_tokens += counts.created_long_tokens;
  done_.push_back(std::move(finished));
  if (--open_ == 0) finish();
}

void answer::choice_failed(const error& cause, std::chrono::seconds retry_after) {
  --open_;
  if (std::exchange(over_, true)) return;
  tell(cause, retry_after);
}

answer::~answer() {
  if (!over_) tell(error{ec::unavailable, "the server is stopping"}, std::chrono::seconds(1));
}

void answer::tell(const error& cause, std::chrono::seconds retry_after) {
  if (begun_) {
    setup_.responder->write(setup_.writer->error_event(cause));
    setup_.responder->finish();
    return;
  }
  const auto e = setup_.writer->refusal(cause, retry_after.count());
  auto headers = setup_.headers;
  headers.emplace_back("Content-Type", "application/json");
  if (e.retry_after_s > 0) headers.emplace_back("Retry-After", std::to_string(e.retry_after_s));
  setup_.responder->respond(e.status, std::move(headers), e.body);
}

void answer::finish() {
  if (std::exchange(over_, true)) return;
  if (setup_.stream) {
    begin();
    setup_.responder->write(setup_.writer->end(usage_));
    setup_.responder->finish();
    return;
  }
  std::ranges::sort(done_, {}, &choice_text::index);
  auto headers = setup_.headers;
  headers.emplace_back("Content-Type", "application/json");
  setup_.responder->respond(200, std::move(headers), setup_.writer->whole(done_, usage_));
}

}  // namespace mooncaf
