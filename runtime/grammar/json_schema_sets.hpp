#pragma once
// JSON schemas as the sets of values that they describe: parts of one value's schema (allOf, anyOf, oneOf,
// not, if, $ref, dependencies) become alternatives without such parts. For the sources of `json_schema`
// alone.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/grammar/char_language.hpp"

namespace mooncaf {

/// Beside JSON schema's own keywords a schema without parts may have these, which come of joining several.
namespace joined_keyword {
inline constexpr const char* patterns = "\x01patterns";  ///< [[pattern, whether it must match], …]
inline constexpr const char* layers =
    "\x01layers";  ///< [{properties, patternProperties, additionalProperties}, …]
inline constexpr const char* contains =
    "\x01"
    "contains";  ///< [{contains, minContains, maxContains}, …]
}  // namespace joined_keyword

/// One schema document. After a complaint nothing that it returns counts.
class schema_sets {
 public:
  using json = nlohmann::ordered_json;

  explicit schema_sets(const json& document) : document_(document) {}

  /// Schemas without parts that together have the values of `schema`, or some of them.
  std::vector<json> alternatives(const json& schema, const std::string& where);
  /// The schema that `ref` names; null after a complaint.
  const json* resolve(const std::string& ref, const std::string& where);
  /// Whether no value is of both; false if that is not seen.
  bool disjoint(const json& left, const json& right, int depth = 0);
  /// Whether `value` is one of `schema`.
  bool holds(const json& schema, const json& value, int depth = 0);

  /// The types that a schema names or that its keywords speak of; empty: any.
  std::vector<std::string> types_of(const json& schema, const std::string& where);
  /// Of a schema without parts: its keywords about members, one entry for each schema that was joined.
  static json layers_of(const json& schema);
  /// The schema of member `name` under a layer; null: the layer says nothing of it.
  std::vector<json> member_schemas(const json& layer, const std::string& name, const std::string& where);
  /// Strings that a schema without parts has.
  result<char_language> strings_of(const json& schema, const std::string& where);
  /// Strings that any schema has.
  result<char_language> names_of(const json& schema, const std::string& where);
  const char_language* pattern(const std::string& source, const std::string& where);
  std::optional<std::uint32_t> count(const json& schema, const char* keyword, const std::string& where);
  void check_keywords(const json& schema, const std::string& where);

  /// Whether a client's document has none of the keys that joining makes: their form is taken for granted.
  static bool is_free_of_joined(const json& document);

  void complain(const std::string& where, const std::string& what);
  bool failed() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }

 private:
  std::vector<json> crossed(const std::vector<json>& left, const std::vector<json>& right,
                            const std::string& where);
  std::optional<json> merged(const json& a, const json& b, const std::string& where);
  bool merge_keyword(json& a, const std::string& name, const json& value, const std::string& where);
  void merge_items(json& a, const json& b);
  void close_unevaluated(const json& schema, std::vector<json>& alternatives, const std::string& where);
  std::vector<json> exclusive(const json& parts, const std::string& where);
  std::vector<json> conditional(const json& schema, const std::string& where);
  std::vector<json> dependent(const json& dependencies, const std::string& where);
  /// Schemas that together have some of the values that `schema` does not have.
  std::vector<json> negated(const json& schema, const std::string& where, int depth);
  bool negate_keyword(const json& schema, const std::string& name, std::vector<json>& out,
                      const std::string& where, int depth);
  json canonical(json schema, const std::string& where);
  const json& looked_through(const json& schema);
  bool holds_number(const json& schema, const json& value);
  bool holds_text(const json& schema, const std::string& value);
  bool holds_array(const json& schema, const json& value, int depth);
  bool holds_object(const json& schema, const json& value, int depth);
  bool spend(std::size_t work, const std::string& where);

  const json& document_;
  std::string problem_;
  std::map<std::string, result<char_language>> patterns_;
  std::size_t depth_ = 0;
  std::size_t work_ = 0;
};

/// Whether a keyword says nothing of which values are valid.
bool is_note(std::string_view keyword);
/// Whether `value` is of JSON schema's type `type`.
bool is_of_type(const schema_sets::json& value, std::string_view type);

}  // namespace mooncaf
