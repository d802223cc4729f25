// Statements.

#include "runtime/text/jinja/interpreter.hpp"

#include <algorithm>

#include "runtime/text/jinja/functions.hpp"

namespace mooncaf::jinja {

namespace {

constexpr int call_depth_max = 500;          ///< of evaluation, macros included
constexpr std::size_t max_output = 1 << 26;  ///< characters

/// {% macro %} and {% call %}: the statement, and the scope around it.
class macro_value final : public callable {
 public:
  macro_value(const stmt& said, scope* around) : said_(said), around_(around) {}
  value call(interpreter& in, const arguments& given) override {
    arguments own = given;
    const auto caller = std::ranges::find(own.named, "caller", [](const auto& n) { return n.first; });
    if (caller == own.named.end()) return in.run_macro(said_, around_, own, nullptr);
    const value by = caller->second;
    own.named.erase(caller);
    return in.run_macro(said_, around_, own, &by);
  }

 private:
  const stmt& said_;
  scope* const around_;
};

struct deeper {
  explicit deeper(int& d) : depth(d) {
    if (++depth > call_depth_max) throw template_error{"calls itself too deeply"};
  }
  ~deeper() { --depth; }
  int& depth;
};

}  // namespace

const value* scope::find(std::string_view name) const noexcept {
  for (const auto* s = this; s; s = s->outer) {
    for (const auto& [known, v] : s->names) {
      if (known == name) return &v;
    }
  }
  return nullptr;
}

void scope::set(std::string_view name, const value& to) {
  for (auto& [known, v] : names) {
    if (known == name) {
      v = to;
      return;
    }
  }
  names.emplace_back(name, to);
}

text interpreter::run(const block& all) {
  scope* names = memory_.make<scope>(&root_);
  execute(all, *names);
  return std::move(out_);
}

/// The text that `all` makes, instead of being part of the output.
text interpreter::inside(const block& all, scope& names) {
  text outer = std::exchange(out_, {});
  execute(all, *memory_.make<scope>(&names));
  return std::exchange(out_, std::move(outer));
}

interpreter::flow interpreter::execute(const block& all, scope& names) {
  for (const auto& s : all) {
    const auto next = [&] {
      try {
        return execute(*s, names);
      } catch (template_error& e) {
        // The innermost statement has the line.
        if (!std::exchange(e.placed, true)) e.what = "line " + std::to_string(s->line) + ": " + e.what;
        throw;
      }
    }();
    if (next != flow::on) return next;
  }
  return flow::on;
}

/// Every statement is charged first, so that a template which loops for ever is stopped and not awaited.
interpreter::flow interpreter::execute(const stmt& s, scope& names) {
  memory_.charge(1);
  const deeper inner{depth_};
  const auto say = [&](text_view said) {
    memory_.charge(said.size() / 4);
    if (out_.size() + said.size() > max_output) throw template_error{"makes too long a prompt"};
    out_ += said;
  };
  switch (s.what) {
    case stmt_kind::data:
      say(s.literal);
      return flow::on;
    case stmt_kind::print: {
      const auto v = evaluate(*s.subject, names);
      if (v.is(kind::string)) say(*v.string);
      else say(str(v));
      return flow::on;
    }
    case stmt_kind::loop:
      return run_loop(s, items_of(*this, evaluate(*s.subject, names)), names, 0);
    case stmt_kind::condition:
      for (std::size_t i = 0; i < s.bodies.size(); ++i) {
        if (i >= s.tests.size() || truth(evaluate(*s.tests[i], names))) return execute(s.bodies[i], names);
      }
      return flow::on;
    case stmt_kind::assign:
      assign(*s.target, evaluate(*s.subject, names), names);
      return flow::on;
    case stmt_kind::assign_block: {
      value said = memory_.keep(inside(s.bodies[0], names));
      if (s.subject) said = evaluate_filter(*s.subject, &said, names);
      assign(*s.target, said, names);
      return flow::on;
    }
    case stmt_kind::macro:
      names.set(s.name, value::of(memory_.make<macro_value>(s, &names)));
      return flow::on;
    case stmt_kind::call: {
      const auto& called = *s.subject;
      auto given = given_to(called, 1, names);
      given.named.emplace_back("caller", value::of(memory_.make<macro_value>(s, &names)));
      say(str(call(evaluate(*called.parts[0], names), given)));
      return flow::on;
    }
    case stmt_kind::filter: {
      const value said = memory_.keep(inside(s.bodies[0], names));
      say(str(evaluate_filter(*s.subject, &said, names)));
      return flow::on;
    }
    case stmt_kind::with: {
      scope& own = *memory_.make<scope>(&names);
      for (std::size_t i = 0; i < s.targets.size(); ++i)
        assign(*s.targets[i], evaluate(*s.tests[i], names), own);
      return execute(s.bodies[0], own);
    }
    case stmt_kind::passage:
      return execute(s.bodies[0], names);
    case stmt_kind::leave:
      return flow::leave;
    case stmt_kind::again:
      return flow::again;
  }
  return flow::on;
}

interpreter::flow interpreter::run_loop(const stmt& s, std::vector<value> over, scope& names, int depth) {
  if (s.test) {
    std::vector<value> wanted;
    for (const auto& v : over) {
      scope& own = *memory_.make<scope>(&names);
      assign(*s.target, v, own);
      if (truth(evaluate(*s.test, own))) wanted.push_back(v);
    }
    over = std::move(wanted);
  }
  if (over.empty() && s.bodies.size() > 1) return execute(s.bodies[1], *memory_.make<scope>(&names));
  auto& loop = *memory_.make<loop_data>();
  loop.items = std::move(over);
  loop.depth = depth;
  loop.said = s.recursive ? &s : nullptr;
  loop.around = &names;
  for (; loop.index < loop.items.size(); ++loop.index) {
    scope& own = *memory_.make<scope>(&names);
    own.set("loop", value::of(&loop));
    assign(*s.target, loop.items[loop.index], own);
    if (execute(s.bodies[0], own) == flow::leave) break;
  }
  return flow::on;
}

value interpreter::run_loop_again(loop_data& loop, const value& over) {
  if (!loop.said) throw template_error{"the loop is not recursive"};
  const deeper inner{depth_};
  text outer = std::exchange(out_, {});
  run_loop(*loop.said, items_of(*this, over), *loop.around, loop.depth + 1);
  return memory_.keep(std::exchange(out_, std::move(outer)));
}

value interpreter::run_macro(const stmt& said, scope* around, const arguments& given, const value* caller) {
  const deeper inner{depth_};
  const auto& params = said.params;
  const std::string called = said.name.empty() ? "caller" : said.name;
  scope& own = *memory_.make<scope>(around);
  const auto first_default = params.names.size() - params.defaults.size();
  std::vector<value> more;
  for (std::size_t i = params.names.size(); i < given.positional.size(); ++i)
    more.push_back(given.positional[i]);
  map_data other;
  for (const auto& [name, v] : given.named) {
    const bool known = std::ranges::find(params.names, name) != params.names.end();
    if (!known) other.set(memory_.keep(from_utf8(name)), v);
  }
  for (std::size_t i = 0; i < params.names.size(); ++i) {
    const auto* v = given.find(i, params.names[i]);
    own.set(params.names[i], v                    ? *v
                             : i >= first_default ? evaluate(*params.defaults[i - first_default], own)
                                                  : value{});
  }
  own.set("varargs", memory_.keep_list(std::move(more), kind::tuple));
  own.set("kwargs", memory_.keep_map(std::move(other)));
  if (caller) own.set("caller", *caller);
  return memory_.keep(inside(said.bodies[0], own));
}

void interpreter::assign(const expr& target, const value& v, scope& names) {
  if (target.what == expr_kind::name) return names.set(target.name, v);
  if (target.what == expr_kind::attribute) {
    const auto& of = target.parts[0]->name;
    const auto* space = names.find(of);
    if (!space || !space->is(kind::name_space))
      throw template_error{"'" + of + "' is no namespace, so its attributes cannot be set"};
    return space->space->set(memory_.keep(from_utf8(target.name)), v);
  }
  const auto items = items_of(*this, v);
  if (items.size() != target.parts.size())
    throw template_error{std::to_string(items.size()) + " values cannot be unpacked into " +
                         std::to_string(target.parts.size()) + " names"};
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], names);
}

/// Every expression is charged as statements are; the depth is bounded, since evaluation recurses.
value interpreter::evaluate(const expr& e, scope& names) {
  memory_.charge(1);
  const deeper inner{depth_};
  const auto part = [&](std::size_t i) { return evaluate(*e.parts[i], names); };
  switch (e.what) {
    case expr_kind::constant:
      return e.constant;
    case expr_kind::name:
      return lookup(e.name, names);
    case expr_kind::list:
    case expr_kind::tuple: {
      std::vector<value> items;
      for (const auto& p : e.parts) items.push_back(evaluate(*p, names));
      return memory_.keep_list(std::move(items), e.what == expr_kind::list ? kind::list : kind::tuple);
    }
    case expr_kind::map:
      return evaluate_map(e, names);
    case expr_kind::attribute:
      return attribute(part(0), e.name);
    case expr_kind::item:
      return item(part(0), part(1));
    case expr_kind::slice:
      return evaluate_slice(e, names);
    case expr_kind::call:
      return evaluate_call(e, names);
    case expr_kind::filter:
      return evaluate_filter(e, nullptr, names);
    case expr_kind::test:
      return value::of(find_test(e.name)(*this, part(0), given_to(e, 1, names)));
    case expr_kind::negative:
    case expr_kind::positive: {
      const auto v = part(0);
      if (v.is(kind::number)) return value::of(e.what == expr_kind::negative ? -v.number : v.number);
      if (!v.is_number()) throw template_error{"a sign stands before " + std::string{name_of(v.what)}};
      return e.what == expr_kind::negative ? arithmetic('-', false, value::of(std::int64_t{0}), v) : v;
    }
    case expr_kind::arithmetic:
      return arithmetic(e.name[0], e.name.size() > 1, part(0), part(1));
    case expr_kind::concat: {
      text joined;
      for (const auto& p : e.parts) joined += str(evaluate(*p, names));
      return memory_.keep(std::move(joined));
    }
    case expr_kind::compare:
      return value::of(evaluate_comparison(e, names));
    case expr_kind::both: {
      const auto v = part(0);
      return truth(v) ? part(1) : v;
    }
    case expr_kind::either: {
      const auto v = part(0);
      return truth(v) ? v : part(1);
    }
    case expr_kind::negation:
      return value::of(!truth(part(0)));
    case expr_kind::choice:
      return truth(part(1)) ? part(0) : e.parts[2] ? part(2) : value{};
  }
  return {};
}

}  // namespace mooncaf::jinja
