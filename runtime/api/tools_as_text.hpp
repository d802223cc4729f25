#pragma once
// Tools in the words of messages, for chat templates that have no place for them.

#include "runtime/api/openai.hpp"

namespace mooncaf {

/// Whether a conversation offers tools, or holds calls or their results.
bool speaks_of_tools(const chat_prompt& conversation);

/// The conversation with its tools listed in front, earlier calls as the assistant's text and results as the
/// user's, in the marks of `tool_format::hermes`. The result has no tools, calls or messages of the role
/// tool.
/// @param with_system  whether the list is a system message, or part of one that is there; else it begins the
/// first message of the user.
chat_prompt tools_as_text(chat_prompt conversation, bool with_system);

}  // namespace mooncaf
