#include "runtime/sched/request_history.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/sched/answer_class.hpp"
#include "runtime/sched/answer_lengths.hpp"

namespace mooncaf {

void request_history::came(const schedule_request& request, const prefix_holder& holder, std::size_t answer,
                           time_point now) {
  if (where_.contains(request.id)) return;
  past_request r;
  r.id = request.id;
  r.arrival = request.arrival == time_point{} ? now : request.arrival;
  r.prompt_tokens = request.prompt_tokens;
  r.max_tokens = request.max_tokens;
  r.priority = request.priority;
  r.share = request.share;
  r.answer = answer;
  r.holder = holder;
  r.keys.assign(request.keys.begin(), request.keys.end());
  blocks_ += r.keys.size();
  where_.emplace(r.id, first_ + all_.size());
  all_.push_back(std::move(r));
  while (all_.size() > 1 && (all_.size() > limits_.requests || blocks_ > limits_.blocks ||
                             all_.front().arrival < now - limits_.span))
    forget_first();
}

void request_history::forget_first() {
  blocks_ -= all_.front().keys.size();
  where_.erase(all_.front().id);
  all_.pop_front();
  ++first_;
}

past_request* request_history::find(request_id id) {
  const auto at = where_.find(id);
  return at == where_.end() ? nullptr : &all_[at->second - first_];
}

void request_history::begun(request_id id, time_point now) {
  if (auto* r = find(id)) r->first_token = now;
}

void request_history::answered(request_id id, std::uint32_t tokens, time_point now) {
  constexpr double fading = 0.98;
  auto* r = find(id);
  if (r == nullptr) return;
  r->output_tokens = tokens;
  if (r->first_token == time_point{}) return;
  tokens_ = tokens_ * fading + tokens;
  seconds_ = seconds_ * fading + to_seconds(now - r->first_token);
}

/// Tokens of an answer under way: as fast as the ones that have ended.
std::uint32_t request_history::tokens_by(const past_request& r, time_point now) const noexcept {
  if (r.first_token == time_point{} || seconds_ <= 0) return 0;
  const double most = std::max(r.max_tokens, 1u);
  return static_cast<std::uint32_t>(std::min(to_seconds(now - r.first_token) * tokens_ / seconds_, most));
}

std::vector<past_request> request_history::recall(time_point now) const {
  constexpr std::uint32_t ordinary = 256;
  constexpr std::size_t enough = 16;
  constexpr double golden = 0.618033988749895;  // multiples of it fill [0, 1) evenly
  std::vector<past_request> out{all_.begin(), all_.end()};
  std::ranges::stable_sort(out, {}, &past_request::arrival);
  std::array<answer_lengths, answer_class::count> of;
  answer_lengths any;
  const auto tell = [&](answer_lengths& lengths, const past_request& r) {
    if (r.output_tokens > 0) lengths.ended(r.output_tokens);
    else if (r.first_token != time_point{}) lengths.under_way(tokens_by(r, now));
  };
  for (const auto& r : out) tell(of[r.answer], r), tell(any, r);
  for (auto& lengths : of) lengths.sum_up();
  any.sum_up();
  double share = 0.5;
  for (auto& r : out) {
    if (r.output_tokens > 0) continue;
    const auto& lengths = of[r.answer].seen() < enough ? any : of[r.answer];
    share += golden - std::floor(share + golden);
    const auto drawn = lengths.seen() == 0 ? ordinary : lengths.draw(share, tokens_by(r, now));
    r.output_tokens = std::clamp(drawn, 1u, std::max(r.max_tokens, 1u));
  }
  return out;
}

}  // namespace mooncaf
