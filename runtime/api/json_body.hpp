#pragma once
// A request body as JSON, at a cost that is linear in its bytes whatever stands in it. For the sources of
// this folder: JSON shows in no interface.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/api/request_fields.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

inline constexpr std::size_t body_depth_limit = 64;          ///< nested deeper than any real request
inline constexpr std::size_t body_values_limit = 1'000'000;  ///< more than any context holds tokens
inline constexpr std::size_t foreign_text_limit = 200;       ///< bytes of a client's text in an error

/// Objects keep the order of their fields, which schemas mean something by. Looking one up takes as long as
/// the object is.
using body_json = nlohmann::ordered_json;

/// Foreign text as it may stand in an error: it can be as long as the body.
std::string shortened(std::string text);

/// The fields of a body that `request_fields` knows at this endpoint; others are checked to be JSON and not
/// kept. Of a field that is given twice, the last counts.
/// @error `ec::invalid_argument`, "body: …": not JSON (with line and column), not an object, deeper than
/// `body_depth_limit`, more than `body_values_limit` values; "FIELD: …" for one that is refused.
/// @cost O(bytes), but for kept objects: their keys are sorted.
result<body_json> parse_body(std::string_view body, body_endpoint where);

}  // namespace mooncaf
