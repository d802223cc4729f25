#pragma once
// The values of templates: Python's, as far as templates use them.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/text.hpp"

namespace mooncaf::jinja {

class callable;
class interpreter;
struct list_data;
struct map_data;
struct loop_data;

/// A mistake of a template, or its words in `raise_exception`. Thrown inside this folder alone: its user
/// (`chat_template`) turns it into an error value. An interpreter with a result from every step would say
/// little else.
struct template_error {
  std::string what;
  bool placed = false;  ///< names its line, or is in the template's own words
};

enum class kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  number,
  string,
  list,
  tuple,
  map,
  name_space,  ///< the result of namespace(): the only thing that changes
  loop,        ///< `loop` in a for
  callable
};

/// One word and the data that it points to, which the heap keeps. Copied freely; valid as long as its heap,
/// or the template, for a literal.
struct value {
  kind what = kind::undefined;
  bool safe = false;  ///< a string that `safe` or `escape` gave: text added to it is escaped
  union {
    bool boolean;
    std::int64_t integer;
    double number;
    const text* string = nullptr;  ///< undefined: its name, or null
    const list_data* list;         ///< also of a tuple
    const map_data* map;
    map_data* space;
    loop_data* loop;
    callable* function;
  };

  value() = default;
  static value none() { return of(kind::none); }
  static value of(bool v) { return with(kind::boolean, &value::boolean, v); }
  static value of(std::int64_t v) { return with(kind::integer, &value::integer, v); }
  static value of(std::size_t v) { return of(static_cast<std::int64_t>(v)); }
  static value of(double v) { return with(kind::number, &value::number, v); }
  static value of(const text* v) { return with(kind::string, &value::string, v); }
  static value of(loop_data* v) { return with(kind::loop, &value::loop, v); }
  static value of(callable* v) { return with(kind::callable, &value::function, v); }
  static value space_of(map_data* v) { return with(kind::name_space, &value::space, v); }

  bool is(kind k) const noexcept { return what == k; }
  bool is_sequence() const noexcept { return what == kind::list || what == kind::tuple; }
  bool is_number() const noexcept {
    return what == kind::integer || what == kind::number || what == kind::boolean;
  }
  /// Of a number that is whole by type. @pre is_number
  std::int64_t as_integer() const noexcept {
    return what == kind::boolean   ? boolean
           : what == kind::integer ? integer
                                   : static_cast<std::int64_t>(number);
  }
  double as_double() const noexcept {
    return what == kind::number ? number : static_cast<double>(as_integer());
  }

 private:
  static value of(kind k) {
    value v;
    v.what = k;
    return v;
  }
  template <class T>
  static value with(kind k, T value::*field, T held) {
    value v = of(k);
    v.*field = held;
    return v;
  }
};

struct list_data {
  std::vector<value> items;
};

/// In the order of insertion, as Python's.
struct map_data {
  std::vector<std::pair<value, value>> items;

  const value* find(text_view key) const noexcept;
  const value* find(const value& key) const;
  void set(const value& key, const value& to);
};

/// The arguments of one call.
struct arguments {
  std::vector<value> positional;
  std::vector<std::pair<std::string, value>> named;

  /// The argument at `index` or of this name; null if neither is given.
  const value* find(std::size_t index, std::string_view name) const noexcept;
};

class callable {
 public:
  virtual ~callable() = default;
  virtual value call(interpreter& in, const arguments& given) = 0;
};

/// Keeps everything that one rendering makes, and counts the rendering's cost: a template, or a conversation
/// that fits it badly, must not hold a thread or the memory.
class heap {
 public:
  value keep(text made);
  value keep_list(std::vector<value> items, kind as = kind::list);
  value keep_map(map_data made);
  value keep_space(map_data made);
  /// A name for as long as the heap.
  std::string_view keep_name(text_view name);
  template <class T, class... Arguments>
  T* make(Arguments&&... given) {
    charge(8);
    auto made = std::make_shared<T>(std::forward<Arguments>(given)...);
    T* raw = made.get();
    others_.push_back(std::move(made));
    return raw;
  }
  /// @throws template_error beyond the work that one rendering may do.
  void charge(std::size_t steps);

 private:
  std::size_t spent_ = 0;
  std::deque<text> texts_;
  std::deque<list_data> lists_;
  std::deque<map_data> maps_;
  std::deque<std::string> names_;
  std::vector<std::shared_ptr<void>> others_;
};

/// Python's bool(v).
bool truth(const value& v) noexcept;
/// Python's ==; deep values are compared to a bounded depth.
bool equal(const value& a, const value& b, int depth = 0);
/// Python's <. @throws template_error for values without an order.
bool less(const value& a, const value& b);
/// The type's name, for errors.
std::string_view name_of(kind k) noexcept;
/// Python's str(v) and repr(v). @throws template_error nested too deeply.
text str(const value& v);
text repr(const value& v, int depth = 0);
/// Python's repr of a float.
std::string format_double(double v);

/// How `tojson` writes, with json.dumps' words.
struct json_style {
  int indent = -1;  ///< blanks; -1: one line
  bool ascii = false;
  bool sort_keys = false;
  text item_separator, key_separator;
};
/// @throws template_error for values that JSON has no word for.
void write_json(const value& v, const json_style& style, text& out, int depth = 0);

/// Reads JSON; every character of a string is marked `foreign`.
/// @throws template_error for text that is not JSON.
value from_json(heap& into, std::string_view json);

}  // namespace mooncaf::jinja
