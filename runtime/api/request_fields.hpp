#pragma once
// The fields of a request body: some are heeded, some may be ignored, and some are refused because they would
// change the answer's meaning. `actors/http/README.md` shows this table; a test keeps them the same.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mooncaf {

/// The endpoints with a JSON body, as bits.
enum class body_endpoint : std::uint8_t {
  completions = 1,
  chat = 2,
  messages = 4,  ///< and the count of their tokens
  responses = 8,
  embeddings = 16,
  tokenize = 32,
  detokenize = 64
};

enum class field_kind : std::uint8_t {
  works,    ///< read, checked, heeded
  ignored,  ///< accepted: it cannot change the answer's meaning
  refused,  ///< 400 that names it, unless it has a value that asks for nothing
};

struct request_field {
  std::string_view name;
  std::uint8_t where = 0;  ///< body_endpoint bits
  field_kind kind = field_kind::works;
  std::string_view meaning;
  /// For `refused`: JSON values that ask for nothing and pass; null always does.
  std::array<std::string_view, 2> idle{};
};

/// Every field that this server has an opinion on. Any other is accepted and ignored.
std::span<const request_field> request_fields() noexcept;
/// @returns null for a field that is none of `request_fields` at this endpoint.
const request_field* find_field(body_endpoint where, std::string_view name) noexcept;
/// The table as Markdown.
std::string fields_as_markdown();

}  // namespace mooncaf
