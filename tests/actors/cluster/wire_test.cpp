// Every message type of actors/serialization.hpp crosses a real link, there and back, with every field set. A
// type that is not registered arrives empty, a member that its `inspect` forgot arrives with its default:
// both fail here, also for types that are added later, since the tests walk the type-id block itself.

#include <doctest/doctest.h>

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "actors/serialization.hpp"
#include "runtime/base/hash.hpp"
#include "tests/support/actor_fixture.hpp"
#include "tests/support/golden_text.hpp"

using namespace mooncaf;

namespace {

using block = caf::id_block::mooncaf;
template <caf::type_id_t Id>
using type_of = typename caf::type_by_id<Id>::type;

template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_pair : std::false_type {};
template <class A, class B>
struct is_pair<std::pair<A, B>> : std::true_type {};
template <class T>
struct is_array : std::false_type {};
template <class T, std::size_t N>
struct is_array<std::array<T, N>> : std::true_type {};

/// Gives every leaf a value that is not its default and hardly ever that of another leaf.
struct filler {
  using result_type = bool;
  static constexpr bool reads_state = false;
  static constexpr bool writes_state = true;

  caf::actor handle;
  std::uint64_t next = 1;

  template <class... Ts>
  bool operator()(Ts&... members) {
    (fill(members), ...);
    return true;
  }

  void fill(float_bits& x) {
    constexpr auto infinity = std::numeric_limits<float>::infinity();
    const float values[] = {infinity, std::numeric_limits<float>::quiet_NaN(),  -infinity,
                            -0.0f,    std::numeric_limits<float>::denorm_min(), 0.3f};
    x = float_bits{values[next++ % 6]};
  }

  template <class T>
  void fill(T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      x = !T{x};
    } else if constexpr (std::is_same_v<T, std::byte>) {
      x = static_cast<std::byte>(1 + next++ % 255);
    } else if constexpr (std::is_enum_v<T>) {
      x = x == static_cast<T>(2) ? static_cast<T>(1) : static_cast<T>(2);
    } else if constexpr (std::is_integral_v<T>) {
      // The highest bits are in use, so that no field may be narrower on the wire than here; the sign, too.
      x = static_cast<T>(~T{0} - static_cast<T>(1 + next++ % 100));
    } else if constexpr (std::is_same_v<T, std::string>) {
      x = "text " + std::to_string(next++) + std::string{"\0\xC3\xA4", 3};
    } else if constexpr (std::is_same_v<T, caf::actor>) {
      x = handle;
    } else if constexpr (is_vector<T>::value) {
      x.resize(2 + next++ % 2);
      for (auto& e : x) fill(e);
    } else if constexpr (is_pair<T>::value) {
      fill(x.first);
      fill(x.second);
    } else if constexpr (is_array<T>::value) {
      for (auto& e : x) fill(e);
    } else {
      inspect(*this, x);
    }
  }
};

/// Writes a value as text, one string per member of the outermost struct.
struct dumper {
  using result_type = bool;
  static constexpr bool reads_state = true;
  static constexpr bool writes_state = false;

  template <class... Ts>
  bool operator()(const Ts&... members) {
    (members_.push_back(text(members)), ...);
    return true;
  }

  template <class T>
  static std::vector<std::string> members_of(const T& x) {
    if constexpr (is_vector<T>::value) {
      return {text(x)};
    } else {
      dumper d;
      inspect(d,
              const_cast<T&>(x));  // an inspector that only reads is given a mutable reference all the same
      return d.members_;
    }
  }

  template <class T>
  static std::string text(const T& x) {
    if constexpr (std::is_same_v<T, std::string>) {
      return "\"" + x + "\"";
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      return std::to_string(static_cast<std::int64_t>(x));
    } else if constexpr (std::is_same_v<T, caf::actor>) {
      return x ? caf::to_string(x) : "nobody";
    } else if constexpr (is_vector<T>::value || is_array<T>::value) {
      std::string out = "[";
      for (const auto& e : x) out += text(e) + ",";
      return out + "]";
    } else if constexpr (is_pair<T>::value) {
      return "(" + text(x.first) + "," + text(x.second) + ")";
    } else {
      std::string out = "{";
      for (const auto& member : members_of(x)) out += member + ",";
      return out + "}";
    }
  }

  std::vector<std::string> members_;
};

template <class Call, std::size_t... I>
void for_each_type(Call&& call, std::index_sequence<I...>) {
  (call.template operator()<type_of<block::begin + I>>(), ...);
}
template <class Call>
void for_each_type(Call&& call) {
  for_each_type(std::forward<Call>(call), std::make_index_sequence<block::end - block::begin>{});
}

/// What this process sends and reads within a scope.
struct speaking {
  explicit speaking(std::uint32_t version) { wire::speak(version); }
  ~speaking() { wire::know(wire::newest); }
  speaking(const speaking&) = delete;
  speaking& operator=(const speaking&) = delete;
};

template <class T>
std::vector<char> written(caf::actor_system& in, T& value) {
  std::vector<char> bytes;
  caf::binary_serializer to{in, bytes};
  REQUIRE(!to(value));
  return bytes;
}

caf::behavior silent() {
  return {[](caf::unit_t) {}};
}

caf::behavior mirror(caf::event_based_actor* self) {
  self->set_default_handler(caf::reflect);
  return {[](caf::unit_t) {}};
}

/// Sends a message to a mirror at another process, and waits for what comes back. One function for all types: CAF's
/// handlers for each of them were most of this file's time to compile.
template <class System>
caf::message reflected(System& from, const caf::actor& mirror, caf::message sent) {
  from.self->send(mirror, std::move(sent));
  if (!from.self->await_data(std::chrono::high_resolution_clock::now() + std::chrono::seconds(10))) return {};
  return from.self->dequeue()->move_content_to_message();
}

/// The only element of a message, if it is one of this type.
template <class T>
const T* only(const caf::message& x) {
  return x.size() == 1 && x.match_element<T>(0) ? &x.get_as<T>(0) : nullptr;
}

}  // namespace

TEST_CASE("every message crosses as the bytes that other processes of the cluster know, in each version") {
  testing::actor_fixture<block> systems;
  for (auto version = wire::oldest; version <= wire::newest; ++version) {
    const speaking as{version};
    std::string text;
    for_each_type([&]<class T>() {
      T sent;
      filler{{}, 1}.fill(sent);  // anew for each, so that a new member of one changes no other
      const auto bytes = written(systems.sys, sent);
      if (bytes.empty()) return;  // an atom
      text += std::string{caf::type_name<T>::value} + " " + std::to_string(bytes.size()) + " " +
              std::to_string(checksum64(std::as_bytes(std::span{bytes}))) + "\n";
    });
    testing::check_golden("status/wire_" + std::to_string(version) + ".txt", text);
  }
}

TEST_CASE("a message of the release before leaves members that it does not have as they are by default") {
  testing::actor_fixture<block> systems;
  for_each_type([&]<class T>() {
    CAPTURE(caf::type_name<T>::value);
    T sent, got;
    filler{{}, 1}.fill(sent);
    std::vector<char> bytes;
    {
      const speaking as{wire::oldest};
      bytes = written(systems.sys, sent);
    }
    caf::binary_deserializer from{systems.sys, bytes};
    REQUIRE(!from(got));
    REQUIRE(from.remaining() == 0);
    // Written again by a process that speaks as the one before, it is the same.
    const speaking as{wire::oldest};
    CHECK(written(systems.sys, got) == bytes);
  });
  node_report sent, got;
  sent.leads = true;
  sent.release = "new";
  sent.speaks = 7;
  const speaking as{12};
  const auto bytes = written(systems.sys, sent);
  caf::binary_deserializer from{systems.sys, bytes};
  REQUIRE(!from(got));
  CHECK(got.leads);
  CHECK(got.release.empty());
  CHECK(got.speaks == 0);
}

TEST_CASE(
    "a message of a release that this process does not know is an error, and so is a number without its "
    "members") {
  testing::actor_fixture<block> systems;
  node_report sent;
  auto bytes = written(systems.sys, sent);
  const auto read = [&] {
    node_report got;
    return caf::binary_deserializer{systems.sys, bytes}(got);
  };
  CHECK(!read());
  {
    const speaking as{12};
    wire::know(12);
    CHECK(read());
  }
  for (int members = 0; members < 256; ++members) {
    CAPTURE(members);
    bytes.front() = static_cast<char>(members);
    if (members > 18) CHECK(read());
    else if (members == 18) CHECK(!read());
    else static_cast<void>(read());  // fewer: what follows is left, and no sender does that
  }
}

TEST_CASE("every message type arrives whole at another process, and back") {
  testing::two_systems<block> systems;
  const auto far_mirror = systems.reach(systems.a.keep(systems.a.sys.spawn(mirror)));
  REQUIRE_MESSAGE(far_mirror, to_string(far_mirror.error()));
  filler fill{systems.b.keep(systems.b.sys.spawn(silent)), 1};
  std::size_t crossed = 0;
  for_each_type([&]<class T>() {
    CAPTURE(caf::type_name<T>::value);
    for (int round = 0; round < 3; ++round) {
      T sent;
      fill.fill(sent);
      const auto wanted = dumper::members_of(sent);
      const auto defaults = dumper::members_of(T{});
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        CAPTURE(i);
        REQUIRE(wanted[i] != defaults[i]);
      }
      const auto message = reflected(systems.b, *far_mirror, caf::make_message(sent));
      const auto* back = only<T>(message);
      REQUIRE_MESSAGE(back != nullptr, caf::to_string(message));
      const auto got = dumper::members_of(*back);
      REQUIRE(got.size() == wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        CAPTURE(i);
        CHECK(got[i] == wanted[i]);
      }
    }
    ++crossed;
  });
  CHECK(crossed == block::end - block::begin);
}

TEST_CASE("empty messages arrive empty") {
  testing::two_systems<block> systems;
  const auto far_mirror = systems.reach(systems.a.keep(systems.a.sys.spawn(mirror)));
  REQUIRE_MESSAGE(far_mirror, to_string(far_mirror.error()));
  for_each_type([&]<class T>() {
    CAPTURE(caf::type_name<T>::value);
    const auto message = reflected(systems.b, *far_mirror, caf::make_message(T{}));
    const auto* back = only<T>(message);
    REQUIRE_MESSAGE(back != nullptr, caf::to_string(message));
    CHECK(dumper::members_of(*back) == dumper::members_of(T{}));
  });
}

TEST_CASE("floats that CAF itself cannot carry arrive with every bit") {
  testing::two_systems<block> systems;
  const auto far_mirror = systems.reach(systems.a.keep(systems.a.sys.spawn(mirror)));
  REQUIRE_MESSAGE(far_mirror, to_string(far_mirror.error()));
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  for (const float value : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), -0.0f, 1e-45f}) {
    CAPTURE(value);
    sampling_params sent;
    sent.temperature = sent.top_p = sent.min_p = value;
    sent.repetition_penalty = sent.presence_penalty = sent.frequency_penalty = value;
    sent.logit_bias = {{7, value}};
    const auto back = systems.b.ask<sampling_params>(*far_mirror, sent);
    REQUIRE_MESSAGE(back, to_string(back.error()));
    const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    for (const float got : {back->temperature, back->top_p, back->min_p, back->repetition_penalty,
                            back->presence_penalty, back->frequency_penalty}) {
      CHECK(bits(got) == bits(value));
    }
    REQUIRE(back->logit_bias.size() == 1);
    CHECK(back->logit_bias[0].first == 7);
    CHECK(bits(back->logit_bias[0].second) == bits(value));
  }
}

TEST_CASE("our errors keep code and detail on the wire, and those of CAF become the nearest of ours") {
  for (int code = 1; code <= static_cast<int>(ec::internal); ++code) {
    const error ours{static_cast<ec>(code), "detail " + std::to_string(code)};
    const auto back = from_caf(to_caf(ours));
    CHECK(back.code == ours.code);
    CHECK(back.detail == ours.detail);
  }
  CHECK(from_caf(caf::make_error(caf::sec::request_timeout)).code == ec::timed_out);
  CHECK(from_caf(caf::make_error(caf::sec::request_receiver_down)).code == ec::peer_lost);
  CHECK(from_caf(caf::make_error(caf::sec::unexpected_message)).code == ec::internal);
}
