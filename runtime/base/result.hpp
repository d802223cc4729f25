#pragma once
// Errors are values: a function that can fail returns `result<T>`.

#include <tl/expected.hpp>
#include <utility>

#include "runtime/base/error.hpp"

namespace mooncaf {

template <class T>
using result = tl::expected<T, error>;

/// Shorthand for the failing side of a result: `return fail(ec::not_found, "key …")`.
inline tl::unexpected<error> fail(ec code, std::string detail = {}) {
  return tl::unexpected<error>(error{code, std::move(detail)});
}
inline tl::unexpected<error> fail(error e) { return tl::unexpected<error>(std::move(e)); }

}  // namespace mooncaf
