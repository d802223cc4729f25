#pragma once
// Records of a journal as bytes, in frames (frames.hpp). The first frame begins with its `origin`, a conductor's goes on
// with the options of the core and of the queue. A record is the place of an input in `inputs`, its members, and the members of its
// outcome.
//
// Whole numbers are varints; times and request ids differences to the latest; ids of nodes and workers
// numbers in a table of the ids so far; keys as in key_codec.hpp.

#include <bit>
#include <chrono>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/sched/journal/fields.hpp"
#include "runtime/sched/journal/frames.hpp"
#include "runtime/sched/journal/inputs.hpp"
#include "runtime/sched/journal/key_codec.hpp"
#include "runtime/sched/journal/sink.hpp"

namespace mooncaf::journal {

/// @thread  Owned by the conductor or the worker; not synchronised.
class encoder {
 public:
  /// Begins a worker's journal.
  explicit encoder(sink out, const origin& from = this_program())
      : encoder(worker_magic, std::move(out), from) {}
  /// Begins a journal of a core and a queue with these options.
  encoder(const conductor_options& core, const admission_queue_options& queue, sink out,
          const origin& from = this_program());
  ~encoder() { close(); }
  encoder(const encoder&) = delete;
  encoder& operator=(const encoder&) = delete;

  /// The call and its outcome.
  template <class In, class Outcome>
  void record(In& in, const Outcome& outcome) {
    begin(in);
    put(outcome);
    end();
  }
  template <class In>
  void record(In& in) {
    begin(in);
    end();
  }
  /// Hands the records so far to the sink, as one frame.
  void flush();
  /// Nothing more is recorded, and the file says so.
  void close();
  bool open() const noexcept { return open_; }

 private:
  static constexpr std::size_t enough_for_a_frame = 64 << 10;

  encoder(std::string_view kind, sink out, const origin& from);

  template <class In>
  void begin(In& in) {
    put(static_cast<std::uint64_t>(place_of<In>()));
    put_all(members_of(in));
  }
  void end() {
    ++records_;
    if (frame_.size() > enough_for_a_frame) flush();
  }
  template <class Tuple>
  void put_all(const Tuple& t) {
    std::apply([this](const auto&... v) { (this->put(v), ...); }, t);
  }

  void put(std::uint64_t v);
  void put(std::uint32_t v) { put(std::uint64_t{v}); }
  void put(std::uint8_t v) { put(std::uint64_t{v}); }
  void put(bool v) { put(std::uint64_t{v}); }
  void put(std::int64_t v) { put(static_cast<std::uint64_t>(v) << 1 ^ static_cast<std::uint64_t>(v >> 63)); }
  void put(double v);
  void put(duration v) { put(static_cast<std::int64_t>(v.count())); }
  void put(time_point v);
  void put(const std::string& v);
  void put(node_id v) { put_known(v.value); }
  void put(worker_id v) { put_known(v.value); }
  void put(request_id v);
  void put(std::span<const block_key> keys);
  void put(const block_key& key) { put(std::span{&key, 1}); }
  template <class E>
  requires std::is_enum_v<E>
  void put(E v) {
    static_assert(values_of<E> > 0, "name it in fields.hpp");
    put(static_cast<std::uint64_t>(v) - first_value_of<E>);
  }
  template <class T>
  void put(std::span<const T> list) {
    put(static_cast<std::uint64_t>(list.size()));
    for (const auto& v : list) put(v);
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(std::span<const T>{list});
  }
  template <plain_struct T>
  void put(const T& v) {
    put_all(members_of(v));
  }
  template <class T>
  void put(const std::optional<T>& v) {
    put(v.has_value());
    if (v) put(*v);
  }
  template <class T, class E>
  void put(const tl::expected<T, E>& v) {
    put(v.has_value());
    if (!v) put(v.error());
    else if constexpr (!std::is_void_v<T>) put(*v);
  }
  void put(const decision& v) {
    put(v.id);
    put(v.outcome);
  }
  void put_known(std::uint64_t id);
  void end_with(written refused);
  void put_raw(std::uint64_t v, int bytes);

  sink out_;
  bool open_ = true;
  frame_writer frames_;
  std::string frame_;  ///< its payload so far
  std::uint32_t records_ = 0;
  time_point latest_time_{};
  std::uint64_t latest_request_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> known_;
  seen_keys keys_;
};

}  // namespace mooncaf::journal
