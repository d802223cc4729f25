#include "runtime/grammar/rule_nfa.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "runtime/base/utf8.hpp"

namespace mooncaf {

std::optional<rule_nfa> rule_nfa::make(const gbnf_grammar& grammar, std::uint32_t rule, std::size_t& budget) {
  rule_nfa out;
  out.budget_ = budget;
  out.start = out.add();
  out.end = out.add();
  out.build(grammar, grammar.rules[rule].body, out.start, out.end);
  if (out.spent_) return std::nullopt;
  budget = out.budget_;
  return out;
}

std::uint32_t rule_nfa::add() {
  if (budget_ == 0) {
    spent_ = true;
    return 0;
  }
  --budget_;
  states.emplace_back();
  return static_cast<std::uint32_t>(states.size() - 1);
}

void rule_nfa::build(const gbnf_grammar& g, std::uint32_t index, std::uint32_t from, std::uint32_t to) {
  if (spent_) return;
  const auto& node = g.nodes[index];
  switch (node.what) {
    case gbnf_node::kind::chars:
      return chars(node.ranges, from, to);
    case gbnf_node::kind::rule:
      states[from].calls.push_back({node.rule, to});
      return;
    case gbnf_node::kind::sequence: {
      auto at = from;
      for (const auto child : node.children) {
        const auto next = add();
        if (spent_) return;
        build(g, child, at, next);
        at = next;
      }
      states[at].free.push_back(to);
      return;
    }
    case gbnf_node::kind::alternatives:
      for (const auto child : node.children) {
        // A state of its own, as an alternative that begins with a repetition leads back to its beginning.
        const auto begin = add();
        if (spent_) return;
        states[from].free.push_back(begin);
        build(g, child, begin, to);
      }
      return;
    case gbnf_node::kind::repeat:
      return repeat(g, node, from, to);
  }
}

void rule_nfa::repeat(const gbnf_grammar& g, const gbnf_node& node, std::uint32_t from, std::uint32_t to) {
  const auto inner = node.children.front();
  auto at = from;
  const auto once = [&] {
    const auto next = add();
    if (spent_) return;
    build(g, inner, at, next);
    at = next;
  };
  for (std::uint32_t i = 0; i < node.least && !spent_; ++i) once();
  if (node.most == unbounded) {
    const auto loop = add(), back = add();
    if (spent_) return;
    states[at].free.push_back(loop);
    build(g, inner, loop, back);
    if (spent_) return;
    states[back].free.push_back(loop);
    states[loop].free.push_back(to);
    return;
  }
  for (std::uint32_t i = node.least; i < node.most && !spent_; ++i) {
    states[at].free.push_back(to);
    once();
  }
  if (!spent_) states[at].free.push_back(to);
}

void rule_nfa::chars(const std::vector<char_range>& ranges, std::uint32_t from, std::uint32_t to) {
  // The last characters of one, two, three and four bytes.
  constexpr std::array<char32_t, 4> longest{0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  for (auto [low, high] : ranges) {
    for (const auto last : longest) {
      if (low > high || spent_) break;
      if (low > last) continue;
      char_span(low, std::min(high, last), from, to);
      low = last + 1;
    }
  }
}

/// Characters of one length. The range is cut until the bytes behind the first may all be anything.
void rule_nfa::char_span(char32_t low, char32_t high, std::uint32_t from, std::uint32_t to) {
  if (spent_) return;
  std::string first, last;
  utf8::append(first, low);
  utf8::append(last, high);
  for (std::size_t tail = 1; tail < first.size(); ++tail) {
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      char_span(low, low | mask, from, to);
      return char_span((low | mask) + 1, high, from, to);
    }
    if ((high & mask) != mask) {
      char_span(low, (high & ~mask) - 1, from, to);
      return char_span(high & ~mask, high, from, to);
    }
  }
  auto at = from;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto next = i + 1 == first.size() ? to : add();
    if (spent_) return;
    states[at].bytes.push_back(
        {static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i]), next});
    at = next;
  }
}

}  // namespace mooncaf
