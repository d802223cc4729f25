#include "runtime/sched/journal/replay.hpp"

namespace mooncaf::journal {

namespace {

std::string in_us(duration d) { return std::to_string(d.count() / 1000) + " us"; }

std::string describe(const result<void>& r) { return r ? "done" : to_string(r.error()); }

template <class Id>
std::string describe(const std::vector<Id>& ids) {
  std::string out = std::to_string(ids.size());
  for (const auto id : ids) out += " " + to_string(id);
  return out;
}

std::string describe(const expiry& e) {
  return "nodes " + describe(e.nodes) + ", requests " + describe(e.requests);
}

std::string describe(const std::vector<hot_copy>& copies) {
  auto out = std::to_string(copies.size()) + " copies";
  for (const auto& c : copies) {
    out += ", " + std::to_string(c.blocks.size()) + " blocks from node " + to_string(c.source) + " to " +
           to_string(c.target);
  }
  return out;
}

std::string describe(const std::vector<role_change>& changes) {
  if (changes.empty()) return "no role changes";
  std::string out;
  for (const auto& c : changes) {
    out += (out.empty() ? "node " : "; node ") + to_string(c.node) + " " + std::string{to_string(c.step)} +
           " " + std::string{to_string(c.role)};
  }
  return out + " (prefill " + std::to_string(changes.back().prefill_load) + " full, decode " +
         std::to_string(changes.back().decode_load) + ")";
}

std::string describe(const std::vector<scale_wish>& wishes) {
  if (wishes.empty()) return "no other number of nodes";
  return counts_of(wishes.front()) + " (prefill " + std::to_string(wishes.front().prefill_load) +
         " full, decode " + std::to_string(wishes.front().decode_load) + ")";
}

std::string describe(bool b) { return b ? "yes" : "no"; }

std::string describe(const std::vector<decision>& decided) {
  if (decided.empty()) return "nothing is decided";
  std::string out;
  for (const auto& d : decided)
    out += (out.empty() ? "" : "; ") + to_string(d.id) + ": " + journal::describe(d.outcome);
  return out;
}

template <class In>
std::string title(const In&) {
  return In::name;
}
std::string title(const submit& in) { return "submit of request " + to_string(in.request.id); }
std::string title(const withdraw& in) { return "withdraw of request " + to_string(in.id); }

/// The conductor's core, which shows each request that it is about to weigh.
class watched_core final : public conductor_core {
 public:
  watched_core(const conductor_options& options, replay_watcher* watcher)
      : conductor_core(options), watcher_(watcher) {}
  tl::expected<placement, rejection> schedule(const schedule_request& request, time_point now,
                                              double tbt_room) override {
    if (watcher_ != nullptr) watcher_->weighs(*this, request, now);
    return conductor_core::schedule(request, now, tbt_room);
  }

 private:
  replay_watcher* watcher_;
};

/// Core and queue with the journal's options. `play` is overloaded for inputs that the watcher hears of.
class stage {
 public:
  stage(const reader::options& options, replay_watcher* watcher)
      : core_(watched(options.core, watcher), watcher), queue_(core_, options.queue), watcher_(watcher) {}

  template <class In>
  outcome_of<In> play(In& in) {
    return make(in, core_, queue_);
  }
  std::vector<decision> play(submit& in) {
    const bool again = queue_.waits(in.request.id);
    requests_ += !again;
    if (watcher_ != nullptr && !again) watcher_->asks(requests_, in.request, in.now);
    auto decided = told(in.call(queue_), in.now);
    if (watcher_ != nullptr && !again && queue_.waits(in.request.id))
      watcher_->waits(core_, queue_, in.request.id, in.now);
    return decided;
  }
  std::vector<decision> play(advance& in) { return told(in.call(queue_), in.now); }
  bool play(withdraw& in) {
    const bool waited = in.call(queue_);
    if (waited) ended(in.id, request_end::withdrawn);
    return waited;
  }
  void play(finished& in) {
    in.call(core_);
    ended(in.id, request_end::finished);
  }
  void play(failed& in) {
    in.call(core_);
    ended(in.id, request_end::failed);
  }
  void play(cancelled& in) {
    in.call(core_);
    ended(in.id, request_end::cancelled);
  }
  void play(refused_at_decode& in) {
    in.call(core_);
    ended(in.id, request_end::refused_at_decode);
  }
  std::uint64_t requests() const noexcept { return requests_; }

 private:
  std::vector<decision> told(std::vector<decision> decided, time_point now) const {
    if (watcher_ == nullptr) return decided;
    for (const auto& d : decided) watcher_->decided(d, now);
    return decided;
  }
  static conductor_options watched(conductor_options options, const replay_watcher* watcher) {
    options.shadow.remembers = watcher != nullptr && watcher->remembers();
    return options;
  }
  void ended(request_id id, request_end how) const {
    if (watcher_ != nullptr) watcher_->ended(id, how);
  }

  watched_core core_;
  admission_queue queue_;
  replay_watcher* watcher_;
  std::uint64_t requests_ = 0;
};

}  // namespace

std::string describe(const tl::expected<placement, rejection>& answer) {
  if (!answer) {
    const auto& r = answer.error();
    return "refused at " + std::string{to_string(r.stage)} + ": " + to_string(r.cause) + ", again in " +
           in_us(r.retry_after);
  }
  const auto& p = *answer;
  auto out = "prefill " + to_string(p.prefill) + ", decode " + to_string(p.decode) + ", " +
             std::to_string(p.local_blocks) + " blocks there";
  if (p.source) {
    out += ", " + std::to_string(p.source_blocks) + " from node " + to_string(p.source) +
           (p.source_tier == storage_tier::ssd ? "'s disk" : "");
    for (const auto& other : p.beside) out += " and node " + to_string(other.node);
  }
  return out + ", TTFT " + in_us(p.predicted_ttft) + ", TBT " + in_us(p.predicted_tbt);
}

result<replay_result> replay(std::string_view bytes, const std::string& name, replay_watcher* watcher) {
  reader from{bytes, name};
  const auto options = from.begin();
  if (!options) return fail(options.error());
  stage again{*options, watcher};
  replay_result out;
  const auto visit = [&]<class In, class... Outcome>(In& in, const Outcome&... recorded) {
    ++out.records;
    if constexpr (sizeof...(Outcome) == 0) {
      again.play(in);
    } else {
      ++out.decisions;
      const auto answer = again.play(in);
      if ((same(answer, recorded) && ...)) return;
      out.first = {out.records, from.offset(), title(in), (describe(recorded), ...), describe(answer)};
    }
  };
  for (;;) {
    const auto more = from.next(visit);
    if (!more) return fail(more.error());
    if (!*more || out.first) break;
  }
  out.requests = again.requests();
  out.ends_as(from);
  return out;
}

}  // namespace mooncaf::journal
