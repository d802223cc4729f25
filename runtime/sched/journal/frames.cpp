#include "runtime/sched/journal/frames.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "runtime/base/hash.hpp"

namespace mooncaf::journal {

namespace {

constexpr std::string_view frame_mark = "mcjF", closing_mark = "mcjE";
constexpr std::string_view common_mark = "mcj";

std::uint64_t digest_of(std::string_view bytes) { return checksum64(std::as_bytes(std::span{bytes})); }

void append(std::string& to, std::uint64_t v, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(v >> 8 * i & 0xFF);
}

std::uint64_t take(std::string_view& from, std::size_t bytes) {
  std::uint64_t v = 0;
  for (std::size_t i = 0; i < bytes; ++i) v |= std::uint64_t{static_cast<unsigned char>(from[i])} << 8 * i;
  from.remove_prefix(bytes);
  return v;
}

std::optional<frame> frame_behind(std::string_view file, std::size_t at) {
  while ((at = file.find(common_mark, at)) != std::string_view::npos) {
    if (auto found = frame_at(file, at)) return found;
    ++at;
  }
  return std::nullopt;
}

}  // namespace

std::string frame_writer::make(bool closes, std::string_view payload, std::uint32_t records) {
  std::string out{closes ? closing_mark : frame_mark};
  append(out, payload.size(), 4);
  append(out, number_++, 4);
  append(out, records, 4);
  append(out, std::exchange(before_, before_ + records), 8);
  append(out, previous_, 8);
  append(out, digest_of(payload), 8);
  previous_ = digest_of(out);
  append(out, previous_, 8);
  out += payload;
  return out;
}

std::string frame_writer::last(ending why) {
  const char reason = static_cast<char>(why);
  return make(true, {&reason, 1}, 0);
}

std::optional<frame> frame_at(std::string_view file, std::size_t at) {
  if (at > file.size() || file.size() - at < frame_header_bytes) return std::nullopt;
  auto header = file.substr(at, frame_header_bytes);
  const auto digest = digest_of(header.substr(0, frame_header_bytes - 8));
  const auto mark = header.substr(0, frame_mark.size());
  if (mark != frame_mark && mark != closing_mark) return std::nullopt;
  header.remove_prefix(mark.size());
  frame f;
  f.at = at;
  f.closes = mark == closing_mark;
  const auto length = take(header, 4);
  f.number = static_cast<std::uint32_t>(take(header, 4));
  f.records = static_cast<std::uint32_t>(take(header, 4));
  f.before = take(header, 8);
  f.previous = take(header, 8);
  const auto payload_digest = take(header, 8);
  f.digest = take(header, 8);
  const auto left = file.substr(at + frame_header_bytes);
  if (f.digest != digest || length == 0 || length > left.size()) return std::nullopt;
  f.payload = left.substr(0, length);
  if (digest_of(f.payload) != payload_digest) return std::nullopt;
  return f;
}

/// Looks at the whole rest of the file: only later frames tell how many are missing.
std::optional<gap> find_gap(std::string_view file, std::size_t at, const std::optional<frame>& last) {
  const auto expected = last ? last->number + 1 : 0;
  const auto known_records = last ? last->before + last->records : 0;
  std::map<std::uint32_t, frame> behind;
  const auto first = frame_behind(file, at);
  if (!first) return std::nullopt;
  gap g;
  g.at = at;
  for (auto f = first; f; f = frame_behind(file, f->end())) {
    if (f->number >= expected) behind.emplace(f->number, *f);
  }
  const auto name = "frame " + std::to_string(expected);
  if (last && last->closes) {
    g.problem = "frames follow the one that closes the journal";
  } else if (first->at > at) {
    g.problem = name + " is damaged";
  } else if (first->number != expected) {
    g.problem = name + " should be here, frame " + std::to_string(first->number) + " is";
  } else {
    g.problem = name + " is not the one that followed the frame before it";
  }
  if (behind.empty()) return g;
  const auto& latest = behind.rbegin()->second;
  g.unused_frames = behind.size();
  for (const auto& [number, f] : behind) g.unused_records += f.records;
  g.missing_frames = std::uint64_t{latest.number} + 1 - expected - g.unused_frames;
  const auto all = latest.before + latest.records;
  g.missing_records = all - std::min(all, known_records + g.unused_records);
  return g;
}

std::string to_string(const gap& g) {
  const auto count = [](std::uint64_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  return "offset " + std::to_string(g.at) + ": " + g.problem + ": " + count(g.missing_frames, "frame") +
         " with " + count(g.missing_records, "call") + " missing; " + count(g.unused_frames, "frame") +
         " with " + count(g.unused_records, "call") + " behind that cannot be made without them";
}

}  // namespace mooncaf::journal
