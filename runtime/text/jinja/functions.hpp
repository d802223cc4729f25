#pragma once
// Everything that templates call by name.

#include <span>
#include <string_view>

#include "runtime/text/jinja/value.hpp"

namespace mooncaf::jinja {

/// @throws template_error for a value that cannot be filtered so.
using filter_function = value (*)(interpreter& in, const value& of, const arguments& given);
using test_function = bool (*)(interpreter& in, const value& of, const arguments& given);
using method_function = value (*)(interpreter& in, const value& of, const arguments& given);
using global_function = value (*)(interpreter& in, const arguments& given);

template <class Function>
struct named_function {
  std::string_view name;
  Function call;
};

/// Null if there is none of that name.
filter_function find_filter(std::string_view name) noexcept;
test_function find_test(std::string_view name) noexcept;
global_function find_global(std::string_view name) noexcept;
/// A method of `of`'s type.
method_function find_method(const value& of, std::string_view name) noexcept;

// The parts of the tables.
std::span<const named_function<filter_function>> text_filters() noexcept;
std::span<const named_function<filter_function>> list_filters() noexcept;
std::span<const named_function<method_function>> text_methods() noexcept;

// Helpers that filters, methods and operators share.

/// The items of a list, tuple, map (its keys) or string (its characters); none of undefined.
/// @throws template_error for a value without items.
std::vector<value> items_of(interpreter& in, const value& v);
std::size_t length_of(const value& v);
/// `container` in Python's sense contains `v`.
bool contains(const value& container, const value& v);
/// @throws template_error, naming `what`, unless `v` is one.
const text& text_of(const value& v, std::string_view what);
std::int64_t integer_of(const value& v, std::string_view what);
/// @throws template_error if an argument of `what` is missing.
const value& needed(const arguments& given, std::size_t index, std::string_view name, std::string_view what);
value replaced(interpreter& in, text_view of, text_view from, text_view to, std::int64_t most);
/// With &, <, >, and quotes as HTML names them; marked safe.
value escaped(interpreter& in, text_view of);
/// Python's "…" % (…).
value formatted(interpreter& in, const text& pattern, const std::vector<value>& given);

}  // namespace mooncaf::jinja
