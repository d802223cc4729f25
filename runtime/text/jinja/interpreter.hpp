#pragma once
// Walks a template's trees. For the sources of this folder.

#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/syntax.hpp"

namespace mooncaf::jinja {

/// Names and values of a template, a macro or one round of a loop. Kept by the heap: macros see the names
/// around them for as long as they are there.
struct scope {
  explicit scope(scope* o) : outer(o) {}

  scope* outer;
  std::vector<std::pair<std::string_view, value>> names;

  const value* find(std::string_view name) const noexcept;
  void set(std::string_view name, const value& to);
};

/// The variable `loop`.
struct loop_data {
  std::size_t index = 0;  ///< from 0
  std::vector<value> items;
  int depth = 0;
  std::vector<value> last_seen;  ///< of changed()
  bool seen = false;
  const stmt* said = nullptr;  ///< of a recursive loop
  scope* around = nullptr;
};

/// One rendering. @throws template_error
class interpreter {
 public:
  /// @param now  the time that strftime_now tells.
  interpreter(heap& memory, const std::tm& now) : memory_(memory), now_(now), root_(nullptr) {}

  void define(std::string_view name, const value& v) { root_.set(name, v); }
  text run(const block& all);

  // For functions.
  heap& memory() noexcept { return memory_; }
  const std::tm& now() const noexcept { return now_; }
  value attribute(const value& of, std::string_view name);
  value item(const value& of, const value& key);
  /// `path` as filters take it: "a.b.0".
  value at_path(const value& of, const value& path);
  value call(const value& callee, const arguments& given);
  /// The text of a macro or caller, told these arguments.
  value run_macro(const stmt& said, scope* around, const arguments& given, const value* caller);
  value run_loop_again(loop_data& loop, const value& over);

 private:
  enum class flow : std::uint8_t { on, leave, again };

  flow execute(const block& all, scope& names);
  flow execute(const stmt& s, scope& names);
  flow run_loop(const stmt& s, std::vector<value> over, scope& names, int depth);
  void assign(const expr& target, const value& v, scope& names);
  text inside(const block& all, scope& names);

  value evaluate(const expr& e, scope& names);
  value lookup(const std::string& name, const scope& names);
  value evaluate_call(const expr& e, scope& names);
  value evaluate_filter(const expr& e, const value* of, scope& names);
  value evaluate_slice(const expr& e, scope& names);
  value evaluate_map(const expr& e, scope& names);
  bool evaluate_comparison(const expr& e, scope& names);
  value arithmetic(char op, bool twice, const value& a, const value& b);
  arguments given_to(const expr& e, std::size_t first, scope& names);

  heap& memory_;
  const std::tm now_;
  scope root_;
  text out_;
  int depth_ = 0;
};

}  // namespace mooncaf::jinja
