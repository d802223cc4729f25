#pragma once
// Tokens to trees. For the two sources of the parser; others call `parse`.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/lexer.hpp"
#include "runtime/text/jinja/syntax.hpp"

namespace mooncaf::jinja {

class parser {
 public:
  explicit parser(std::string_view source) : tokens_(lex(source)) {}
  block run();

 private:
  using tk = token::kind;

  // statements
  block statements(std::initializer_list<std::string_view> ends);
  std::unique_ptr<stmt> statement();
  std::unique_ptr<stmt> loop();
  std::unique_ptr<stmt> condition();
  std::unique_ptr<stmt> assignment();
  std::unique_ptr<stmt> macro();
  std::unique_ptr<stmt> call();
  std::unique_ptr<stmt> filter();
  std::unique_ptr<stmt> with();
  std::unique_ptr<stmt> passage();
  parameters signature();
  /// The statements up to {% end %}, which is taken.
  block body(std::string_view end);
  std::unique_ptr<stmt> make(stmt_kind what) const;
  void end_of_tag();

  // expressions
  expr_ptr expression(bool with_choice = true);
  expr_ptr tuple(bool with_choice, std::string_view end_word = {});
  expr_ptr assignable();
  expr_ptr either();
  expr_ptr both();
  expr_ptr negation();
  expr_ptr comparison();
  expr_ptr sum();
  expr_ptr concat();
  expr_ptr product();
  expr_ptr power();
  expr_ptr unary(bool with_filter = true);
  expr_ptr primary();
  expr_ptr in_brackets();
  expr_ptr postfix(expr_ptr of);
  expr_ptr subscript(expr_ptr of);
  expr_ptr filters(expr_ptr of);
  expr_ptr one_filter(expr_ptr of);
  expr_ptr a_test(expr_ptr of);
  void call_arguments(expr& into);
  bool begins_operand() const;

  expr_ptr node(expr_kind what, std::string name = {}) const;
  /// Puts `part` below `into`, which may become higher by it.
  void put(expr& into, expr_ptr part) const;

  // tokens
  const token& now() const { return tokens_[at_]; }
  const token& after() const { return tokens_[at_ + (at_ + 1 < tokens_.size())]; }
  bool is_symbol(std::string_view s) const { return now().what == tk::symbol && now().said == s; }
  bool is_word(std::string_view s) const { return now().what == tk::name && now().said == s; }
  bool take_symbol(std::string_view s);
  bool take_word(std::string_view s);
  void want_symbol(std::string_view s);
  std::string want_name();
  token take();
  [[noreturn]] void complain(const std::string& what) const;

  std::vector<token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  ///< around the present token
};

}  // namespace mooncaf::jinja
