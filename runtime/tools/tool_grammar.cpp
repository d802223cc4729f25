#include "runtime/tools/tool_grammar.hpp"

#include <nlohmann/json.hpp>

#include "runtime/grammar/json_schema.hpp"

namespace mooncaf {

namespace {

using json = nlohmann::ordered_json;

/// References are to places of the function's own schema, which becomes part of a larger one. Keywords that
/// name the schema itself go.
void move_references(json& schema, const std::string& to, int depth = 0) {
  if (depth > 100) return;
  if (schema.is_object()) {
    schema.erase("$id");
    schema.erase("$schema");
    if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string()) {
      const auto& at = ref->get_ref<const std::string&>();
      if (at.starts_with('#')) *ref = to + at.substr(1);
    }
  }
  if (schema.is_structured()) {
    for (auto& part : schema) move_references(part, to, depth + 1);
  }
}

/// The schema of one call of `f`, which stands at `place` of a document.
result<json> schema_of_call(const tool_function& f, const std::string& key, const std::string& place) {
  json parameters = {{"type", "object"}};
  if (!f.parameters.empty()) {
    parameters = json::parse(f.parameters, nullptr, false);
    if (parameters.is_discarded() || !parameters.is_object())
      return fail(ec::invalid_argument, f.name + ": parameters must be a JSON schema");
    // Many clients send an object without members for a function that takes nothing.
    if (!parameters.contains("type") && !parameters.contains("$ref") && !parameters.contains("anyOf"))
      parameters["type"] = "object";
  }
  move_references(parameters, place + "/properties/" + key);
  return json{{"type", "object"},
              {"properties", {{"name", {{"const", f.name}}}, {key, std::move(parameters)}}},
              {"required", json::array({"name", key})},
              {"additionalProperties", false}};
}

}  // namespace

result<std::string> grammar_of_tools(tool_format format, std::span<const tool_function> functions,
                                     bool several) {
  const std::string key = format == tool_format::llama3 ? "parameters" : "arguments";
  json calls = json::array();
  for (std::size_t i = 0; i < functions.size(); ++i) {
    // Each schema alone first, so that an error names the place in it as the client sent it.
    if (!functions[i].parameters.empty()) {
      if (auto own = grammar_of_schema(functions[i].parameters); !own)
        return fail(own.error().code, functions[i].name + ": " + own.error().detail);
    }
    auto call = schema_of_call(functions[i], key, "#/anyOf/" + std::to_string(i));
    if (!call) return fail(call.error());
    calls.push_back(std::move(*call));
  }
  auto rules = grammar_of_schema(
      json{{"anyOf", std::move(calls)}}.dump(-1, ' ', false, json::error_handler_t::replace));
  if (!rules) return fail(rules.error());
  const std::string root = "root ::= ", more = several ? "{0,15}" : "{0,0}";
  const auto call = "call ::= " + rules->substr(root.size());
  switch (format) {
    case tool_format::hermes:
      return root + "block (\"\\n\" block)" + more +
             "\nblock ::= \"<tool_call>\\n\" call \"\\n</tool_call>\"\n" + call;
    case tool_format::llama3:
      return root + "call (\"; \" call)" + more + "\n" + call;
    case tool_format::phi4:
      return root + "\"functools[\" call (\", \" call)" + more + " \"]\"\n" + call;
    case tool_format::mistral:
    case tool_format::granite:
    case tool_format::deepseek:
    case tool_format::pythonic:
    case tool_format::qwen3_coder:
    case tool_format::gpt_oss:
      return root + "\"[\" call (\", \" call)" + more + " \"]\"\n" + call;
  }
  return fail(ec::internal, "no such form of calls");
}

}  // namespace mooncaf
