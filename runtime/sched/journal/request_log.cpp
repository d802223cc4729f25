#include "runtime/sched/journal/request_log.hpp"

#include <utility>

#include "runtime/base/request_ids.hpp"

namespace mooncaf::journal {

namespace {

std::string in_ms(duration d) { return std::to_string(d.count() / 1'000'000) + " ms"; }

std::string to_text(request_end how) {
  switch (how) {
    case request_end::finished:
      return {};
    case request_end::failed:
      return "failed";
    case request_end::cancelled:
      return "cancelled";
    case request_end::refused_at_decode:
      return "refused at decode: its TBT would have been missed, and its prefill was wasted";
    case request_end::withdrawn:
      return "withdrawn while it waited";
  }
  return {};
}

}  // namespace

request_log::entry* request_log::find(request_id id) {
  const auto at = latest_.find(id);
  return at == latest_.end() ? nullptr : &all_[at->second];
}

bool request_log::is_explained(request_id id) const {
  const auto at = latest_.find(id);
  return why_ && at != latest_.end() && at->second == why_->entry;
}

void request_log::asks(std::uint64_t number, const schedule_request& request, time_point now) {
  latest_[request.id] = all_.size();
  const bool meant = explained_ == to_string(request.id) || explained_ == "#" + std::to_string(number);
  if (meant) why_ = reasons{all_.size(), {}, {}, false, {}};
  all_.push_back({number, request.id, now, now, {}, {}});
}

void request_log::waits(const conductor_core& core, const admission_queue& queue, request_id id,
                        time_point now) {
  if (!is_explained(id)) return;
  const auto room = core.room_at(now);
  const auto before = queue.before(id, now);
  auto& text = why_->wait;
  text = "it had to wait: " + std::to_string(before) + " of " + std::to_string(queue.size() - 1) +
         " others that waited were before it";
  if (!room.prefill) text += "; every prefill instance had more in store than it computes in a second";
  if (!room.decode) text += "; every decode instance had a full batch and as many requests to come";
  if (room.both() && before == 0) text += "; decode's memory had no room for it";
}

void request_log::weighs(const conductor_core& core, const schedule_request& request, time_point now) {
  if (!is_explained(request.id)) return;
  why_->weighed = explain(core, request, now);
  why_->was_weighed = true;
}

void request_log::decided(const mooncaf::decision& d, time_point now) {
  auto* e = find(d.id);
  if (e == nullptr) return;
  e->decision = describe(d.outcome);
  e->decided = now;
  e->refused = !d.outcome;
  if (!is_explained(d.id)) return;
  // A request that found the queue full, or no member as its gateway, was never weighed.
  why_->text = why_->was_weighed ? mooncaf::to_text(why_->weighed, d.outcome)
                                 : e->decision + "\nno instance was weighed for it\n";
}

void request_log::ended(request_id id, request_end how) {
  auto* e = find(id);
  if (e != nullptr && !e->refused) e->end = to_text(how);
}

std::string request_log::line_of(const entry& e) const {
  auto out = '#' + std::to_string(e.number) + ' ' + to_string(e.id) + ' ';
  if (e.decision.empty()) return out + (e.end.empty() ? "waits" : e.end);
  out += e.decision;
  if (e.decided > e.asked) out += "; waited " + in_ms(e.decided - e.asked);
  if (!e.end.empty()) out += "; " + e.end;
  return out;
}

std::vector<std::string> request_log::lines() const {
  std::vector<std::string> out;
  out.reserve(all_.size());
  for (const auto& e : all_) out.push_back(line_of(e));
  return out;
}

std::string request_log::why() const {
  if (!why_) return {};
  const auto& e = all_[why_->entry];
  auto out = "request " + to_string(e.id) + " (#" + std::to_string(e.number) + ")\n";
  if (!why_->wait.empty()) {
    out += why_->wait;
    out += e.decision.empty() ? "; it got no place\n"
                              : "; it was decided after " + in_ms(e.decided - e.asked) + "\n";
  }
  out += why_->text;
  if (!e.end.empty()) out += "in the end: " + e.end + "\n";
  // A request that lost its worker, or was refused after its prefill, asks again under another id.
  const auto request = request_of_try(e.id);
  for (const auto& other : all_) {
    if (request && other.id != e.id && request_of_try(other.id) == request)
      out += "another try of it: " + line_of(other) + "\n";
  }
  return out;
}

std::optional<request_id> request_log::explained() const {
  if (!why_) return std::nullopt;
  return all_[why_->entry].id;
}

}  // namespace mooncaf::journal
