#include "runtime/api/answer_form.hpp"

#include <utility>

#include "runtime/grammar/choice.hpp"
#include "runtime/grammar/json_schema.hpp"
#include "runtime/grammar/limits.hpp"
#include "runtime/grammar/regex.hpp"

namespace mooncaf {

namespace {

using json = body_json;

/// Takes forms as they are found, and complains of the second.
class form_taker {
 public:
  form_taker(body_reader& in, api_request& out) : in_(in), out_(out) {}

  void take(const std::string& field, result<std::string> grammar) {
    if (!grammar) return in_.complain(field, grammar.error().detail);
    if (!out_.form_field.empty())
      return in_.complain(field,
                          "asks for a form of the answer, as " + out_.form_field + " does; only one may");
    out_.form_field = field;
    out_.sampling.grammar = std::move(*grammar);
  }

  void schema(const std::string& field, const json& v) {
    if (v.is_string()) return take(field, grammar_of_schema(v.get<std::string>()));
    if (!v.is_object() && !v.is_boolean()) return in_.complain(field, "must be a JSON schema, or its text");
    take(field, grammar_of_schema(v.dump(-1, ' ', false, json::error_handler_t::replace)));
  }

  void regex(const std::string& field, const json& v) {
    if (!v.is_string()) return in_.complain(field, "must be a regular expression as a string");
    take(field, grammar_of_regex(v.get<std::string>()));
  }

  void choice(const std::string& field, const json& v) {
    std::vector<std::string> texts;
    for (const auto& t : v) {
      if (!v.is_array() || !t.is_string()) return in_.complain(field, "must be a list of strings");
      texts.push_back(t.get<std::string>());
    }
    if (!v.is_array()) return in_.complain(field, "must be a list of strings");
    take(field, grammar_of_choice(texts));
  }

  void grammar(const std::string& field, const json& v) {
    if (!v.is_string()) return in_.complain(field, "must be a grammar as a string");
    const auto& text = v.get_ref<const std::string&>();
    if (text.empty()) return;
    if (text.size() > grammar_limits::max_source_bytes)
      return in_.complain(field,
                          "takes at most " + std::to_string(grammar_limits::max_source_bytes) + " bytes");
    take(field, text);
  }

  void response_format(const json& v) {
    constexpr auto field = "response_format";
    const auto type = v.is_object() ? v.find("type") : v.end();
    if (!v.is_object() || type == v.end() || !type->is_string())
      return in_.complain(field, "must be an object with a type");
    if (*type == "text") return;
    if (*type == "json_object") {
      const auto own = v.find("schema");  // as llama.cpp has it
      return own == v.end() || own->is_null() ? take(field, grammar_of_json_object()) : schema(field, *own);
    }
    if (*type != "json_schema") return in_.complain(field, "type must be text, json_object or json_schema");
    const auto described = v.find("json_schema");
    const auto own = described != v.end() && described->is_object() ? described->find("schema") : v.end();
    if (described == v.end() || !described->is_object() || own == described->end() || own->is_null())
      return in_.complain(field, "json_schema.schema is required");
    schema(field, *own);
  }

  void structured_outputs(const json& v) {
    const std::string field = "structured_outputs";
    if (!v.is_object()) return in_.complain(field, "must be an object");
    for (const auto& [name, value] : v.items()) {
      if (value.is_null() || value == false) continue;
      if (name == "json") {
        schema(field, value);
      } else if (name == "json_object") {
        take(field, grammar_of_json_object());
      } else if (name == "regex") {
        regex(field, value);
      } else if (name == "choice") {
        choice(field, value);
      } else if (name == "grammar") {
        grammar(field, value);
      } else {
        in_.complain(field, shortened(name) + " is not supported");
      }
    }
  }

 private:
  body_reader& in_;
  api_request& out_;
};

}  // namespace

void read_form(body_reader& in, api_request& out) {
  form_taker form{in, out};
  if (const auto* v = in.find("response_format")) form.response_format(*v);
  if (const auto* v = in.find("structured_outputs")) form.structured_outputs(*v);
  for (const auto* name : {"guided_json", "json_schema"}) {
    if (const auto* v = in.find(name)) form.schema(name, *v);
  }
  if (const auto* v = in.find("guided_regex")) form.regex("guided_regex", *v);
  if (const auto* v = in.find("guided_choice")) form.choice("guided_choice", *v);
  for (const auto* name : {"guided_grammar", "grammar"}) {
    if (const auto* v = in.find(name)) form.grammar(name, *v);
  }
}

void read_format(body_reader& in, const std::string& field, const json& format, api_request& out) {
  const auto given = format.is_object() ? format.find("type") : format.end();
  const bool known = format.is_object() && given != format.end() &&
                     (*given == "text" || *given == "json_object" || *given == "json_schema");
  if (!known) return in.complain(field, "format must be of type text, json_object or json_schema");
  json chat = {{"response_format", {{"type", *given}}}};
  if (*given == "json_schema")
    chat["response_format"]["json_schema"] = {{"schema", format.value("schema", json())}};
  body_reader inner{chat};
  read_form(inner, out);
  if (const auto problem = inner.problem())
    in.complain(field, "format" + problem->detail.substr(std::string_view{"response_format"}.size()));
  if (!out.form_field.empty()) out.form_field = field;
}

}  // namespace mooncaf
