#include "runtime/grammar/automaton.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "runtime/grammar/limits.hpp"
#include "runtime/grammar/rule_nfa.hpp"

namespace mooncaf {

namespace {

using state_set = std::vector<std::uint32_t>;

struct set_hash {
  std::size_t operator()(const state_set& s) const noexcept {
    std::uint64_t h = s.size();
    for (const auto v : s) h = std::rotl((h ^ v) * 0x9E3779B97F4A7C15ull, 29);
    return static_cast<std::size_t>(h);
  }
};

}  // namespace

class automaton_builder {
 public:
  explicit automaton_builder(const gbnf_grammar& grammar) : grammar_(grammar) {}

  result<automaton> run() {
    starts_.resize(grammar_.rules.size());
    for (std::uint32_t rule = 0; rule < grammar_.rules.size(); ++rule) {
      if (auto made = add_rule(rule); !made) return fail(made.error());
    }
    // Calls name rules so far; from here on they name places.
    for (auto& call : out_.calls_) call.start = starts_[call.start];
    out_.root_ = starts_[grammar_.root];
    find_nullable();
    if (const auto looping = left_recursive()) {
      return fail(ec::invalid_argument, "rule '" + grammar_.rules[*looping].name.substr(0, 100) +
                                            "' calls itself before any character has come (left recursion)");
    }
    if (auto fine = cut_dead_ends(); !fine) return fail(fine.error());
    return std::move(out_);
  }

 private:
  result<void> add_rule(std::uint32_t rule);
  result<std::uint32_t> subset(state_set set);
  result<void> expand(const rule_nfa& nfa, std::size_t index);
  void find_nullable();
  std::optional<std::uint32_t> left_recursive() const;
  result<void> cut_dead_ends();

  void close(const rule_nfa& nfa, state_set& set);

  const gbnf_grammar& grammar_;
  automaton out_;
  std::vector<std::uint32_t> starts_;  ///< of rules
  std::vector<bool> nullable_;         ///< rules that may be empty
  std::size_t nfa_budget_ = grammar_limits::max_nfa_states;
  std::size_t work_ = 0;
  // Of the rule that is being made.
  std::unordered_map<state_set, std::uint32_t, set_hash> subsets_;
  std::vector<const state_set*> pending_;
  std::vector<bool> seen_;
};

void automaton_builder::close(const rule_nfa& nfa, state_set& set) {
  seen_.resize(nfa.states.size());
  for (const auto s : set) seen_[s] = true;
  for (std::size_t i = 0; i < set.size(); ++i) {
    for (const auto to : nfa.states[set[i]].free) {
      if (seen_[to]) continue;
      seen_[to] = true;
      set.push_back(to);
    }
  }
  work_ += set.size();
  for (const auto s : set) seen_[s] = false;
  // States without an edge or call of their own have served: they only led to others.
  std::erase_if(set, [&](auto s) {
    return s != nfa.end && nfa.states[s].bytes.empty() && nfa.states[s].calls.empty();
  });
  std::ranges::sort(set);
}

result<std::uint32_t> automaton_builder::subset(state_set set) {
  const auto [i, fresh] =
      subsets_.try_emplace(std::move(set), static_cast<std::uint32_t>(out_.places_.size()));
  if (!fresh) return i->second;
  if (out_.places_.size() >= grammar_limits::max_places || work_ > grammar_limits::max_subset_work) {
    return fail(ec::invalid_argument,
                "the grammar is too large: more than " + std::to_string(grammar_limits::max_places) +
                    " places, or " + std::to_string(grammar_limits::max_subset_work) + " steps to find them");
  }
  out_.places_.emplace_back();
  pending_.push_back(&i->first);
  return i->second;
}

result<void> automaton_builder::add_rule(std::uint32_t rule) {
  const auto nfa = rule_nfa::make(grammar_, rule, nfa_budget_);
  if (!nfa) {
    return fail(ec::invalid_argument,
                "the grammar is too large: with its repetitions written out it has more than " +
                    std::to_string(grammar_limits::max_nfa_states) + " states");
  }
  subsets_.clear();
  pending_.clear();
  seen_.assign(nfa->states.size(), false);
  state_set first{nfa->start};
  close(*nfa, first);
  auto start = subset(std::move(first));
  if (!start) return fail(start.error());
  starts_[rule] = *start;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (auto done = expand(*nfa, i); !done) return done;
  }
  return {};
}

/// Finds where the place made of `pending_[index]` leads.
result<void> automaton_builder::expand(const rule_nfa& nfa, std::size_t index) {
  const auto& set = *pending_[index];
  const auto here = subsets_.find(set)->second;
  std::vector<rule_nfa::byte_edge> bytes;
  std::map<std::uint32_t, state_set> calls;
  for (const auto s : set) {
    const auto& state = nfa.states[s];
    bytes.insert(bytes.end(), state.bytes.begin(), state.bytes.end());
    for (const auto& call : state.calls) calls[call.rule].push_back(call.to);
  }
  out_.places_[here].may_end = std::ranges::find(set, nfa.end) != set.end();
  // Byte ranges overlap: cut them where one begins or ends.
  std::array<bool, 257> cut{};
  for (const auto& e : bytes) cut[e.low] = cut[e.high + 1u] = true;
  std::vector<automaton::edge> edges;
  for (unsigned low = 0; low < 256;) {
    unsigned high = low;
    while (high < 255 && !cut[high + 1]) ++high;
    state_set targets;
    for (const auto& e : bytes) {
      if (e.low <= low && low <= e.high) targets.push_back(e.to);
    }
    work_ += bytes.size();
    if (!targets.empty()) {
      std::ranges::sort(targets);
      targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
      close(nfa, targets);
      const auto to = subset(std::move(targets));
      if (!to) return fail(to.error());
      if (!edges.empty() && edges.back().to == *to && edges.back().high + 1u == low) {
        edges.back().high = static_cast<std::uint8_t>(high);
      } else {
        edges.push_back({static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(high), *to});
      }
    }
    low = high + 1;
  }
  std::vector<automaton::call> made;
  for (auto& [rule, targets] : calls) {
    std::ranges::sort(targets);
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    close(nfa, targets);
    const auto to = subset(std::move(targets));
    if (!to) return fail(to.error());
    made.push_back({rule, *to});
  }
  auto& place = out_.places_[here];
  place.edge_begin = static_cast<std::uint32_t>(out_.edges_.size());
  place.edge_count = static_cast<std::uint32_t>(edges.size());
  out_.edges_.insert(out_.edges_.end(), edges.begin(), edges.end());
  place.call_begin = static_cast<std::uint32_t>(out_.calls_.size());
  place.call_count = static_cast<std::uint32_t>(made.size());
  out_.calls_.insert(out_.calls_.end(), made.begin(), made.end());
  return {};
}

/// A rule may be empty if its start leads to an end over calls of such rules alone.
void automaton_builder::find_nullable() {
  const auto rules = starts_.size();
  std::unordered_map<std::uint32_t, std::uint32_t> rule_at;
  for (std::uint32_t r = 0; r < rules; ++r) rule_at[starts_[r]] = r;
  nullable_.assign(rules, false);
  std::vector<bool> empty(out_.places_.size());  // the end can be reached from here without a byte
  std::vector<std::vector<std::uint32_t>> waiting(out_.places_.size());  // places that call over to this one
  std::vector<std::vector<std::uint32_t>> callers(rules);                // places that call this rule
  std::vector<std::uint32_t> todo;
  const auto mark = [&](std::uint32_t place) {
    if (empty[place]) return;
    empty[place] = true;
    todo.push_back(place);
  };
  for (std::uint32_t p = 0; p < out_.places_.size(); ++p) {
    for (const auto& c : out_.calls(p)) {
      waiting[c.to].push_back(p);
      callers[rule_at[c.start]].push_back(p);
    }
    if (out_.ends(p)) mark(p);
  }
  const auto retry = [&](std::uint32_t p) {
    for (const auto& c : out_.calls(p)) {
      if (nullable_[rule_at[c.start]] && empty[c.to]) mark(p);
    }
  };
  while (!todo.empty()) {
    const auto place = todo.back();
    todo.pop_back();
    for (const auto p : waiting[place]) retry(p);
    const auto rule = rule_at.find(place);
    if (rule == rule_at.end() || nullable_[rule->second]) continue;
    nullable_[rule->second] = true;
    for (const auto p : callers[rule->second]) retry(p);
  }
}

/// @returns a rule that reaches a call of itself without a byte. Depth first over places: into each rule that
/// is called, and past it if it may be empty.
std::optional<std::uint32_t> automaton_builder::left_recursive() const {
  std::unordered_map<std::uint32_t, std::uint32_t> rule_at;
  for (std::uint32_t r = 0; r < starts_.size(); ++r) rule_at[starts_[r]] = r;
  // Rules that rule r calls before any byte.
  std::vector<std::vector<std::uint32_t>> first(starts_.size());
  for (std::uint32_t r = 0; r < starts_.size(); ++r) {
    std::vector<std::uint32_t> todo{starts_[r]}, seen{starts_[r]};
    for (std::size_t i = 0; i < todo.size(); ++i) {
      for (const auto& c : out_.calls(todo[i])) {
        const auto called = rule_at.at(c.start);
        first[r].push_back(called);
        if (!nullable_[called] || std::ranges::find(todo, c.to) != todo.end()) continue;
        todo.push_back(c.to);
      }
    }
  }
  enum : std::uint8_t { fresh, open, done };
  std::vector<std::uint8_t> mark(starts_.size(), fresh);
  std::vector<std::pair<std::uint32_t, std::size_t>> path;
  for (std::uint32_t r = 0; r < starts_.size(); ++r) {
    if (mark[r] != fresh) continue;
    path.emplace_back(r, 0);
    mark[r] = open;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next == first[rule].size()) {
        mark[rule] = done;
        path.pop_back();
        continue;
      }
      const auto called = first[rule][next++];
      if (mark[called] == open) return called;
      if (mark[called] == fresh) {
        mark[called] = open;
        path.emplace_back(called, 0);
      }
    }
  }
  return std::nullopt;
}

/// Takes away edges and calls from which no end can be reached, so that every allowed text can be finished.
result<void> automaton_builder::cut_dead_ends() {
  const auto count = out_.places_.size();
  std::vector<bool> alive(count);
  std::vector<std::vector<std::uint32_t>> before(count);  // places that an end here may bring to life
  for (std::uint32_t p = 0; p < count; ++p) {
    for (const auto& e : out_.edges(p)) before[e.to].push_back(p);
    for (const auto& c : out_.calls(p)) before[c.to].push_back(p), before[c.start].push_back(p);
  }
  std::vector<std::uint32_t> todo;
  for (std::uint32_t p = 0; p < count; ++p) {
    if (out_.ends(p)) alive[p] = true, todo.push_back(p);
  }
  while (!todo.empty()) {
    const auto place = todo.back();
    todo.pop_back();
    for (const auto p : before[place]) {
      if (alive[p]) continue;
      const bool lives =
          std::ranges::any_of(out_.edges(p), [&](const auto& e) { return alive[e.to]; }) ||
          std::ranges::any_of(out_.calls(p), [&](const auto& c) { return alive[c.to] && alive[c.start]; });
      if (!lives) continue;
      alive[p] = true;
      todo.push_back(p);
    }
  }
  if (!alive[out_.root_]) return fail(ec::invalid_argument, "the grammar has no answer that ends");
  for (auto& p : out_.places_) {
    const auto edge_begin = out_.edges_.begin() + p.edge_begin;
    const auto call_begin = out_.calls_.begin() + p.call_begin;
    p.edge_count = static_cast<std::uint32_t>(
        std::remove_if(edge_begin, edge_begin + p.edge_count, [&](const auto& e) { return !alive[e.to]; }) -
        edge_begin);
    p.call_count = static_cast<std::uint32_t>(
        std::remove_if(call_begin, call_begin + p.call_count,
                       [&](const auto& c) { return !alive[c.to] || !alive[c.start]; }) -
        call_begin);
  }
  return {};
}

result<automaton> automaton::compile(const gbnf_grammar& grammar) { return automaton_builder{grammar}.run(); }

}  // namespace mooncaf
