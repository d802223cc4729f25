// Expressions, from the loosest to the tightest.

#include <charconv>
#include <cstdlib>

#include "runtime/text/jinja/functions.hpp"
#include "runtime/text/jinja/parser.hpp"

namespace mooncaf::jinja {

namespace {

constexpr int max_height = 150;  ///< of an expression's tree

}  // namespace

expr_ptr parser::node(expr_kind what, std::string name) const {
  auto made = std::make_unique<expr>();
  made->what = what;
  made->line = now().line;
  made->name = std::move(name);
  return made;
}

void parser::put(expr& into, expr_ptr part) const {
  if (part) into.height = std::max(into.height, part->height + 1);
  if (into.height > max_height) complain("an expression is nested too deeply");
  into.parts.push_back(std::move(part));
}

expr_ptr parser::expression(bool with_choice) {
  if (++nesting_ > max_height) complain("nested too deeply");
  auto made = either();
  while (with_choice && take_word("if")) {
    auto choice = node(expr_kind::choice);
    put(*choice, std::move(made));
    put(*choice, either());
    put(*choice, take_word("else") ? expression() : nullptr);
    made = std::move(choice);
  }
  --nesting_;
  return made;
}

/// One expression, or several with commas between them.
expr_ptr parser::tuple(bool with_choice, std::string_view end_word) {
  auto first = expression(with_choice);
  if (!is_symbol(",")) return first;
  auto made = node(expr_kind::tuple);
  put(*made, std::move(first));
  while (take_symbol(",")) {
    if (!begins_operand() || (!end_word.empty() && is_word(end_word))) break;
    put(*made, expression(with_choice));
  }
  return made;
}

/// The target of an assignment: a name, an attribute of one, or several.
expr_ptr parser::assignable() {
  const auto one = [&]() -> expr_ptr {
    if (take_symbol("(")) {
      auto inner = assignable();
      want_symbol(")");
      return inner;
    }
    auto made = node(expr_kind::name, want_name());
    if (!take_symbol(".")) return made;
    auto part = node(expr_kind::attribute, want_name());
    put(*part, std::move(made));
    return part;
  };
  if (++nesting_ > max_height) complain("nested too deeply");
  auto first = one();
  if (is_symbol(",")) {
    auto all = node(expr_kind::tuple);
    put(*all, std::move(first));
    while (take_symbol(",") && (now().what == tk::name || is_symbol("(")) && !is_word("in")) put(*all, one());
    first = std::move(all);
  }
  --nesting_;
  return first;
}

expr_ptr parser::either() {
  auto made = both();
  while (take_word("or")) {
    auto up = node(expr_kind::either);
    put(*up, std::move(made));
    put(*up, both());
    made = std::move(up);
  }
  return made;
}

expr_ptr parser::both() {
  auto made = negation();
  while (take_word("and")) {
    auto up = node(expr_kind::both);
    put(*up, std::move(made));
    put(*up, negation());
    made = std::move(up);
  }
  return made;
}

expr_ptr parser::negation() {
  if (!is_word("not")) return comparison();
  if (++nesting_ > max_height) complain("nested too deeply");
  auto made = node(expr_kind::negation);
  take();
  put(*made, negation());
  --nesting_;
  return made;
}

expr_ptr parser::comparison() {
  auto first = sum();
  expr_ptr made;
  while (true) {
    std::string op;
    for (const auto* s : {"==", "!=", ">", ">=", "<", "<="}) {
      if (is_symbol(s)) op = s;
    }
    if (is_word("in")) op = "in";
    const bool negated = is_word("not") && after().what == tk::name && after().said == "in";
    if (negated) op = "not in";
    if (op.empty()) break;
    take();
    if (negated) take();
    if (!made) {
      made = node(expr_kind::compare);
      put(*made, std::move(first));
    }
    made->ops.push_back(std::move(op));
    put(*made, sum());
  }
  return made ? std::move(made) : std::move(first);
}

expr_ptr parser::sum() {
  auto made = concat();
  while (is_symbol("+") || is_symbol("-")) {
    auto up = node(expr_kind::arithmetic, take().said);
    put(*up, std::move(made));
    put(*up, concat());
    made = std::move(up);
  }
  return made;
}

expr_ptr parser::concat() {
  auto made = product();
  if (!is_symbol("~")) return made;
  auto up = node(expr_kind::concat);
  put(*up, std::move(made));
  while (take_symbol("~")) put(*up, product());
  return up;
}

expr_ptr parser::product() {
  auto made = power();
  while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
    auto up = node(expr_kind::arithmetic, take().said);
    put(*up, std::move(made));
    put(*up, power());
    made = std::move(up);
  }
  return made;
}

expr_ptr parser::power() {
  auto made = unary();
  while (is_symbol("**")) {
    auto up = node(expr_kind::arithmetic, take().said);
    put(*up, std::move(made));
    put(*up, unary());
    made = std::move(up);
  }
  return made;
}

expr_ptr parser::unary(bool with_filter) {
  if (++nesting_ > max_height) complain("nested too deeply");
  expr_ptr made;
  if (is_symbol("-") || is_symbol("+")) {
    made = node(take().said == "-" ? expr_kind::negative : expr_kind::positive);
    put(*made, unary(false));
  } else {
    made = postfix(primary());
  }
  --nesting_;
  return with_filter ? filters(std::move(made)) : std::move(made);
}

/// Literals are looked for before names: in Jinja true, none and the like cannot be assigned to.
expr_ptr parser::primary() {
  auto made = node(expr_kind::constant);
  const auto literal = [&](value v) {
    take();
    made->constant = v;
    return std::move(made);
  };
  switch (now().what) {
    case tk::name:
      if (is_word("true") || is_word("True")) return literal(value::of(true));
      if (is_word("false") || is_word("False")) return literal(value::of(false));
      if (is_word("none") || is_word("None")) return literal(value::none());
      return node(expr_kind::name, take().said);
    case tk::string: {
      std::string said;
      while (now().what == tk::string) said += take().said;
      made->literal = from_utf8(said);
      made->constant = value::of(&made->literal);
      return made;
    }
    case tk::integer: {
      std::int64_t v = 0;
      const auto& said = now().said;
      if (std::from_chars(said.data(), said.data() + said.size(), v).ec != std::errc{})
        complain("the number " + said.substr(0, 40) + " is too large");
      return literal(value::of(v));
    }
    case tk::number:
      return literal(value::of(std::strtod(now().said.c_str(), nullptr)));
    default:
      return in_brackets();
  }
}

expr_ptr parser::in_brackets() {
  if (take_symbol("(")) {
    if (take_symbol(")")) return node(expr_kind::tuple);
    auto made = tuple(true);
    want_symbol(")");
    return made;
  }
  if (take_symbol("[")) {
    auto made = node(expr_kind::list);
    while (!take_symbol("]")) {
      if (!made->parts.empty()) want_symbol(",");
      if (take_symbol("]")) break;
      put(*made, expression());
    }
    return made;
  }
  if (take_symbol("{")) {
    auto made = node(expr_kind::map);
    while (!take_symbol("}")) {
      if (!made->parts.empty()) want_symbol(",");
      if (take_symbol("}")) break;
      put(*made, expression());
      want_symbol(":");
      put(*made, expression());
    }
    return made;
  }
  complain(now().what == tk::symbol ? "'" + now().said + "' begins no value" : "a value is expected");
}

expr_ptr parser::postfix(expr_ptr of) {
  while (true) {
    if (take_symbol(".")) {
      if (now().what == tk::integer) {
        auto made = node(expr_kind::item);
        put(*made, std::move(of));
        put(*made, primary());
        of = std::move(made);
      } else {
        auto made = node(expr_kind::attribute, want_name());
        put(*made, std::move(of));
        of = std::move(made);
      }
    } else if (is_symbol("[")) {
      of = subscript(std::move(of));
    } else if (is_symbol("(")) {
      auto made = node(expr_kind::call);
      put(*made, std::move(of));
      call_arguments(*made);
      of = std::move(made);
    } else {
      return of;
    }
  }
}

expr_ptr parser::subscript(expr_ptr of) {
  want_symbol("[");
  auto made = node(expr_kind::item);
  put(*made, std::move(of));
  expr_ptr part[3];
  bool slice = false;
  for (int i = 0; i < 3; ++i) {
    if (!is_symbol(":") && !is_symbol("]")) part[i] = tuple(true);
    if (is_symbol("]")) break;
    want_symbol(":");
    slice = true;
  }
  want_symbol("]");
  if (!slice && !part[0]) complain("a subscript is expected");
  if (slice) made->what = expr_kind::slice;
  for (int i = 0; i < (slice ? 3 : 1); ++i) put(*made, std::move(part[i]));
  return made;
}

void parser::call_arguments(expr& into) {
  want_symbol("(");
  bool first = true;
  while (!take_symbol(")")) {
    if (!std::exchange(first, false)) want_symbol(",");
    if (take_symbol(")")) break;
    if (take_symbol("**")) {
      into.double_star = expression();
    } else if (take_symbol("*")) {
      into.star = expression();
    } else if (now().what == tk::name && after().what == tk::symbol && after().said == "=") {
      auto name = take().said;
      take();
      auto given = expression();
      into.height = std::max(into.height, given->height + 1);
      into.named.emplace_back(std::move(name), std::move(given));
    } else {
      if (!into.named.empty()) complain("a value stands behind a named one");
      put(into, expression());
    }
    for (const auto* extra : {&into.star, &into.double_star}) {
      if (*extra) into.height = std::max(into.height, (*extra)->height + 1);
    }
    if (into.height > max_height) complain("an expression is nested too deeply");
  }
}

expr_ptr parser::filters(expr_ptr of) {
  while (true) {
    if (take_symbol("|")) {
      of = one_filter(std::move(of));
    } else if (is_word("is")) {
      of = a_test(std::move(of));
    } else if (is_symbol("(")) {
      of = postfix(std::move(of));
    } else {
      return of;
    }
  }
}

expr_ptr parser::one_filter(expr_ptr of) {
  auto made = node(expr_kind::filter, want_name());
  while (take_symbol(".")) made->name += "." + want_name();
  if (!find_filter(made->name)) complain("filter '" + made->name + "' is not known here");
  put(*made, std::move(of));
  if (is_symbol("(")) call_arguments(*made);
  return made;
}

bool parser::begins_operand() const {
  switch (now().what) {
    case tk::name:
      return !is_word("else") && !is_word("or") && !is_word("and") && !is_word("if");
    case tk::string:
    case tk::integer:
    case tk::number:
      return true;
    default:
      return is_symbol("(") || is_symbol("[") || is_symbol("{") || is_symbol("-");
  }
}

expr_ptr parser::a_test(expr_ptr of) {
  take();  // is
  const bool negated = take_word("not");
  auto made = node(expr_kind::test, now().what == tk::symbol ? std::string{} : want_name());
  if (!find_test(made->name)) complain("test '" + made->name + "' is not known here");
  put(*made, std::move(of));
  if (is_symbol("(")) {
    call_arguments(*made);
  } else if (begins_operand() && !is_symbol("-")) {
    if (is_word("is")) complain("tests cannot be chained with 'is'");
    put(*made, postfix(primary()));
  }
  if (!negated) return made;
  auto up = node(expr_kind::negation);
  put(*up, std::move(made));
  return up;
}

}  // namespace mooncaf::jinja
