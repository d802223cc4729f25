#pragma once
// A template as trees of statements and expressions. Made by the parser, read by the interpreter.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.hpp"

namespace mooncaf::jinja {

enum class expr_kind : std::uint8_t {
  constant,
  name,
  list,
  tuple,
  map,        ///< parts: key, value, key, value …
  attribute,  ///< parts[0].name
  item,       ///< parts[0][parts[1]]
  slice,      ///< parts[0][parts[1]:parts[2]:parts[3]], each but the first may be null
  call,       ///< parts[0](parts[1…], named…)
  filter,     ///< parts[0] | name(parts[1…], named…); parts[0] is null in a filter block
  test,       ///< parts[0] is name(parts[1…], named…)
  negative,
  positive,
  arithmetic,  ///< parts[0] name parts[1]
  concat,      ///< parts ~ …
  compare,     ///< parts[0] ops[0] parts[1] ops[1] parts[2] …
  both,
  either,
  negation,
  choice  ///< parts[0] if parts[1] else parts[2], which may be null
};

struct expr;
using expr_ptr = std::unique_ptr<expr>;

struct expr {
  expr_kind what = expr_kind::constant;
  std::uint32_t line = 0;
  int height = 1;    ///< of the tree
  std::string name;  ///< of a variable, an attribute, a filter, a test, an operator
  text literal;      ///< the text that a constant string points to
  value constant;
  std::vector<expr_ptr> parts;
  std::vector<std::pair<std::string, expr_ptr>> named;
  expr_ptr star, double_star;  ///< of a call: *x and **x
  std::vector<std::string> ops;
};

enum class stmt_kind : std::uint8_t {
  data,
  print,
  loop,
  condition,
  assign,
  assign_block,
  macro,
  call,
  filter,
  with,
  leave,   ///< break
  again,   ///< continue
  passage  ///< what only groups: {% generation %}
};

struct stmt;
using block = std::vector<std::unique_ptr<stmt>>;

struct parameters {
  std::vector<std::string> names;
  std::vector<expr_ptr> defaults;  ///< of the last names
};

struct stmt {
  stmt_kind what = stmt_kind::data;
  std::uint32_t line = 0;
  text literal;      ///< data
  std::string name;  ///< macro
  expr_ptr target;   ///< loop, assign: a name, an attribute of one, or a tuple of them
  expr_ptr subject;  ///< the expression that is printed, looped over, assigned, called; a block's filter
  expr_ptr test;     ///< loop: which items
  bool recursive = false;
  std::vector<expr_ptr> tests;    ///< condition: one for each body but a last one for else; with: values
  std::vector<expr_ptr> targets;  ///< with
  parameters params;              ///< macro, call
  std::vector<block> bodies;      ///< loop: the second is for no item at all
};

/// @throws template_error with the line.
block parse(std::string_view source);

}  // namespace mooncaf::jinja
