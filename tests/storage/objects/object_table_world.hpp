#pragma once
// A table of objects and a time of its own.

#include <string_view>
#include <utility>

#include "storage/objects/table/object_table.hpp"

namespace mooncaf::test {

using namespace std::chrono_literals;

struct table_world {
  explicit table_world(object_table_options options = usual()) : table(std::move(options)) {}
  static object_table_options usual() {
    object_table_options out;
    out.lease = 10s;
    return out;
  }
  object_table table;
  time_point now{1h};

  store_code put(std::string_view key, std::uint64_t size = 1000, const put_policy& policy = {}) {
    const auto r = table.reserve(1, key, size, policy, {}, now);
    return r.code == store_code::ok ? table.publish(1, r.ticket, 42, now) : r.code;
  }
};

}  // namespace mooncaf::test
