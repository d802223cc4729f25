#include "runtime/text/jinja/parser.hpp"

#include <algorithm>

#include "runtime/text/jinja/functions.hpp"

namespace mooncaf::jinja {

namespace {

constexpr int max_nesting = 60;  ///< of statements

}  // namespace

void parser::complain(const std::string& what) const {
  throw template_error{"line " + std::to_string(now().line) + ": " + what};
}

token parser::take() {
  token t = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return t;
}
bool parser::take_symbol(std::string_view s) { return is_symbol(s) && (take(), true); }
bool parser::take_word(std::string_view s) { return is_word(s) && (take(), true); }
void parser::want_symbol(std::string_view s) {
  if (!take_symbol(s)) complain("'" + std::string{s} + "' is expected");
}
std::string parser::want_name() {
  if (now().what != tk::name) complain("a name is expected");
  return take().said;
}

void parser::end_of_tag() {
  if (now().what != tk::block_end) complain("the tag should end here");
  take();
}

std::unique_ptr<stmt> parser::make(stmt_kind what) const {
  auto made = std::make_unique<stmt>();
  made->what = what;
  made->line = now().line;
  return made;
}

block parser::run() {
  block all = statements({});
  if (now().what != tk::end) complain("'" + now().said + "' has no beginning");
  return all;
}

block parser::body(std::string_view end) {
  block made = statements({end});
  if (!take_word(end)) complain("{% " + std::string{end} + " %} is missing");
  return made;
}

/// Stands behind {% at one of `ends` afterwards, or at the end.
block parser::statements(std::initializer_list<std::string_view> ends) {
  if (++nesting_ > max_nesting) complain("nested too deeply");
  block out;
  while (true) {
    if (now().what == tk::data) {
      auto made = make(stmt_kind::data);
      made->literal = from_utf8(take().said);
      out.push_back(std::move(made));
    } else if (now().what == tk::print_begin) {
      take();
      auto made = make(stmt_kind::print);
      made->subject = tuple(true);
      if (now().what != tk::print_end) complain("'}}' is expected");
      take();
      out.push_back(std::move(made));
    } else if (now().what == tk::block_begin) {
      take();
      if (now().what == tk::name && std::ranges::find(ends, now().said) != ends.end()) break;
      if (now().what == tk::name && now().said.starts_with("end")) break;
      out.push_back(statement());
      end_of_tag();
    } else {
      break;
    }
  }
  --nesting_;
  return out;
}

std::unique_ptr<stmt> parser::statement() {
  if (take_word("for")) return loop();
  if (take_word("if")) return condition();
  if (take_word("set")) return assignment();
  if (take_word("macro")) return macro();
  if (take_word("call")) return call();
  if (take_word("filter")) return filter();
  if (take_word("with")) return with();
  if (take_word("generation")) return passage();
  for (const auto& [word, what] : {std::pair{"break", stmt_kind::leave}, {"continue", stmt_kind::again}}) {
    if (!is_word(word)) continue;
    if (loops_ == 0) complain(std::string{word} + " stands in no loop");
    auto made = make(what);
    take();
    return made;
  }
  complain("{% " + now().said + " %} is not known here");
}

std::unique_ptr<stmt> parser::loop() {
  auto made = make(stmt_kind::loop);
  made->target = assignable();
  if (!take_word("in")) complain("'in' is expected");
  made->subject = tuple(false, "recursive");
  if (take_word("if")) made->test = expression();
  made->recursive = take_word("recursive");
  end_of_tag();
  ++loops_;
  made->bodies.push_back(statements({"else", "endfor"}));
  --loops_;
  if (take_word("else")) {
    end_of_tag();
    made->bodies.push_back(statements({"endfor"}));
  }
  if (!take_word("endfor")) complain("{% endfor %} is missing");
  return made;
}

std::unique_ptr<stmt> parser::condition() {
  auto made = make(stmt_kind::condition);
  made->tests.push_back(tuple(true));
  end_of_tag();
  while (true) {
    made->bodies.push_back(statements({"elif", "else", "endif"}));
    if (take_word("elif")) {
      made->tests.push_back(tuple(true));
      end_of_tag();
    } else if (take_word("else")) {
      end_of_tag();
      made->bodies.push_back(statements({"endif"}));
      if (!take_word("endif")) complain("{% endif %} is missing");
      return made;
    } else if (take_word("endif")) {
      return made;
    } else {
      complain("{% endif %} is missing");
    }
  }
}

std::unique_ptr<stmt> parser::assignment() {
  auto made = make(stmt_kind::assign);
  made->target = assignable();
  if (take_symbol("=")) {
    made->subject = tuple(true);
    return made;
  }
  made->what = stmt_kind::assign_block;
  if (is_symbol("|")) made->subject = filters(nullptr);
  end_of_tag();
  made->bodies.push_back(body("endset"));
  return made;
}

parameters parser::signature() {
  parameters out;
  want_symbol("(");
  while (!take_symbol(")")) {
    if (!out.names.empty()) want_symbol(",");
    out.names.push_back(want_name());
    if (take_symbol("=")) out.defaults.push_back(expression());
    else if (!out.defaults.empty()) complain("a parameter without a default stands behind one with");
  }
  return out;
}

std::unique_ptr<stmt> parser::macro() {
  auto made = make(stmt_kind::macro);
  made->name = want_name();
  made->params = signature();
  end_of_tag();
  const int outer = std::exchange(loops_, 0);
  made->bodies.push_back(body("endmacro"));
  loops_ = outer;
  return made;
}

std::unique_ptr<stmt> parser::call() {
  auto made = make(stmt_kind::call);
  if (is_symbol("(")) made->params = signature();
  made->subject = expression();
  if (made->subject->what != expr_kind::call) complain("a call is expected");
  end_of_tag();
  const int outer = std::exchange(loops_, 0);
  made->bodies.push_back(body("endcall"));
  loops_ = outer;
  return made;
}

std::unique_ptr<stmt> parser::filter() {
  auto made = make(stmt_kind::filter);
  made->subject = one_filter(nullptr);
  made->subject = filters(std::move(made->subject));
  end_of_tag();
  made->bodies.push_back(body("endfilter"));
  return made;
}

std::unique_ptr<stmt> parser::with() {
  auto made = make(stmt_kind::with);
  while (now().what != tk::block_end) {
    if (!made->targets.empty()) want_symbol(",");
    made->targets.push_back(assignable());
    want_symbol("=");
    made->tests.push_back(expression());
  }
  end_of_tag();
  made->bodies.push_back(body("endwith"));
  return made;
}

std::unique_ptr<stmt> parser::passage() {
  auto made = make(stmt_kind::passage);
  end_of_tag();
  made->bodies.push_back(body("endgeneration"));
  return made;
}

block parse(std::string_view source) { return parser{source}.run(); }

}  // namespace mooncaf::jinja
