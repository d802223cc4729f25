#pragma once
// JSON schemas as grammars.

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// A grammar of JSON texts that `schema` accepts, for draft 4 to 2020-12 where they agree.
///
/// Not all texts that it accepts: properties come in the order of the schema, others only where
/// `additionalProperties` asks for them or nothing else is said of the object; white space is at most a blank
/// or an indented line; numbers have at most sixteen digits before the point. Keywords about values of some
/// type, without `type`, mean values of that type.
/// @param schema  JSON text: an object, true or false.
/// @error `ec::invalid_argument`: not JSON, beyond grammar_limits, or at which place which keyword cannot be
/// held, e.g. "at #/properties/a: 'not' is not supported". Unknown keywords are ignored, as JSON schema says.
result<std::string> grammar_of_schema(std::string_view schema);

/// A grammar of any JSON object.
std::string grammar_of_json_object();

}  // namespace mooncaf
