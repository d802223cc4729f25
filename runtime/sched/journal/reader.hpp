#pragma once
// Reads a journal back, record by record. Any bytes may come: a frame that is missing or damaged ends the
// reading with a `gap`, and a record that makes no sense in an error with the file's name, the offset and the
// reason.

#include <array>
#include <bit>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/sched/journal/encoder.hpp"

namespace mooncaf::journal {

/// @thread  One.
class reader {
 public:
  /// @param bytes  the file, kept by the caller. @param name  stands for it in error texts.
  reader(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  /// The options of core and queue.
  struct options {
    conductor_options core;
    admission_queue_options queue;
  };
  /// The beginning. Comes before `next`.
  /// @error `ec::corrupt`: no journal, or damaged; `ec::incompatible`: of another version.
  result<options> begin();
  /// The beginning of a worker's journal. @error  likewise.
  result<void> begin_worker();
  /// Hands the next record to `visit(input&, outcome)`, or `visit(input&)` if the input has no outcome.
  /// @tparam Inputs  `worker_inputs` in a worker's journal.
  /// @returns false at the end, or at a gap. @error `ec::corrupt`.
  template <class Inputs = inputs, class Visit>
  result<bool> next(Visit&& visit) {
    if (at_ == end_ && !next_frame()) return damaged_ ? result<bool>{error_now()} : result<bool>{false};
    record_at_ = at_;
    std::uint64_t place = 0;
    get(place);
    const bool known = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return ((place == I && (one<std::tuple_element_t<I, Inputs>>(visit), true)) || ...);
    }
    (std::make_index_sequence<std::tuple_size_v<Inputs>>{});
    if (!known && !damaged_) spoil("no input has the number " + std::to_string(place));
    if (damaged_) return error_now();
    return true;
  }

  /// Which version of the format it has.
  std::uint32_t version() const noexcept { return version_; }
  /// The program that wrote it.
  const origin& from() const noexcept { return origin_; }
  /// Offset of the record that came last.
  std::uint64_t offset() const noexcept { return record_at_; }
  /// Bytes at the end that are part of a frame that was never finished: the process died while writing.
  std::uint64_t torn_bytes() const noexcept { return torn_; }
  /// Where reading stopped, as the next frame does not follow the last one read.
  const std::optional<gap>& missing() const noexcept { return gap_; }
  /// How the journal ends, if nothing is missing before.
  ending end() const noexcept { return ending_; }

 private:
  template <class In, class Visit>
  void one(Visit& visit) {
    In in{};
    get_all(members_of(in));
    if constexpr (std::is_void_v<outcome_of<In>>) {
      if (!damaged_) visit(in);
    } else {
      outcome_of<In> outcome{};
      get(outcome);
      if (!damaged_) visit(in, outcome);
    }
  }
  result<void> begin(std::string_view kind, const char* complaint);
  bool next_frame();
  void spoil(std::string reason);
  tl::unexpected<error> error_now() const { return fail(*damaged_); }
  std::uint64_t raw(int bytes);
  std::uint64_t varint();
  /// A number of things of at least one byte each.
  std::uint64_t count();

  template <class Tuple>
  void get_all(const Tuple& t) {
    std::apply([this](auto&... v) { (this->get(v), ...); }, t);
  }
  void get(std::uint64_t& v) { v = varint(); }
  void get(std::uint32_t& v) { v = static_cast<std::uint32_t>(below(std::uint64_t{1} << 32)); }
  void get(std::uint8_t& v) { v = static_cast<std::uint8_t>(below(256)); }
  void get(bool& v) { v = below(2) != 0; }
  void get(std::int64_t& v) {
    const auto z = varint();
    v = static_cast<std::int64_t>(z >> 1 ^ (~(z & 1) + 1));
  }
  void get(double& v) { v = std::bit_cast<double>(raw(8)); }
  void get(duration& v) {
    std::int64_t n = 0;
    get(n);
    v = duration{n};
  }
  void get(time_point& v);
  void get(std::string& v);
  void get(node_id& v) { v.value = known(); }
  void get(worker_id& v) { v.value = known(); }
  void get(request_id& v);
  void get(std::span<const block_key>& keys);
  void get(block_key& key);
  void get(decision& v) {
    get(v.id);
    get(v.outcome);
  }
  void get(std::span<const node_id>& list) { list = listed(nodes_); }
  void get(std::span<const worker_id>& list) { list = listed(workers_); }
  template <class E>
  requires std::is_enum_v<E>
  void get(E& v) { v = static_cast<E>(below(values_of<E>) + first_value_of<E>); }
  template <class T>
  void get(std::vector<T>& list) {
    list.clear();
    for (auto n = count(); n > 0 && !damaged_; --n) get(list.emplace_back());
  }
  /// Members that the journal's version does not have stay as they are by default.
  template <plain_struct T>
  void get(T& v) {
    const auto members = members_of(v);
    constexpr auto all = std::tuple_size_v<decltype(members_of(v))>;
    const auto there = members_at<T>(version_, all);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((I < there ? get(std::get<I>(members)) : void()), ...);
    }
    (std::make_index_sequence<all>{});
  }
  template <class T>
  void get(std::optional<T>& v) {
    bool there = false;
    get(there);
    if (there) get(v.emplace());
    else v.reset();
  }
  template <class T, class E>
  void get(tl::expected<T, E>& v) {
    bool good = false;
    get(good);
    if (!good) {
      E e{};
      get(e);
      v = tl::unexpected(std::move(e));
    } else if constexpr (!std::is_void_v<T>) {
      T value{};
      get(value);
      v = std::move(value);
    }
  }
  template <class T>
  std::span<const T> listed(std::vector<T>& into) {
    get(into);
    return into;
  }
  std::uint64_t below(std::uint64_t limit);
  std::uint64_t known();

  std::string_view bytes_;
  std::string name_;
  std::uint32_t version_ = journal_version;
  origin origin_;
  std::size_t at_ = 0, end_ = 0;  // of the frame under way
  std::size_t record_at_ = 0;
  std::uint64_t torn_ = 0;
  std::optional<frame> frame_;  // under way, or read last
  std::optional<gap> gap_;
  ending ending_ = ending::open;
  std::optional<error> damaged_;
  time_point latest_time_{};
  std::uint64_t latest_request_ = 0;
  std::vector<std::uint64_t> known_;
  seen_keys seen_;
  // The spans of the latest record point into these.
  std::vector<block_key> keys_;
  std::vector<node_id> nodes_;
  std::vector<worker_id> workers_;
};

}  // namespace mooncaf::journal
