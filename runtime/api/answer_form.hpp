#pragma once
// The form that a request asks of its answer, in whatever field, as the text of a grammar. For the sources of
// this folder.

#include "runtime/api/body_reader.hpp"
#include "runtime/api/openai.hpp"

namespace mooncaf {

/// Fills in `out.sampling.grammar` and `out.form_field`. Complains of a form that is wrong or not supported,
/// and of two. The text of a grammar itself is not looked at: that takes its compiler (`grammar_cache`).
void read_form(body_reader& in, api_request& out);
/// The same of a `format` as newer APIs have it: a type, and with json_schema the schema beside it.
/// @param field  that holds the format.
void read_format(body_reader& in, const std::string& field, const body_json& format, api_request& out);

}  // namespace mooncaf
