#pragma once
// Fields that the bodies of several endpoints share. For the sources of this folder.

#include <vector>

#include "runtime/api/body_reader.hpp"
#include "runtime/api/openai.hpp"

namespace mooncaf {

/// Sets the fields of `read_sampling` to their values for a body without them.
void begin_with(const generation_defaults& defaults, sampling_params& out);
/// Model, temperature and the other fields that decide how tokens are drawn.
void read_sampling(body_reader& in, api_request& out);
/// Priority, salt, SLOs, and how a long prompt is cut.
void read_service(body_reader& in, api_request& out);
/// Stop strings in the field `name`: one, or a list.
void read_stop(body_reader& in, const char* name, sampling_params& out);
/// All that completions and chats share. @param least_tokens  0 where a prompt may be scored without an
/// answer.
void read_common(body_reader& in, api_request& out, std::uint32_t least_tokens);
/// A prompt, token ids, or a list of either.
std::vector<prompt_input> read_prompts(body_reader& in, const char* name);

}  // namespace mooncaf
