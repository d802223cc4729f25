#pragma once
// Turns the parts of a JSON schema into rules. For the sources of `json_schema` alone: JSON shows in no
// interface.

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/grammar/char_language.hpp"
#include "runtime/grammar/json_number.hpp"
#include "runtime/grammar/json_schema_sets.hpp"

namespace mooncaf {

/// One schema document. After a complaint nothing that it returns counts.
class schema_writer {
 public:
  using json = schema_sets::json;

  explicit schema_writer(const json& document) : sets_(document) {}
  result<std::string> run(const json& document);
  /// The rules of JSON itself, for a document without a schema.
  static std::string json_object_rules();

 private:
  // Each returns an expression.
  std::string visit(const json& schema, const std::string& where);
  std::string visit_ref(const std::string& ref, const std::string& where);
  std::string visit_parts(const json& parts, const std::string& where);
  /// A schema without parts that are schemas of the same value.
  std::string visit_flat(const json& schema, const std::string& where);
  std::string values(const json& schema, const std::string& where);
  std::string of_type(const std::string& type, const json& schema, const std::string& where);
  std::string number(const json& schema, bool whole, const std::string& where);
  std::string text(const json& schema, const std::string& where);
  std::string array(const json& schema, const std::string& where);
  std::string array_of_distinct(const json& items, std::uint32_t least, std::optional<std::uint32_t> most,
                                const std::string& where);
  std::string array_with(const json& contained, const std::string& item);
  std::string object(const json& schema, const std::string& where);

  /// The members of an object, as they come in the text.
  struct members {
    std::vector<std::pair<std::string, bool>> named;  ///< expression, whether it must be there
    std::string extra;                                ///< any number of these at the end; empty: none
    bool impossible = false;                          ///< one that must be there cannot be
  };
  members members_of(const json& schema, const std::string& where);
  std::string extra_members(const json& schema, const std::vector<std::string>& names, bool wanted,
                            const std::string& where);
  std::string any_value() { return base("value"); }
  std::string literal(const json& value, const std::string& where);
  /// An expression for a JSON string of this language; empty if it has none.
  std::string quoted(const result<char_language>& language, const std::string& where);

  std::string base(std::string_view name);  ///< a rule of JSON itself, made when first used
  std::string rule(std::string right_side);
  std::string fresh_name() { return "r" + std::to_string(rule_count_++); }
  void complain(const std::string& where, const std::string& what) { sets_.complain(where, what); }
  bool failed() const { return sets_.failed(); }

  schema_sets sets_;
  std::string rules_;
  std::size_t rule_count_ = 0;
  std::map<std::string, std::string, std::less<>> base_rules_;
  std::map<std::string, std::string> refs_;   ///< rules of the schemas that $ref named so far
  std::map<std::string, std::string> known_;  ///< rules of schemas with parts, by their text
  std::size_t depth_ = 0;
  std::size_t visits_ = 0;
};

}  // namespace mooncaf
