#include "runtime/grammar/char_language.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "runtime/base/utf8.hpp"
#include "runtime/grammar/regex.hpp"

namespace mooncaf {

namespace {

constexpr char32_t last_char = 0x10FFFF;
constexpr std::size_t most_nfa_states = 20'000;
constexpr std::size_t most_work = 5'000'000;  ///< steps looked at while states are made

result<void> too_large() {
  return fail(ec::invalid_argument, "the patterns and names together make too large an automaton");
}

/// Thompson's construction over characters, of a grammar that has one rule.
class char_nfa {
 public:
  struct state {
    std::vector<std::pair<char_range, std::uint32_t>> steps;
    std::vector<std::uint32_t> free;
  };

  explicit char_nfa(const gbnf_grammar& g) : grammar_(g) {
    add();
    add();
    build(g.rules[g.root].body, 0, 1);
  }

  bool complete() const { return !spent_; }
  const std::vector<state>& states() const { return states_; }

  /// `some` with all that is reached without a character; sorted.
  std::vector<std::uint32_t> closed(std::vector<std::uint32_t> some) const {
    std::vector<bool> seen(states_.size());
    std::vector<std::uint32_t> out;
    while (!some.empty()) {
      const auto s = some.back();
      some.pop_back();
      if (seen[s]) continue;
      seen[s] = true;
      out.push_back(s);
      some.insert(some.end(), states_[s].free.begin(), states_[s].free.end());
    }
    std::ranges::sort(out);
    return out;
  }

 private:
  std::uint32_t add() {
    if (states_.size() >= most_nfa_states) return spent_ = true, 0;
    states_.emplace_back();
    return static_cast<std::uint32_t>(states_.size() - 1);
  }

  void build(std::uint32_t index, std::uint32_t from, std::uint32_t to) {
    if (spent_) return;
    const auto& node = grammar_.nodes[index];
    const auto chain = [&](auto& at, std::uint32_t child) {
      const auto next = add();
      build(child, at, next);
      at = next;
    };
    auto at = from;
    switch (node.what) {
      case gbnf_node::kind::chars:
        for (const auto& r : node.ranges) states_[from].steps.emplace_back(r, to);
        return;
      case gbnf_node::kind::rule:
        return;  // there is one rule, which does not call itself
      case gbnf_node::kind::sequence:
        for (const auto child : node.children) chain(at, child);
        states_[at].free.push_back(to);
        return;
      case gbnf_node::kind::alternatives:
        for (const auto child : node.children) {
          const auto begin = add();
          states_[from].free.push_back(begin);
          build(child, begin, to);
        }
        return;
      case gbnf_node::kind::repeat:
        for (std::uint32_t i = 0; i < node.least && !spent_; ++i) chain(at, node.children.front());
        if (node.most == unbounded) {
          const auto loop = add(), back = add();
          states_[at].free.push_back(loop);
          build(node.children.front(), loop, back);
          states_[back].free.push_back(loop);
          states_[loop].free.push_back(to);
          return;
        }
        for (std::uint32_t i = node.least; i < node.most && !spent_; ++i) {
          states_[at].free.push_back(to);
          chain(at, node.children.front());
        }
        states_[at].free.push_back(to);
        return;
    }
  }

  const gbnf_grammar& grammar_;
  std::vector<state> states_;
  bool spent_ = false;
};

/// Cuts the characters where any of `steps` begins or ends: [low, high] and where each piece leads.
template <class Step>
std::vector<std::pair<char_range, std::vector<std::uint32_t>>> pieces(const std::vector<Step>& steps) {
  std::vector<char32_t> cuts{0};
  for (const auto& [range, to] : steps) {
    cuts.push_back(range.first);
    if (range.second < last_char) cuts.push_back(range.second + 1);
  }
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<std::pair<char_range, std::vector<std::uint32_t>>> out;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const char32_t low = cuts[i], high = i + 1 < cuts.size() ? cuts[i + 1] - 1 : last_char;
    std::vector<std::uint32_t> targets;
    for (const auto& [range, to] : steps) {
      if (range.first <= low && high <= range.second) targets.push_back(to);
    }
    std::ranges::sort(targets);
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    out.emplace_back(char_range{low, high}, std::move(targets));
  }
  return out;
}

}  // namespace

result<char_language> char_language::of_pattern(std::string_view pattern) {
  const auto expression = regex_expression(pattern, false, regex_place::plain);
  if (!expression) return fail(expression.error());
  const auto grammar = parse_gbnf("root ::= " + *expression + "\n");
  if (!grammar) return fail(grammar.error());
  const char_nfa nfa{*grammar};
  if (!nfa.complete()) return fail(too_large().error());
  // A set of the nondeterministic states is one of ours; the empty set is where nothing fits any more.
  std::map<std::vector<std::uint32_t>, std::uint32_t> known;
  std::vector<std::vector<std::uint32_t>> open;
  char_language out;
  const auto state_of = [&](std::vector<std::uint32_t> set) {
    const auto [i, fresh] = known.emplace(std::move(set), static_cast<std::uint32_t>(known.size()));
    if (fresh) {
      open.push_back(i->first);
      out.states_.emplace_back();
      out.states_.back().ends = std::ranges::binary_search(i->first, 1u);
    }
    return i->second;
  };
  state_of(nfa.closed({0}));
  std::size_t work = 0;
  for (std::size_t next = 0; next < open.size(); ++next) {
    if (open.size() > most_states || work > most_work) return fail(too_large().error());
    std::vector<std::pair<char_range, std::uint32_t>> steps;
    const auto set = open[next];
    for (const auto s : set)
      steps.insert(steps.end(), nfa.states()[s].steps.begin(), nfa.states()[s].steps.end());
    work += steps.size() * steps.size() + set.size();
    std::vector<edge> edges;
    for (auto& [range, targets] : pieces(steps)) {
      const auto to = state_of(nfa.closed(std::move(targets)));
      if (!edges.empty() && edges.back().to == to) edges.back().high = range.second;
      else edges.push_back({range.first, range.second, to});
    }
    out.states_[next].edges = std::move(edges);
  }
  return out;
}

char_language char_language::all() {
  char_language out;
  out.states_.push_back({{{0, last_char, 0}}, true});
  return out;
}

char_language char_language::of_texts(std::span<const std::string> texts) {
  char_language out;
  out.states_.resize(2);  // texts begin at 0; at 1 nothing fits any more
  const auto nowhere = [](state& s) { s.edges = {{0, last_char, 1}}; };
  nowhere(out.states_[0]);
  nowhere(out.states_[1]);
  for (const auto& text : texts) {
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < text.size();) {
      const auto c = utf8::next(text, i);
      const auto has = std::ranges::find_if(out.states_[at].edges,
                                            [&](const edge& e) { return e.low <= c && c <= e.high; });
      if (has->to != 1) {
        at = has->to;
        continue;
      }
      const auto fresh = static_cast<std::uint32_t>(out.states_.size());
      std::vector<edge> cut;
      for (const auto& e : out.states_[at].edges) {
        if (c < e.low || e.high < c) {
          cut.push_back(e);
          continue;
        }
        if (e.low < c) cut.push_back({e.low, c - 1, e.to});
        cut.push_back({c, c, fresh});
        if (c < e.high) cut.push_back({c + 1, e.high, e.to});
      }
      out.states_[at].edges = std::move(cut);
      out.states_.emplace_back();
      nowhere(out.states_.back());
      at = fresh;
    }
    out.states_[at].ends = true;
  }
  return out;
}

result<char_language> char_language::of_length(std::uint32_t least, std::uint32_t most) {
  const auto last = most == unbounded ? least : most;
  if (last >= most_states) return fail(too_large().error());
  char_language out;
  for (std::uint32_t i = 0; i <= last; ++i)
    out.states_.push_back({{{0, last_char, most == unbounded && i == last ? i : i + 1}}, i >= least});
  if (most != unbounded) out.states_.push_back({{{0, last_char, last + 1}}, false});
  return out;
}

/// Pairs of states are made as they are reached, since most of the product never is.
result<char_language> char_language::both(const char_language& other) const {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open;
  char_language out;
  const auto state_of = [&](std::uint32_t a, std::uint32_t b) {
    const auto [i, fresh] = known.emplace(std::pair{a, b}, static_cast<std::uint32_t>(known.size()));
    if (fresh) {
      open.emplace_back(a, b);
      out.states_.emplace_back();
      out.states_.back().ends = states_[a].ends && other.states_[b].ends;
    }
    return i->second;
  };
  state_of(0, 0);
  for (std::size_t next = 0; next < open.size(); ++next) {
    if (open.size() > most_states) return fail(too_large().error());
    const auto [a, b] = open[next];
    const auto &left = states_[a].edges, &right = other.states_[b].edges;
    std::vector<edge> edges;
    for (std::size_t i = 0, j = 0; i < left.size() && j < right.size();) {
      const auto to = state_of(left[i].to, right[j].to);
      const auto low = std::max(left[i].low, right[j].low), high = std::min(left[i].high, right[j].high);
      if (!edges.empty() && edges.back().to == to) edges.back().high = high;
      else edges.push_back({low, high, to});
      if (left[i].high == high) ++i;
      if (right[j].high == high) ++j;
    }
    out.states_[next].edges = std::move(edges);
  }
  return out;
}

char_language char_language::others() const {
  auto out = *this;
  for (auto& s : out.states_) s.ends = !s.ends;
  return out;
}

bool char_language::contains(std::string_view text) const {
  std::uint32_t at = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = utf8::next(text, i);
    at = std::ranges::find_if(states_[at].edges, [&](const edge& e) { return c <= e.high; })->to;
  }
  return states_[at].ends;
}

std::vector<bool> char_language::living() const {
  std::vector<std::vector<std::uint32_t>> from(states_.size());
  std::vector<std::uint32_t> open;
  for (std::uint32_t s = 0; s < states_.size(); ++s) {
    for (const auto& e : states_[s].edges) from[e.to].push_back(s);
    if (states_[s].ends) open.push_back(s);
  }
  std::vector<bool> lives(states_.size());
  while (!open.empty()) {
    const auto s = open.back();
    open.pop_back();
    if (lives[s]) continue;
    lives[s] = true;
    open.insert(open.end(), from[s].begin(), from[s].end());
  }
  return lives;
}

bool char_language::empty() const { return !living().front(); }

std::string char_language::expression(const std::string& prefix, std::string& rules) const {
  const auto lives = living();
  const auto name = [&](std::uint32_t s) { return prefix + std::to_string(s); };
  std::vector<bool> written(states_.size());
  std::vector<std::uint32_t> open{0};
  while (!open.empty()) {
    const auto s = open.back();
    open.pop_back();
    if (written[s] || !lives[s]) continue;
    written[s] = true;
    std::map<std::uint32_t, std::vector<char_range>> by_target;
    for (const auto& e : states_[s].edges) {
      if (lives[e.to]) by_target[e.to].emplace_back(e.low, e.high);
    }
    std::string again, on;
    for (const auto& [to, ranges] : by_target) {
      const auto one = chars_expression(ranges, regex_place::json_string);
      if (to == s) again = one + "* ";
      else on += (on.empty() ? "" : " | ") + one + " " + name(to);
      open.push_back(to);
    }
    if (states_[s].ends) on += (on.empty() ? "" : " | ") + std::string{"\"\""};
    rules += name(s) + " ::= " + again + "(" + on + ")\n";
  }
  return name(0);
}

}  // namespace mooncaf
