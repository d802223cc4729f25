#pragma once
// Which versions of the store's protocol a release speaks, so that a store is upgraded one process after the other.
//
// A connection speaks the newest version that both its ends know: a client says hello in its `oldest`, which every neighbouring
// release answers, hears what the directory knows, and says hello again in that. What a version adds to a message stands behind
// what was there, and is on connections of that version alone; a question that a version adds is asked on those alone. So a
// release that adds something raises `newest`, and a later one `oldest`.

#include <cstdint>

namespace mooncaf::store_wire {

inline constexpr std::uint32_t oldest = 20;  ///< with which this release works together
inline constexpr std::uint32_t newest = 22;

/// Since this version a client tells its release in its hello, and the list of segments has release and version of each
/// segment's process.
inline constexpr std::uint32_t tells_releases = 21;

/// Since this version the holder of an SSD says with each `disk_done` how many bytes of objects that may hold now.
inline constexpr std::uint32_t tells_disk_room = 22;

}  // namespace mooncaf::store_wire
