#pragma once
// The conversation of a body, and how it becomes a prompt. For the sources of this folder.

#include "runtime/api/body_reader.hpp"
#include "runtime/api/openai.hpp"

namespace mooncaf {

/// Fills in the messages of `out`.
void read_messages(body_reader& in, chat_prompt& out);
/// Fills in `out` from chat_template_kwargs, add_generation_prompt and continue_final_message.
void read_template_options(body_reader& in, chat_prompt& out);

/// Fills in `out` from tools, tool_choice and parallel_tool_calls.
void read_tools(body_reader& in, chat_request& out);

/// The tools alone, for a prompt that is not answered.
std::vector<tool_function> read_tool_list(body_reader& in, std::string& as_text);

/// `v` as JSON text; ill-formed UTF-8 is replaced.
std::string text_of_json(const body_json& v);

}  // namespace mooncaf
