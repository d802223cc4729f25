// JSON of clients, as values.

#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/text/jinja/value.hpp"

namespace mooncaf::jinja {

namespace {

using json = nlohmann::ordered_json;
constexpr int json_depth_max = 70;  ///< a little more than a request body may have

value convert(heap& into, const json& from, int depth) {
  if (depth > json_depth_max) throw template_error{"a value is nested too deeply"};
  switch (from.type()) {
    case json::value_t::boolean:
      return value::of(from.get<bool>());
    case json::value_t::number_integer:
      return value::of(from.get<std::int64_t>());
    case json::value_t::number_unsigned: {
      const auto v = from.get<std::uint64_t>();
      if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return value::of(static_cast<double>(v));
      return value::of(static_cast<std::int64_t>(v));
    }
    case json::value_t::number_float:
      return value::of(from.get<double>());
    case json::value_t::string:
      return into.keep(from_utf8(from.get_ref<const std::string&>(), foreign));
    case json::value_t::array: {
      std::vector<value> items;
      for (const auto& e : from) items.push_back(convert(into, e, depth + 1));
      return into.keep_list(std::move(items));
    }
    case json::value_t::object: {
      map_data made;
      // The parser leaves one field of a name: no need to look for an earlier one.
      for (const auto& [name, e] : from.items())
        made.items.emplace_back(into.keep(from_utf8(name, foreign)), convert(into, e, depth + 1));
      return into.keep_map(std::move(made));
    }
    default:
      return value::none();
  }
}

}  // namespace

value from_json(heap& into, std::string_view bytes) {
  const auto parsed = json::parse(bytes, nullptr, false);
  if (parsed.is_discarded()) throw template_error{"not JSON"};
  return convert(into, parsed, 0);
}

}  // namespace mooncaf::jinja
