#pragma once
// The figures of `/store/figures`, for the page of the store (`runtime/pages/store.html`) and `mooncaf store
// top`.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "storage/objects/client/store_client.hpp"

namespace mooncaf::store {

/// The store at one moment.
struct store_picture {
  directory_figures figures;
  std::vector<store_wire::mounted_segment> segments;
  std::vector<store_wire::named_hot_object> hottest;  ///< the first ones
};
/// @error of the connection
result<store_picture> look_at(store_client& store);

/// By the keys of `count_fields`.
nlohmann::json as_json(const object_counts& counts);
/// As all lists of segments have it: what it is and how full, and of the process that mounts it `release` (empty: not told)
/// and `protocol`, the version that the directory speaks with it.
nlohmann::json as_json(const store_wire::mounted_segment& segment);

/// The JSON that the page polls: `counts` as above; `times`, how long the directory worked on
/// questions of each kind; `segments`; `hottest`: key, tenant, bytes, replicas in memory, reads a second
/// (decayed). Bytes that are no UTF-8 are left for the caller to replace.
nlohmann::json as_json(const store_picture& picture);

}  // namespace mooncaf::store
