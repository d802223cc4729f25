#pragma once
// Which release's messages a process reads and sends, so that a cluster is upgraded one process after the other.
//
// A struct crosses as the number of its members and these members, in order (wire.hpp). A release that gives a message new
// members puts them at its end, raises `newest`, and says in serialization.hpp how many there were before (`growth`). A
// process sends no peer what that peer does not know: nodes tell their version in their introductions, and what is sent has
// as many members as the oldest of a node's peers knows. Whoever gets fewer than it knows leaves the rest as they are by
// default. So neighbouring releases work together, and the new members travel as soon as the last old process is gone.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace mooncaf::wire {

inline constexpr std::uint32_t oldest = 12;  ///< with which this release works together
inline constexpr std::uint32_t newest = 15;

/// Before this version a struct had so many members.
struct growth {
  std::uint32_t version = 0;
  std::size_t members = 0;
};

/// The history of a struct, in ascending order; empty: it has the members that it had in `oldest`.
template <class T>
inline constexpr std::array<growth, 0> growth_of{};

/// Whether it is sent to peers whose version is not known yet, and so always as `oldest` has it.
template <class T>
inline constexpr bool comes_first = false;

/// Whether it is a value that will never have more members, as a hash or an id: it crosses without their number, since
/// messages have thousands of them.
template <class T>
inline constexpr bool never_grows = false;

/// How many members, of `all` that it has, a struct with this history had in a version.
constexpr std::size_t members_at(std::span<const growth> history, std::uint32_t version,
                                 std::size_t all) noexcept {
  for (const auto& g : history)
    if (version < g.version) return g.members;
  return all;
}
template <class T>
constexpr std::size_t members_at(std::uint32_t version, std::size_t all) noexcept {
  return members_at(growth_of<T>, version, all);
}

namespace detail {
inline std::atomic<std::uint32_t> known{newest}, spoken{newest};
}  // namespace detail

/// The newest that this process reads; below `newest` where it was told to behave as an older release.
/// @thread  Safe, as all of these: an actor's messages are written by CAF's threads.
inline std::uint32_t known() noexcept { return detail::known; }
/// What is sent now.
inline std::uint32_t spoken() noexcept { return detail::spoken; }
inline void speak(std::uint32_t version) noexcept { detail::spoken = version; }
/// Before anything is sent.
inline void know(std::uint32_t version) noexcept { detail::known = detail::spoken = version; }

}  // namespace mooncaf::wire
