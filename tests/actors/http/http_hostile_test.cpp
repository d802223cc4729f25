// What dishonest, broken and slow clients may do: they get a clear error or are dropped, and others do not
// notice.

#include <nlohmann/json.hpp>
#include <random>

#include "tests/actors/http/http_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using namespace std::chrono_literals;

namespace {

void still_serves(const http_server& server) {
  raw_client client{server.port()};
  client.say(get("/alive"));
  CHECK(client.answer().body == "GET /alive  ");
}

std::string message_of(const raw_answer& answer) {
  const auto body = nlohmann::json::parse(answer.body, nullptr, false);
  return body.is_object() ? body["error"].value("message", "") : "";
}

}  // namespace

TEST_CASE("what is not HTTP is refused with a reason, and the connection closed") {
  const auto server = serve(echo_handler());
  for (const std::string bytes :
       {"nonsense\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTQ/1.1\r\n\r\n",
        "\x16\x03\x01\x02 TLS\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nBad Name: x\r\n\r\n", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n"}) {
    raw_client client{server->port()};
    client.say(bytes);
    const auto answer = client.answer();
    CHECK_MESSAGE(answer.status == 400, bytes);
    CHECK_MESSAGE(message_of(answer).starts_with("malformed HTTP: "), bytes);
    client.finish_writing();
    CHECK_MESSAGE(client.closed(), bytes);
  }
  still_serves(*server);
}

TEST_CASE("headers without end are refused") {
  const auto server = serve(echo_handler(), {.max_header_bytes = 4096});
  raw_client client{server->port()};
  client.say("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 200; ++i) client.say("X-" + std::to_string(i) + ": " + std::string(100, 'x') + "\r\n");
  const auto answer = client.answer();
  CHECK(answer.status == 431);
  CHECK(message_of(answer) == "the headers exceed 4096 bytes");
  still_serves(*server);
}

TEST_CASE("a body beyond the limit is refused, and a client that sends it all the same can read why") {
  const auto server = serve(echo_handler(), {.max_body_bytes = 1000});
  {
    raw_client client{server->port()};
    CHECK(client.say(post("/", std::string(1000, 'x'))));
    CHECK(client.answer().status == 200);
    CHECK(client.say(post("/", std::string(3u << 20, 'x'))));
    const auto answer = client.answer();
    CHECK(answer.status == 413);
    CHECK(message_of(answer) == "the body exceeds 1000 bytes");
  }
  raw_client chunked{server->port()};
  chunked.say("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) chunked.say("64\r\n" + std::string(100, 'x') + "\r\n");
  CHECK(chunked.answer().status == 413);
  raw_client polite{server->port()};
  polite.say("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n");
  CHECK(polite.answer().status == 413);  // and no 100 before
  still_serves(*server);
}

TEST_CASE("a request that does not arrive in time is dropped, wherever it stopped") {
  const auto server = serve(echo_handler(), {.idle_timeout = 50ms});
  for (const std::string bytes :
       {"", "GET / HT", "GET / HTTP/1.1\r\nHost: h\r\n", "POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    raw_client client{server->port()};
    client.say(bytes);
    CHECK_MESSAGE(client.closed(), bytes);
  }
  CHECK(eventually([&] { return server->connections() == 0; }));
}

TEST_CASE("a request that drips in is dropped at the same time, however lively it is") {
  const auto server = serve(echo_handler(), {.max_header_bytes = 1u << 30, .idle_timeout = 50ms});
  for (const std::string begun :
       {"GET /?", "GET / HTTP/1.1\r\nX: ", "POST / HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n"}) {
    raw_client client{server->port()};
    client.say(begun);
    const auto deadline = clock_type::now() + patience;
    bool open = true;
    while (open && clock_type::now() < deadline) open = client.say("x");
    CHECK_MESSAGE(!open, begun);
  }
}

TEST_CASE("HTTP/2 without being asked is told in its own frames that HTTP/1.1 is required") {
  const auto server = serve(echo_handler());
  raw_client client{server->port()};
  client.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9));
  const auto said = client.until("alone");
  CHECK(said.substr(0, 9) == std::string("\0\0\0\4\0\0\0\0\0", 9));  // SETTINGS
  REQUIRE(said.size() > 26);
  CHECK(said[9 + 2] == static_cast<char>(said.size() - 9 - 9));
  CHECK(said[9 + 3] == 7);  // GOAWAY
  CHECK(said.substr(9 + 9, 8) == std::string("\0\0\0\0\0\0\0\x0D", 8));
  CHECK(said.substr(26) == "this server speaks HTTP/1.1 alone");
  client.finish_writing();
  CHECK(client.closed());
  still_serves(*server);
}

TEST_CASE("a long answer is not an idle connection") {
  open_requests requests;
  const auto server = serve(requests.handler(), {.idle_timeout = 20ms});
  raw_client patient{server->port()}, witness{server->port()};
  patient.say(get("/"));
  const auto [request, out] = requests.next();
  CHECK(witness.closed());  // an idle one has expired meanwhile
  raw_client second_witness{server->port()};
  out->begin_stream(200, {});
  out->write("a");
  CHECK(second_witness.closed());
  out->write("b");
  out->finish();
  CHECK(patient.answer().body == "ab");
}

TEST_CASE("a client that does not read its stream is dropped, and whoever makes it is told once") {
  open_requests requests;
  const auto server = serve(requests.handler(), {.max_unsent_bytes = 1u << 20});
  raw_client client{server->port(), 4096};
  client.say(get("/"));
  const auto [request, out] = requests.next();
  signal_flag gone;
  out->on_close([&] { gone.raise(); });
  out->begin_stream(200, {});
  const std::string piece(64u << 10, 'x');
  std::size_t taken = 0;
  while (out->write(piece) && taken < 1000) ++taken;
  CHECK(taken < 1000);
  CHECK(gone.wait());
  CHECK(eventually([&] { return server->connections() == 0; }));
  CHECK(gone.count() == 1);
}

TEST_CASE("a client that does not take a whole answer does not keep it in memory for ever") {
  open_requests requests;
  const auto server = serve(requests.handler(), {.idle_timeout = 100ms});
  raw_client client{server->port(), 4096};
  client.say(get("/"));
  requests.next().out->respond(200, {}, std::string(32u << 20, 'x'));
  CHECK(eventually([&] { return server->connections() == 0; }));
}

TEST_CASE("connections beyond the limit are told so, and there is room again when one leaves") {
  const auto server = serve(echo_handler(), {.max_connections = 3});
  std::vector<raw_client> open;
  for (int i = 0; i < 3; ++i) {
    open.emplace_back(server->port());
    open.back().say(get("/"));
    CHECK(open.back().answer().status == 200);
  }
  {
    raw_client fourth{server->port()};
    fourth.say(get("/"));
    const auto answer = fourth.answer();
    CHECK(answer.status == 503);
    CHECK(answer.header("retry-after") == "1");
    CHECK(message_of(answer) == "the server holds its limit of 3 connections");
  }
  open[0].say(get("/still"));
  CHECK(open[0].answer().body == "GET /still  ");
  open.pop_back();
  CHECK(eventually([&] { return server->connections() == 2; }));
  still_serves(*server);
}

TEST_CASE("any bytes leave the server serving") {
  constexpr std::uint64_t seed = 7;
  INFO("seed ", seed);
  std::mt19937_64 random{seed};
  const auto server = serve(echo_handler(), {.threads = 2, .max_body_bytes = 4096, .max_header_bytes = 2048});
  const std::vector<std::string> pieces{"GET ",
                                        "POST ",
                                        "/ ",
                                        "HTTP/1.1",
                                        "\r\n",
                                        "\r\n\r\n",
                                        "Content-Length: ",
                                        "10",
                                        "5",
                                        "Transfer-Encoding: chunked",
                                        "a\r\n",
                                        "0\r\n\r\n",
                                        "Expect: 100-continue",
                                        "Host: h",
                                        ": ",
                                        std::string(500, 'y'),
                                        std::string{"\0\xff", 2},
                                        "Connection: "};
  for (int round = 0; round < 150; ++round) {
    raw_client client{server->port()};
    std::string bytes;
    for (auto n = random() % 24; n > 0; --n) bytes += pieces[random() % pieces.size()];
    client.say(bytes);
    if (random() % 2) client.finish_writing();
    if (random() % 4 == 0) client.reset();
  }
  still_serves(*server);
  CHECK(eventually([&] { return server->connections() <= 1; }));
}
