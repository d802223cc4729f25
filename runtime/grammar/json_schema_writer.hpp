#pragma once
// Turns the parts of a JSON schema into rules. For the sources of `json_schema` alone: JSON shows in no
// interface.

#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/grammar/json_number.hpp"

namespace mooncaf {

/// One schema document. After a complaint nothing that it returns counts.
class schema_writer {
 public:
  using json = nlohmann::ordered_json;

  explicit schema_writer(const json& document) : document_(document) {}
  result<std::string> run();
  /// The rules of JSON itself, for a document without a schema.
  static std::string json_object_rules();

 private:
  // Each returns an expression.
  std::string visit(const json& schema, const std::string& where);
  std::string visit_ref(const json& schema, const std::string& where);
  std::string visit_union(const json& schema, const std::string& keyword, const std::string& where);
  std::string visit_all(const json& schema, const std::string& where);
  std::string values(const json& list, const json& schema, const std::string& where);
  std::string of_type(const std::string& type, const json& schema, const std::string& where);
  std::string number(const json& schema, bool whole, const std::string& where);
  std::string text(const json& schema, const std::string& where);
  std::string array(const json& schema, const std::string& where);
  std::string object(const json& schema, const std::string& where);

  /// What of an object's members comes in the text.
  struct members {
    std::vector<std::pair<std::string, bool>> named;  ///< expression, whether it must be there
    std::string extra;                                ///< any number of these at the end; empty: none
  };
  members members_of(const json& schema, const std::string& where);
  std::string any_value();
  std::string literal(const json& value, const std::string& where);

  /// The types that a schema names or that its keywords speak of; empty: any.
  std::vector<std::string> types_of(const json& schema, const std::string& where);
  /// The schema that `ref` names; null after a complaint.
  const json* resolve(const std::string& ref, const std::string& where);
  /// `schema` with its $ref and single allOf resolved, as far as that is simple; for comparisons.
  const json& looked_through(const json& schema);
  /// Both schemas as one. Complains of what cannot be joined.
  json merged(json a, const json& b, const std::string& where);
  bool disjoint(const json& a, const json& b, int depth);
  void check_keywords(const json& schema, const std::string& where);
  std::optional<std::uint32_t> count(const json& schema, const char* keyword, const std::string& where);

  std::string base(std::string_view name);  ///< a rule of JSON itself, made when first used
  std::string rule(std::string right_side);
  void complain(const std::string& where, const std::string& what);
  bool failed() const { return !problem_.empty(); }

  const json& document_;
  std::string problem_;
  std::string rules_;
  std::size_t rule_count_ = 0;
  std::map<std::string, std::string, std::less<>> base_rules_;
  std::map<std::string, std::string> refs_;  ///< rules of what $ref named so far
  std::size_t depth_ = 0;
  std::size_t visits_ = 0;
};

}  // namespace mooncaf
