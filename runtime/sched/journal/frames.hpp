#pragma once
// The frames of a journal's file. A part of it that is lost, altered or moved is found and counted.
//
//   file    "mooncafJ" (a conductor's) or "mooncafW" (a worker's), version (u32)   frame   frame   …   closing frame
//           all little-endian
//   frame   kind, length of the payload, its number, records in it (u32 each), records before it, digest of
//           the header before, of the payload, and of this header (xxh3, u64 each); payload: records.
//           The payload of the closing frame is why nothing follows (u8)
//
// Every header holds the digest of the one before, so frames stand in one order only. A file without a
// closing frame is being written, or the process that wrote it was killed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mooncaf::journal {

inline constexpr std::string_view magic = "mooncafJ", worker_magic = "mooncafW";
inline constexpr std::size_t file_header_bytes = magic.size() + 4;
inline constexpr std::size_t frame_header_bytes = 48;
inline constexpr std::size_t closing_frame_bytes = frame_header_bytes + 1;

/// Why a journal has no more records.
enum class ending : std::uint8_t {
  open,    ///< no closing frame: it is being written, or its process was killed
  closed,  ///< the process stopped as told
  full,    ///< its limit was reached, and the process went on without it
  failed,  ///< it could not be written any more
};

struct frame {
  std::size_t at = 0;  ///< in the file
  bool closes = false;
  std::uint32_t number = 0;   ///< from 0
  std::uint32_t records = 0;  ///< in it
  std::uint64_t before = 0;   ///< records in all frames before it
  std::uint64_t previous = 0, digest = 0;
  std::string_view payload;
  std::size_t end() const noexcept { return at + frame_header_bytes + payload.size(); }
};

/// Puts records into frames, each linked to the one before.
/// @thread  One.
class frame_writer {
 public:
  /// @returns the bytes of the next frame.
  std::string next(std::string_view payload, std::uint32_t records) { return make(false, payload, records); }
  /// @returns the bytes of the closing frame.
  std::string last(ending why);

 private:
  std::string make(bool closes, std::string_view payload, std::uint32_t records);

  std::uint32_t number_ = 0;
  std::uint64_t before_ = 0, previous_ = 0;
};

/// The frame that begins there; nothing if no whole and sound one does.
std::optional<frame> frame_at(std::string_view file, std::size_t at);

/// The fault of a journal where its frames stop following each other.
struct gap {
  std::size_t at = 0;  ///< in the file
  std::string problem;
  std::uint64_t missing_frames = 0, missing_records = 0;  ///< as far as the frames that are there tell
  std::uint64_t unused_frames = 0, unused_records = 0;    ///< whole, and of no use without the missing ones
};

/// Looks behind `at`, where the frame after `last` should begin and does not, for frames that are whole.
/// @param last  nothing: `at` is where the first one should be. @returns nothing if there are none: the file
/// ends with a piece that was never finished.
std::optional<gap> find_gap(std::string_view file, std::size_t at, const std::optional<frame>& last);

/// A line for people.
std::string to_string(const gap& g);

}  // namespace mooncaf::journal
