#pragma once
// Every path that the HTTP front answers. `actors/http/README.md` shows this table; a test keeps them the
// same.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mooncaf {

enum class endpoint_id : std::uint8_t {
  completions,
  chat,
  messages,
  count_tokens,
  responses,
  embeddings,
  models,
  model,
  tokenize,
  detokenize,
  kept_prefixes,
  version,
  health,
  page,
  icon,
  cluster,
  metrics,
  integrity,
};

/// The key that a request needs where keys are set.
enum class endpoint_access : std::uint8_t {
  anybody,   ///< no key
  key,       ///< any key
  operator_  ///< the one key, or a tenant's that says `operates`: it tells of all tenants
};

struct endpoint {
  endpoint_id id;
  bool post = false;      ///< takes a JSON body; else GET and HEAD
  std::string_view path;  ///< ends with "/" if a name follows
  endpoint_access access = endpoint_access::key;
  std::string_view meaning;
  bool deletes = false;  ///< takes DELETE, too
};

std::span<const endpoint> endpoints() noexcept;
/// @returns null if there is no such path.
const endpoint* find_endpoint(std::string_view path) noexcept;
/// The table as Markdown.
std::string endpoints_as_markdown();

}  // namespace mooncaf
