#include "runtime/engines/engine_core.hpp"

#include <algorithm>

#include "runtime/model/finish_after.hpp"
#include "runtime/sched/block_hash.hpp"

namespace mooncaf {

namespace {

/// An engine that computes may be slow to answer; one that refuses connections is gone at once.
constexpr std::uint32_t most_missed = 3;

}  // namespace

engine_core::engine_core(engine_core_options options)
    : options_(std::move(options)),
      told_(options_.terms.root, options_.block_tokens),
      assumed_(options_.assumed_blocks) {}

/// Changes of the blocks go out behind the tokens that came with them.
engine_actions engine_core::take_actions() {
  if (followed_)
    for (auto& batch : held_.take_changes(options_.self))
      actions_.emplace_back(engine_action::announce{std::move(batch)});
  return std::exchange(actions_, {});
}

// ---- requests ----

void engine_core::take(const work_order& order, time_point now) {
  const auto owner = order.id.owner();
  if (attempts_.empty()) busy_since_ = now;
  auto& a = attempts_[owner];
  a.order = order;
  a.asked = now;
  a.produced = static_cast<std::uint32_t>(order.tokens.size()) - order.prompt_tokens;
  if (leaving_) return fail(owner, {ec::unavailable, "the node leaves"}, true, now);
  if (!away_.empty()) return fail(owner, {ec::unavailable, away_}, true, now);
  if (attempts_.size() > options_.max_attempts)
    return fail(owner,
                {ec::overloaded, "the engine has its " + std::to_string(options_.max_attempts) + " requests"},
                true, now);
  auto body = completion_body(order, options_.terms);
  if (!body) return fail(owner, body.error(), false, now);
  // The last token is always computed.
  const auto usable =
      std::min<std::size_t>(order.keys.size(), (order.tokens.size() - 1) / options_.block_tokens);
  a.cached_tokens = held_.leading(std::span{order.keys}.first(usable)) * options_.block_tokens;
  actions_.emplace_back(engine_action::ask{owner, std::move(*body)});
}

/// Its share of the engine's time, as far as it can be told from outside.
void engine_core::begun(attempt& a, const sampled_token& token, finish_reason finish, time_point now) {
  const auto began = std::max(a.asked, latest_first_);
  first_token out;
  out.id = a.order.id;
  out.token = to_message(token);
  out.finish = finish;
  out.stats.cached_tokens = out.stats.dram_tokens = a.cached_tokens;
  out.stats.computed_tokens = static_cast<std::uint32_t>(a.order.tokens.size()) - a.cached_tokens;
  out.stats.queue_ns = (began - a.asked).count();
  out.stats.compute_ns = (now - began).count();
  latest_first_ = now;
  actions_.emplace_back(std::move(out));
}

void engine_core::stepped(attempt& a, std::size_t tokens, time_point now) {
  step_.steps += tokens;
  step_.step_ns = (now - *a.latest).count() / static_cast<std::int64_t>(tokens);
  usual_context_ = context_tokens_ / decoding_;
  step_.step_batch = decoding_ + others_;
  step_.step_context_tokens = all_context();
}

/// An answer ends where our own workers' would; the engine's word counts where it knows more, e.g. of its context's end.
void engine_core::heard(std::uint64_t owner, const completion_piece& piece, time_point now) {
  const auto i = attempts_.find(owner);
  if (i == attempts_.end()) return;
  auto& a = i->second;
  if (!a.latest && !piece.tokens.empty() && piece.cached_tokens) a.cached_tokens = *piece.cached_tokens;
  token_run run;
  run.id = a.order.id;
  run.position = a.produced;
  auto finish = finish_reason::none;
  std::size_t later = 0;
  for (const auto& token : piece.tokens) {
    finish = finish_after(a.order.sampling, options_.end_ids, ++a.produced, token.id);
    a.answer.push_back(token.id);
    if (!a.latest) {
      begun(a, token, finish, now);
      a.latest = now;
      ++decoding_;
      context_tokens_ += a.order.prompt_tokens + a.produced;
      ++run.position;
    } else {
      run.tokens.push_back(to_message(token));
      ++context_tokens_;
      ++later;
    }
    if (finish != finish_reason::none) break;
  }
  if (later > 0) stepped(a, later, now);
  if (!piece.tokens.empty()) a.latest = now;
  if (finish == finish_reason::none) finish = piece.finish;
  if (finish != finish_reason::none || later > 0) {
    run.finish = finish;
    actions_.emplace_back(std::move(run));
  }
  if (finish == finish_reason::none) return;
  used(a);
  if (!piece.over) actions_.emplace_back(engine_action::hang_up{owner});
  end(owner, now);
}

void engine_core::ended(std::uint64_t owner, const error& why, bool retriable, time_point now) {
  if (why.code == ec::peer_lost && away_.empty()) looked(why, now);
  if (!attempts_.contains(owner)) return;
  if (why.code == ec::none)
    return fail(owner, {ec::unavailable, "the engine's answer has no end"}, true, now);
  fail(owner, why, retriable, now);
}

void engine_core::cancel(const attempt_id& id, time_point now) {
  const auto i = attempts_.find(id.owner());
  if (i == attempts_.end() || i->second.order.id != id) return;
  if (i->second.latest) used(i->second);
  actions_.emplace_back(engine_action::hang_up{id.owner()});
  end(id.owner(), now);
}

void engine_core::peer_lost(node_id peer, time_point now) { (void)answer_roll({peer, {}}, now); }

roll_answer engine_core::answer_roll(const roll_call& call, time_point now) {
  std::vector<attempt_id> strays;
  for (const auto& [owner, a] : attempts_)
    if (a.order.gateway_node == call.gateway && std::ranges::find(call.live, a.order.id) == call.live.end())
      strays.push_back(a.order.id);
  for (const auto& id : strays) cancel(id, now);
  roll_answer out;
  for (const auto& id : call.live) {
    const auto i = attempts_.find(id.owner());
    if (i == attempts_.end() || i->second.order.id != id) out.unknown.push_back(id);
  }
  return out;
}

void engine_core::leave(const error& why, time_point now) {
  leaving_ = true;
  fail_all(why, now);
}

void engine_core::fail(std::uint64_t owner, error cause, bool retriable, time_point now) {
  attempt_failed message;
  message.id = attempts_.at(owner).order.id;
  message.cause = std::move(cause);
  message.retriable = retriable;
  actions_.emplace_back(std::move(message));
  end(owner, now);
}

void engine_core::fail_all(const error& cause, time_point now) {
  std::vector<std::uint64_t> owners;
  for (const auto& [owner, a] : attempts_) owners.push_back(owner);
  for (const auto owner : owners) {
    actions_.emplace_back(engine_action::hang_up{owner});
    fail(owner, cause, true, now);
  }
}

void engine_core::end(std::uint64_t owner, time_point now) {
  const auto i = attempts_.find(owner);
  if (const auto& a = i->second; a.latest) {
    --decoding_;
    context_tokens_ -= a.order.prompt_tokens + a.produced;
  }
  attempts_.erase(i);
  if (attempts_.empty()) busy_ += now - busy_since_;
  actions_.emplace_back(engine_action::forget{owner});
}

// ---- blocks ----

/// Without news: the tokens of a request that ends are taken to lie in the engine's cache, all but the last.
void engine_core::used(const attempt& a) {
  if (options_.told) return;
  auto tokens = a.order.tokens;
  tokens.insert(tokens.end(), a.answer.begin(), a.answer.end());
  if (!tokens.empty()) tokens.pop_back();
  assumed_.used(block_keys(tokens, options_.block_tokens, a.order.root), a.order.root, held_);
}

void engine_core::news(const engine_news& news) {
  if (news.anew) told_.forget(held_);
  for (const auto& event : news.events) told_.apply(event, held_);
}

void engine_core::follow() {
  followed_ = true;
  for (auto& batch : held_.snapshot(options_.self))
    actions_.emplace_back(engine_action::announce{std::move(batch)});
}

// ---- the engine's health ----

void engine_core::looked(const error& why, time_point now) {
  if (why.code == ec::none) {
    missed_ = 0;
    away_.clear();
    return;
  }
  if (++missed_ < most_missed && why.code != ec::peer_lost) return;
  const bool news = std::exchange(away_, to_string(why)).empty();
  if (!news) return;
  // Whatever it held is gone with it; where it is not, its news will say so again.
  told_.forget(held_);
  assumed_.forget(held_);
  others_ = beyond_ours_ = 0;
  fail_all(why, now);
}

/// An answer of ours may have ended here and not yet there, or the other way round: two counts in a row have to say so.
void engine_core::counted(std::uint32_t requests) {
  const auto ours = static_cast<std::uint32_t>(attempts_.size());
  const auto beyond = requests - std::min(requests, ours);
  others_ = std::min(beyond, std::exchange(beyond_ours_, beyond));
}

std::pair<worker_load, worker_load> engine_core::load(time_point now) const {
  worker_load prefill, decode = step_;
  decode.running = decoding_;
  decode.context_tokens = all_context();
  decode.others = others_;
  for (const auto& [owner, a] : attempts_) {
    if (a.latest) continue;
    ++prefill.waiting;
    prefill.waiting_tokens +=
        a.order.tokens.size() - std::min<std::size_t>(a.cached_tokens, a.order.tokens.size());
  }
  // The engine has one device for both.
  const auto busy = busy_ + (attempts_.empty() ? duration{} : now - busy_since_);
  prefill.busy_ns = decode.busy_ns = busy.count();
  prefill.away = decode.away = away_;
  return {std::move(prefill), std::move(decode)};
}

}  // namespace mooncaf
