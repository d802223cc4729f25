#include "transport/net/handshake.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;

namespace {

struct pair_of_handshakes {
  pair_of_handshakes(const char* secret_i, std::vector<std::string> secrets_a)
      : initiator(handshake::initiator(secret_i, *make_nonce(),
                                       {link_kind::tcp, node_id{1}, 11, 5, node_id{2}, 22})),
        acceptor(handshake::acceptor(std::move(secrets_a), *make_nonce(),
                                     {link_kind::tcp, node_id{2}, 22, 0, {}, 0})) {}
  handshake initiator;
  handshake acceptor;
};

}  // namespace

TEST_CASE("two nodes with the same secret learn who the other is") {
  pair_of_handshakes p{"s", {"s"}};
  const auto challenge = p.acceptor.feed(p.initiator.opening());
  REQUIRE(challenge);
  const auto proof = p.initiator.feed(challenge->answer);
  REQUIRE(proof);
  const auto counter_proof = p.acceptor.feed(proof->answer);
  REQUIRE(counter_proof);
  const auto identity = p.initiator.feed(counter_proof->answer);
  REQUIRE(identity);
  const auto known = p.acceptor.feed(identity->answer);
  REQUIRE(known);
  CHECK(known->at == handshake::progress::identified);
  CHECK(p.acceptor.peer().node == node_id{1});
  CHECK(p.acceptor.peer().incarnation == 11);
  CHECK(p.acceptor.peer().session == 5);
  SUBCASE("admitted") {
    const auto end = p.initiator.feed(p.acceptor.admit().answer);
    REQUIRE(end);
    CHECK(end->at == handshake::progress::done);
    CHECK(p.initiator.peer().node == node_id{2});
  }
  SUBCASE("refused") {
    const auto end = p.initiator.feed(p.acceptor.refuse(ec::unavailable).answer);
    REQUIRE(!end);
    CHECK(end.error() == ec::unavailable);
  }
  SUBCASE("an identity altered on the way is not believed") {
    auto message = p.acceptor.admit().answer;
    message[8] ^= std::byte{1};
    CHECK(p.initiator.feed(message).error() == ec::unauthenticated);
  }
}

TEST_CASE("an acceptor tells a stranger nothing but random bytes") {
  pair_of_handshakes p{"wrong", {"right"}};
  const auto challenge = p.acceptor.feed(p.initiator.opening());
  REQUIRE(challenge);
  CHECK(challenge->answer.size() == handshake::nonce_bytes);
  const auto proof = p.initiator.feed(challenge->answer);
  REQUIRE(proof);
  CHECK(p.acceptor.feed(proof->answer).error() == ec::unauthenticated);
}

TEST_CASE("an acceptor's own proof cannot be played back to it, and neither can an old one") {
  pair_of_handshakes first{"s", {"s"}};
  const auto challenge = first.acceptor.feed(first.initiator.opening());
  const auto proof = first.initiator.feed(challenge->answer);
  pair_of_handshakes second{"s", {"s"}};
  REQUIRE(second.acceptor.feed(first.initiator.opening()));
  CHECK(second.acceptor.feed(proof->answer).error() == ec::unauthenticated);

  pair_of_handshakes third{"s", {"s"}};
  const auto c = third.acceptor.feed(third.initiator.opening());
  const auto p = third.initiator.feed(c->answer);
  const auto counter = third.acceptor.feed(p->answer);
  REQUIRE(counter);
  CHECK(counter->answer != p->answer);
}

TEST_CASE("messages of the wrong size end the exchange") {
  pair_of_handshakes p{"s", {"s"}};
  CHECK(p.acceptor.feed({}).error() == ec::corrupt);
  CHECK(p.initiator.feed(std::vector<std::byte>(500)).error() == ec::corrupt);
}

TEST_CASE("an acceptor that knows several secrets lets in who knows any, and tells which") {
  const auto known = [](const char* secret) -> result<std::size_t> {
    pair_of_handshakes p{secret, {"new", "old"}};
    const auto challenge = p.acceptor.feed(p.initiator.opening());
    const auto proof = p.initiator.feed(challenge->answer);
    const auto counter_proof = p.acceptor.feed(proof->answer);
    if (!counter_proof) return fail(counter_proof.error());
    const auto identity = p.initiator.feed(counter_proof->answer);
    REQUIRE(identity);  // it was answered with the secret that it knows
    REQUIRE(p.acceptor.feed(identity->answer));
    return p.acceptor.known();
  };
  CHECK(known("new").value() == 0);
  CHECK(known("old").value() == 1);
  CHECK(known("older").error() == ec::unauthenticated);
}

TEST_CASE("a link stands between neighbouring protocols, and one that nobody speaks any more is refused") {
  const auto meet = [](std::uint32_t theirs) {
    link_identity identity{link_kind::tcp, node_id{1}, 11, 5, node_id{2}, 22, theirs};
    auto initiator = handshake::initiator("s", *make_nonce(), identity);
    auto acceptor = handshake::acceptor({"s"}, *make_nonce(), {link_kind::tcp, node_id{2}, 22, 0, {}, 0});
    const auto challenge = acceptor.feed(initiator.opening());
    const auto proof = initiator.feed(challenge->answer);
    const auto identified = initiator.feed(acceptor.feed(proof->answer)->answer);
    const auto known = acceptor.feed(identified->answer);
    if (!known) return known.error().code;
    CHECK(acceptor.peer().version == theirs);
    REQUIRE(initiator.feed(acceptor.admit().answer));
    CHECK(initiator.peer().version == data_plane_protocol);
    return ec::none;
  };
  CHECK(meet(data_plane_protocol) == ec::none);
  CHECK(meet(data_plane_protocol + 1) == ec::none);
  CHECK(meet(data_plane_protocol_oldest - 1) == ec::incompatible);
}
