#include "runtime/sched/journal/against.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "runtime/base/request_ids.hpp"
#include "runtime/sched/journal/reader.hpp"
#include "runtime/sched/journal/replay.hpp"

namespace mooncaf::journal {

namespace {

class decision_collector {
 public:
  template <class In, class... Outcome>
  void operator()(In& in, const Outcome&... outcome) {
    if constexpr (std::is_same_v<In, submit>) asked(in);
    if constexpr (asks_queue<In>) (decide(in, outcome), ...);
    if constexpr (std::is_same_v<In, first_token>) computed(in);
    if constexpr (std::is_same_v<In, refused_at_decode>) {
      if (auto* r = find(in.id)) r->refused_at_decode = true;
    }
  }

  std::vector<decided_request> take() {
    std::ranges::stable_sort(all_, {}, &decided_request::arrival);
    return std::move(all_);
  }

 private:
  /// Nothing for a later try.
  decided_request* find(request_id one_try) {
    const auto at = by_try_.find(one_try);
    return at == by_try_.end() ? nullptr : &all_[at->second];
  }

  /// One that waits asks again under the same id, one that lost its worker under the next.
  void asked(const submit& in) {
    if (!tries_.insert(in.request.id).second) return;
    if (!requests_.insert(request_of_try(in.request.id)).second) return;
    by_try_[in.request.id] = all_.size();
    const auto arrival = in.request.arrival == time_point{} ? in.now : in.request.arrival;
    auto& r = all_.emplace_back();
    r.number = tries_.size();
    r.id = in.request.id;
    r.prompt_tokens = in.request.prompt_tokens;
    r.arrival = arrival;
  }

  template <class In>
  void decide(const In& in, const std::vector<decision>& decided) {
    for (const auto& d : decided) {
      auto* r = find(d.id);
      if (r == nullptr || r->outcome) continue;
      r->outcome = d.outcome;
      r->decided = in.now;
    }
  }
  void decide(const withdraw&, bool) {}

  void computed(const first_token& in) {
    auto* r = find(in.id);
    if (r == nullptr || r->ttft) return;
    r->ttft = in.now - r->arrival;
    r->cached_tokens = in.cached_tokens;
  }

  std::vector<decided_request> all_;
  std::unordered_map<request_id, std::size_t> by_try_;
  std::unordered_set<request_id> tries_, requests_;
};

journal_sums sums_of(const std::vector<decided_request>& all) {
  journal_sums out;
  std::vector<duration> ttfts;
  duration waited{}, ttft{};
  std::uint64_t decided = 0, prompt = 0, cached = 0;
  for (const auto& r : all) {
    out.refused += r.refused();
    if (r.outcome) {
      ++decided;
      waited += r.decided - r.arrival;
    }
    if (!r.ttft) continue;
    ttfts.push_back(*r.ttft);
    ttft += *r.ttft;
    prompt += r.prompt_tokens;
    cached += r.cached_tokens;
  }
  out.requests = all.size();
  if (decided > 0) out.mean_wait = waited / static_cast<std::int64_t>(decided);
  if (ttfts.empty()) return out;
  const auto p90 = ttfts.begin() + static_cast<std::ptrdiff_t>((ttfts.size() - 1) * 9 / 10);
  std::ranges::nth_element(ttfts, p90);
  out.p90_ttft = *p90;
  out.mean_ttft = ttft / static_cast<std::int64_t>(ttfts.size());
  out.reused = prompt == 0 ? 0 : static_cast<double>(cached) / static_cast<double>(prompt);
  return out;
}

/// Ids of two clusters, paired as they are first met.
template <class Id>
class pairing {
 public:
  /// @returns whether `one` and `other` are each other's, which they become if neither has a partner.
  bool match(Id one, Id other) {
    const auto there = forth_.find(one);
    const auto back = back_.find(other);
    if (there == forth_.end() && back == back_.end()) {
      forth_[one] = other;
      back_[other] = one;
      return true;
    }
    return there != forth_.end() && there->second == other;
  }

 private:
  std::unordered_map<Id, Id> forth_, back_;
};

class comparing {
 public:
  void pair(const decided_request& a, const decided_request& b, comparison& out) {
    ++out.in_both;
    if (auto* of = what_differs(a, b, out)) {
      ++*of;
      if (!out.differs) out.differs = {&a, &b};
    } else {
      ++out.alike;
    }
  }

 private:
  std::uint64_t* what_differs(const decided_request& a, const decided_request& b, comparison& out) {
    if (a.refused() != b.refused()) return &out.refused_in_one;
    if (a.outcome.has_value() != b.outcome.has_value()) return &out.undecided_in_one;
    if (!a.outcome || !*a.outcome || !*b.outcome) return nullptr;
    const auto &p = **a.outcome, &q = **b.outcome;
    // Both are asked, so that instances are paired whatever else differs; nodes for the sake of fetches.
    const bool prefill = instances_.match(p.prefill, q.prefill);
    const bool decode = instances_.match(p.decode, q.decode);
    nodes_.match(p.prefill_node, q.prefill_node);
    nodes_.match(p.decode_node, q.decode_node);
    if (!prefill) return &out.other_prefill;
    if (!decode) return &out.other_decode;
    const bool fetches = p.source.value != 0, same_fetch = fetches == (q.source.value != 0);
    if (p.local_blocks != q.local_blocks || !same_fetch) return &out.other_prefix;
    if (!fetches) return nullptr;
    return p.source_blocks == q.source_blocks && p.source_tier == q.source_tier &&
                   nodes_.match(p.source, q.source)
               ? nullptr
               : &out.other_prefix;
  }

  pairing<worker_id> instances_;
  pairing<node_id> nodes_;
};

/// How many requests of each journal to leave out, at the fewest, to come to a pair again.
struct leap {
  std::size_t first = 1, second = 1;
};

leap next_pair(std::span<const decided_request> a, std::span<const decided_request> b) {
  constexpr std::size_t furthest = 256;
  for (std::size_t both = 1; both <= furthest; ++both) {
    for (std::size_t i = 0; i <= both; ++i) {
      const auto j = both - i;
      if (i < a.size() && j < b.size() && a[i].prompt_tokens == b[j].prompt_tokens) return {i, j};
    }
  }
  return {};
}

std::string ms_text(duration d) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f ms", to_seconds(d) * 1e3);
  return text.data();
}

std::string percent_text(double share) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

std::string decided_line(const decided_request& r) {
  auto out = '#' + std::to_string(r.number) + " (" + to_string(r.id) + "), " +
             std::to_string(r.prompt_tokens) + " tokens: ";
  if (!r.outcome) return out + "undecided";
  out += describe(*r.outcome) + "; waited " + ms_text(r.decided - r.arrival);
  return r.refused_at_decode ? out + "; refused at decode" : out;
}

}  // namespace

result<decided_requests> decisions_of(std::string_view bytes, const std::string& name) {
  reader from{bytes, name};
  if (const auto options = from.begin(); !options) return fail(options.error());
  decision_collector requests;
  for (;;) {
    const auto more = from.next(requests);
    if (!more) return fail(more.error());
    if (*more) continue;
    return decided_requests{requests.take(), from.missing(), from.end()};
  }
}

comparison compare(const decided_requests& first, const decided_requests& second) {
  comparison out;
  out.first = sums_of(first.all);
  out.second = sums_of(second.all);
  std::span<const decided_request> a = first.all, b = second.all;
  comparing pairs;
  while (!a.empty() && !b.empty()) {
    leap to{0, 0};
    if (a.front().prompt_tokens != b.front().prompt_tokens) {
      to = next_pair(a, b);
      if (!out.differs)
        out.differs = {to.first > 0 ? &a.front() : nullptr, to.second > 0 ? &b.front() : nullptr};
    } else {
      pairs.pair(a.front(), b.front(), out);
      to = {1, 1};
    }
    a = a.subspan(to.first);
    b = b.subspan(to.second);
  }
  if (!out.differs && a.size() + b.size() > 0)
    out.differs = {a.empty() ? nullptr : &a.front(), b.empty() ? nullptr : &b.front()};
  return out;
}

/// A table of both, then the counts, then one pair: from the whole to what explains it.
std::string to_text(const comparison& c, const std::pair<std::string, std::string>& names) {
  std::string out = "A: " + names.first + "\nB: " + names.second + "\n\n";
  const auto row = [&](const char* what, const std::string& a, const std::string& b) {
    std::array<char, 128> line;
    std::snprintf(line.data(), line.size(), "%-24s %14s %14s\n", what, a.c_str(), b.c_str());
    out += line.data();
  };
  const auto &a = c.first, &b = c.second;
  row("", "A", "B");
  row("requests", std::to_string(a.requests), std::to_string(b.requests));
  row("refused", std::to_string(a.refused), std::to_string(b.refused));
  row("wait for the decision", ms_text(a.mean_wait), ms_text(b.mean_wait));
  row("TTFT, mean", ms_text(a.mean_ttft), ms_text(b.mean_ttft));
  row("TTFT, p90", ms_text(a.p90_ttft), ms_text(b.p90_ttft));
  row("prompt tokens reused", percent_text(a.reused), percent_text(b.reused));
  out += '\n' + std::to_string(c.in_both) + " requests are in both, " + std::to_string(c.alike) +
         " decided alike\n";
  const auto count = [&](std::uint64_t n, const char* what) {
    if (n > 0) out += "  " + std::to_string(n) + ' ' + what + '\n';
  };
  count(c.refused_in_one, "refused in one alone");
  count(c.undecided_in_one, "undecided in one alone");
  count(c.other_prefill, "to another prefill instance");
  count(c.other_decode, "to another decode instance");
  count(c.other_prefix, "with another prefix reused");
  if (!c.differs) return out;
  const auto side = [](const decided_request* r) {
    return r == nullptr ? std::string{"not there"} : decided_line(*r);
  };
  return out + "the first that differs:\n  A: " + side(c.differs->first) +
         "\n  B: " + side(c.differs->second) + '\n';
}

}  // namespace mooncaf::journal
