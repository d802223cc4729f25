#pragma once
// Objects that are written or read layer by layer: the sessions that a caller has begun, by key.

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "storage/objects/client/store_client.hpp"
#include "storage/python/python_values.hpp"

namespace mooncaf {

/// Every function takes the store first; null: it is closed, and all is refused with -600. They are called
/// with the GIL, and let go of it.
/// @thread  any
class store_parts {
 public:
  using store = std::shared_ptr<store_client>;
  using strings = std::vector<std::string>;
  using offsets_by_key = std::vector<std::vector<std::uint64_t>>;

  /// @returns a code for each.
  std::vector<std::int32_t> begin_puts(const store& to, const strings& keys,
                                       const std::vector<std::uint64_t>& sizes, const how& given);
  /// Parts are (address, size), each with where it begins in the object.
  /// @returns for each key the bytes that were written, or a code.
  std::vector<std::int64_t> put_parts(const store& to, const strings& keys, const py::list& all,
                                      const offsets_by_key& offsets);
  /// @param publish  else they are given up.
  std::vector<std::int32_t> end_puts(const store& to, const strings& keys, bool publish);
  std::vector<std::int32_t> begin_gets(const store& from, const strings& keys);
  /// @param in_session  of objects that `begin_gets` found; else of objects that are there now.
  /// @param may  whether a part may be written there; else it is -600.
  /// @returns for each key and part the bytes that were copied, or a code.
  std::vector<std::vector<std::int64_t>> get_parts(
      const store& from, const strings& keys, const py::list& all, const offsets_by_key& offsets,
      bool in_session, const std::function<bool(std::span<const std::byte>)>& may);
  void end_gets(const strings& keys);
  void forget();

 private:
  std::shared_ptr<partial_object> find(const std::string& key);

  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<partial_object>> writing_;
  std::unordered_map<std::string, object_view> reading_;
};

}  // namespace mooncaf
