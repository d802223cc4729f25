#pragma once
// A connection as the parts of the directory that answer its questions see it.

#include <cstdint>
#include <string>

#include "storage/objects/terms/key_scope.hpp"
#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

struct directory_session {
  std::uint64_t id = 0;
  std::string host;         ///< where its process runs, see host_place.hpp
  key_scope scope;          ///< the names that it can say and hear
  std::uint32_t owner = 0;  ///< the tenant's number in the table; zero: no tenant
  bool greeted = false;
  store_wire::peer_release peer;
  bool nonsense =
      false;  ///< a question of it that had to wait fits nothing: its next one closes the connection
};

}  // namespace mooncaf
