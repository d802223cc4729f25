#pragma once

#include <stdexcept>
#include <utility>

#include "runtime/base/result.hpp"

namespace mooncaf::testing {

/// The value, or an exception that shows the error; for set-up steps that a test takes for granted.
template <class T>
T unwrap(result<T> r) {
  if (!r) throw std::runtime_error(to_string(r.error()));
  return std::move(*r);
}

}  // namespace mooncaf::testing
