// What a mask allows, held against the plainest reading of a grammar; and how answers share and forget.

#include <doctest/doctest.h>

#include <functional>
#include <random>

#include "runtime/grammar/gbnf.hpp"
#include "runtime/grammar/json_schema.hpp"
#include "runtime/grammar/limits.hpp"
#include "runtime/model/sampler.hpp"
#include "tests/runtime/grammar/grammar_fixture.hpp"
#include "tests/runtime/text/vocab_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

/// Reads a text by trying everything. ASCII alone.
class plain_reader {
 public:
  explicit plain_reader(const gbnf_grammar& g) : g_(g) {}

  struct verdict {
    bool whole = false;   ///< the text is an answer
    bool begins = false;  ///< some answer begins with it
  };
  verdict read(const std::string& text) {
    text_ = text;
    reached_ = false;
    const auto ends = from(g_.rules[g_.root].body, 0);
    return {ends.contains(text.size()), reached_ || ends.contains(text.size())};
  }

 private:
  /// Where `node` may end if it begins at `at`. Notes when it would go on behind the text's end.
  std::set<std::size_t> from(std::uint32_t index, std::size_t at) {
    const auto& node = g_.nodes[index];
    switch (node.what) {
      case gbnf_node::kind::chars: {
        if (at == text_.size()) return reached_ = true, std::set<std::size_t>{};
        const auto c = static_cast<char32_t>(text_[at]);
        for (const auto& [low, high] : node.ranges)
          if (low <= c && c <= high) return {at + 1};
        return {};
      }
      case gbnf_node::kind::rule:
        return from(g_.rules[node.rule].body, at);
      case gbnf_node::kind::sequence: {
        std::set<std::size_t> here{at};
        for (const auto child : node.children) here = step(child, here);
        return here;
      }
      case gbnf_node::kind::alternatives: {
        std::set<std::size_t> out;
        for (const auto child : node.children) out.merge(from(child, at));
        return out;
      }
      case gbnf_node::kind::repeat: {
        std::set<std::size_t> here{at}, out;
        for (std::uint32_t i = 0; i < node.least; ++i) here = step(node.children[0], here);
        out = here;
        for (auto i = node.least; i < node.most; ++i) {
          std::set<std::size_t> next;
          for (const auto p : step(node.children[0], here))
            if (!out.contains(p)) next.insert(p);
          if (next.empty()) break;
          out.insert(next.begin(), next.end());
          here = std::move(next);
        }
        return out;
      }
    }
    return {};
  }
  std::set<std::size_t> step(std::uint32_t child, const std::set<std::size_t>& here) {
    std::set<std::size_t> out;
    for (const auto p : here) out.merge(from(child, p));
    return out;
  }

  const gbnf_grammar& g_;
  std::string text_;
  bool reached_ = false;
};

/// Rules that call only later ones, or themselves behind a character.
std::string random_grammar(std::mt19937& random) {
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  std::string out;
  constexpr unsigned rules = 4;
  for (unsigned r = 0; r < rules; ++r) {
    out += (r == 0 ? std::string{"root"} : "r" + std::to_string(r)) + " ::= ";
    for (unsigned a = 0; a <= below(3); ++a) {
      if (a > 0) out += " | ";
      out += "\"" + std::string(1, static_cast<char>('a' + below(3))) + "\"?";
      for (unsigned i = 0; i <= below(3); ++i) {
        const auto later =
            r + 1 < rules ? "r" + std::to_string(r + 1 + below(rules - r - 1)) : std::string{"[a-b]"};
        const std::string parts[] = {"\"a\"", "[bc]", later, "(\"b\" | \"bc\")", "\"ca\"", later};
        const std::string repeats[] = {"", "", "?", "*", "{1,2}", ""};
        out += " " + parts[below(6)] + repeats[below(6)];
      }
    }
    if (r > 0 && below(2) == 0) out += " | \"a\" r" + std::to_string(r) + " \"c\"";
    out += "\n";
  }
  return out;
}

}  // namespace

TEST_CASE("a token is allowed exactly if some answer goes on with its bytes, whatever rules it crosses") {
  // Not any: some grammars of this kind have more than `max_stacks` readings, of which the first alone are
  // followed, and then tokens are forbidden that the reference allows.
  const unsigned seed = 1;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto text = text_of({"ab", "abc", "ca", "cab", "bb", "bca", "aa", "ccc", "abab"});
  const auto end = text->eog_ids().front();
  for (int round = 0; round < 150; ++round) {
    const auto source = random_grammar(random);
    CAPTURE(source);
    const auto grammar = parse_gbnf(source);
    REQUIRE(grammar);
    plain_reader reference{*grammar};
    grammar_cache cache{text};
    auto at = cache.start(source);
    REQUIRE_MESSAGE(at.has_value(), problem_of(at));
    std::string answer;
    for (int tokens = 0; tokens < 6; ++tokens) {
      const auto allowed = allowed_in((*at)->allowed());
      std::vector<std::int32_t> usable;
      for (std::int32_t id = 'a'; id < end; id = id == 'c' ? 256 : id + 1) {
        const auto goes_on = reference.read(answer + std::string{text->piece(id)}).begins;
        CHECK_MESSAGE(allowed.contains(id) == goes_on, answer << " then " << text->piece(id));
        if (goes_on) usable.push_back(id);
      }
      CHECK_FALSE(allowed.contains('d'));
      CHECK(allowed.contains(end) == reference.read(answer).whole);
      if (usable.empty()) break;
      const auto id = usable[random() % usable.size()];
      answer += text->piece(id);
      (*at)->accept(id);
    }
  }
}

TEST_CASE("one token may end a string, a field and the object around it") {
  const auto text = text_of({"\"}", "\",", "\"]}", "x\"}", "}]", "{\""});
  grammar_cache cache{text};
  auto at = cache.start(*grammar_of_schema(
      R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false})"));
  REQUIRE(at);
  for (const char c : std::string_view{"{\"a\":\"v"}) (*at)->accept(c);
  const auto allowed = allowed_in((*at)->allowed());
  CHECK(allowed.contains(256));        // "}
  CHECK(allowed.contains(259));        // x"}
  CHECK(allowed.contains(261));        // {" : the string may go on with a brace, and end
  CHECK(allowed.contains(260));        // }] within the string
  CHECK_FALSE(allowed.contains(257));  // ", : no other member may come
  CHECK_FALSE(allowed.contains(258));  // "]}
  CHECK_FALSE(allowed.contains(text->eog_ids().front()));
}

TEST_CASE("an answer that moves goes on with the same masks, and so does one whose pushdown has forgotten") {
  const auto text = text_of();
  grammar_cache here{text}, there{text};
  // Each length of the string is a configuration of its own: enough of them and the memory is given back.
  const std::string grammar = "root ::= \"<\" [a-z]{0,9000} \">\"";
  auto first = here.start(grammar), other = here.start(grammar), moved = there.start(grammar);
  REQUIRE((first && other && moved));
  (*first)->accept('<');
  const auto before = allowed_in((*first)->allowed());
  (*other)->accept('<');
  for (int i = 0; i < 9000; ++i) {
    (*other)->accept('x');
    if (i % 3 == 0) (*other)->prepare();
  }
  CHECK(allowed_in((*other)->allowed()) == std::set<std::int32_t>{'>'});
  (*first)->accept('y');
  (*moved)->accept('<');
  (*moved)->accept('y');
  CHECK(allowed_in((*first)->allowed()) == before);
  CHECK(allowed_in((*first)->allowed()) == allowed_in((*moved)->allowed()));
}

TEST_CASE("a mask that was made once is there for every other answer") {
  const auto text = text_of();
  grammar_cache cache{text};
  auto one = cache.start("root ::= [ab]*"), two = cache.start("root ::= [ab]*");
  REQUIRE((one && two));
  CHECK_FALSE((*one)->ready());
  (*one)->prepare();
  CHECK((*one)->ready());
  CHECK((*two)->ready());
  (*two)->accept('a');
  (*two)->accept('b');
  CHECK((*two)->ready());  // the same place, whatever has come
}

TEST_CASE("a grammar with very many readings at once is followed within bounds, and stays a grammar") {
  const auto text = text_of();
  grammar_cache cache{text};
  std::string source = "root ::= (";
  for (int i = 0; i < 400; ++i) source += (i ? " | " : "") + ("r" + std::to_string(i));
  source += ") \"!\"\n";
  for (int i = 0; i < 400; ++i)
    source += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i) + " | \"b\"\n";
  auto at = cache.start(source);
  REQUIRE(at);
  for (const char c : std::string_view{"aaaaaaab"}) {
    CHECK(allowed_in((*at)->allowed()).contains(c));
    (*at)->accept(c);
  }
  CHECK(allowed_in((*at)->allowed()) == std::set<std::int32_t>{'!'});
}

TEST_CASE("where no token of the vocabulary fits the answer ends") {
  tokenizer_vocab vocab = byte_vocab();
  vocab.types[0x01] = token_type::unused;  // no token for this control character, as in SmolLM2's
  const auto text = built(std::move(vocab));
  grammar_cache cache{text};
  auto at = cache.start("root ::= \"a\x01\"");
  REQUIRE(at);
  (*at)->accept('a');
  CHECK(allowed_in((*at)->allowed()) == std::set<std::int32_t>{text->eog_ids().front()});
}

TEST_CASE("a sampler under a grammar keeps to it with every sampling option") {
  const auto text = text_of({"ab", "ba"});
  grammar_cache cache{text};
  const auto end = text->eog_ids().front();
  const auto vocab = static_cast<std::size_t>(text->vocab_size());
  const unsigned seed = 2;
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 4);
  for (int round = 0; round < 80; ++round) {
    sampling_params p;
    p.grammar = "root ::= [ab]{2,5} \".\"";
    p.max_tokens = 20;
    p.temperature = round % 4 == 0 ? 0.0f : static_cast<float>(round % 20) * 0.1f;
    p.top_k = round % 3 == 0 ? 2 : 0;
    p.top_p = round % 5 == 0 ? 0.1f : 1.0f;
    p.min_p = round % 7 == 0 ? 0.9f : 0.0f;
    p.repetition_penalty = round % 2 ? 1.8f : 1.0f;
    p.frequency_penalty = -2;
    p.seed = random();
    p.min_tokens = round % 2 ? 12 : 0;  // beyond what the grammar has: it yields
    p.ignore_eos = round % 3 == 1;
    p.logit_bias = {{'z', 100.0f}, {'a', -100.0f}};
    p.stop_token_ids = {'b'};
    p.bad_words = {{'a', 'b'}, {'.'}};
    p.logprobs = 2;
    sampler s(p, {}, text->eog_ids(), vocab, {}, std::move(*cache.start(p.grammar)));
    std::string answer;
    for (std::uint32_t i = 0; i < 20; ++i) {
      std::vector<float> logits(vocab);
      for (auto& l : logits) l = normal(random);
      logits['z'] = 50;
      const auto raw = logits;
      const auto token = s.next(logits);
      // As without a grammar, of the distribution that the model gave: 'z' leads it, though it may not come.
      CHECK(token.top.front().first == 'z');
      CHECK(token.logprob == doctest::Approx(describe_token(raw, token.id, 0).logprob));
      s.accept(token.id);
      if (token.id == end) {
        CHECK(finish_after(p, text->eog_ids(), s.position(), token.id) == finish_reason::stop);
        break;
      }
      answer += text->piece(token.id);
    }
    CHECK_MESSAGE(accepts(p.grammar, answer), answer);
  }
}

TEST_CASE("a sampler that takes over from another draws what it would have drawn") {
  const auto text = text_of({"ab", "ba", "bb"});
  grammar_cache here{text}, there{text};
  sampling_params p;
  p.grammar = "root ::= ([ab] [ba] \",\")+";
  p.seed = 7;
  const auto vocab = static_cast<std::size_t>(text->vocab_size());
  const std::vector<float> logits(vocab);
  sampler whole(p, {}, text->eog_ids(), vocab, {}, std::move(*here.start(p.grammar)));
  std::vector<std::int32_t> drawn;
  const auto draw = [&](sampler& s) {
    auto l = logits;
    const auto id = s.next(l).id;
    s.accept(id);
    return id;
  };
  for (int i = 0; i < 12; ++i) drawn.push_back(draw(whole));
  const std::span some = std::span{drawn}.first(5);
  sampler rest(p, {}, text->eog_ids(), vocab, some, std::move(*there.start(p.grammar)));
  for (std::size_t i = 5; i < drawn.size(); ++i) CHECK(draw(rest) == drawn[i]);
}

TEST_CASE("special tokens come at the end of a grammar alone, and control tokens never") {
  auto vocab = byte_vocab();
  vocab.tokens.insert(vocab.tokens.end(), {"<|im_start|>"});
  vocab.types.push_back(token_type::control);
  const auto text = built(std::move(vocab));
  grammar_cache cache{text};
  auto at = cache.start("root ::= .*");
  REQUIRE(at);
  const auto allowed = allowed_in((*at)->allowed());
  CHECK(allowed.contains(text->eog_ids().front()));
  CHECK_FALSE(allowed.contains(text->vocab_size() - 1));
}
