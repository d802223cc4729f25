// What honest clients rely on: requests arrive whole, answers in order, streams piece by piece, and leaving
// is noticed.

#include <filesystem>
#include <fstream>

#include "tests/actors/http/http_fixture.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using namespace std::chrono_literals;

namespace {

int threads_now() {
  std::ifstream status{"/proc/self/status"};
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  }
  return 0;
}

}  // namespace

TEST_CASE("a request arrives with method, path, query, headers and body") {
  open_requests requests;
  const auto server = serve(requests.handler());
  raw_client client{server->port()};
  client.say("POST /a/b?x=1&y=%20 HTTP/1.1\r\nHost: h\r\nX-Some: Value\r\nContent-Length: 4\r\n\r\nbody");
  const auto [request, out] = requests.next();
  CHECK(request.method == "POST");
  CHECK(request.path == "/a/b");
  CHECK(request.query == "x=1&y=%20");
  CHECK(request.header("x-SOME") == "Value");
  CHECK(request.header("absent").empty());
  CHECK(request.body == "body");
  out->respond(201, {{"X-Back", "there"}}, "made");
  const auto answer = client.answer();
  CHECK(answer.status == 201);
  CHECK(answer.header("x-back") == "there");
  CHECK(answer.body == "made");
}

TEST_CASE("a connection serves request after request until the client asks to close it") {
  const auto server = serve(echo_handler());
  raw_client client{server->port()};
  for (int i = 0; i < 5; ++i) {
    client.say(post("/" + std::to_string(i), "b"));
    CHECK(client.answer().body == "POST /" + std::to_string(i) + "  b");
  }
  client.say(get("/last", "Connection: close\r\n"));
  const auto answer = client.answer();
  CHECK(answer.header("connection") == "close");
  CHECK(answer.body == "GET /last  ");
  CHECK(client.closed());
}

TEST_CASE("HTTP/1.0 is answered and closed") {
  const auto server = serve(echo_handler());
  raw_client client{server->port()};
  client.say("GET /old HTTP/1.0\r\n\r\n");
  CHECK(client.answer().body == "GET /old  ");
  CHECK(client.closed());
}

TEST_CASE("HEAD is answered without a body, and the connection goes on") {
  const auto server = serve(echo_handler());
  raw_client client{server->port()};
  client.say("HEAD /h HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto answer = client.answer(true);
  CHECK(answer.status == 200);
  CHECK(answer.header("content-length") == "9");
  client.say(get("/next"));
  CHECK(client.answer().body == "GET /next  ");
}

TEST_CASE("pipelined requests are answered in order, however late the answers come") {
  open_requests requests;
  const auto server = serve(requests.handler());
  raw_client client{server->port()};
  client.say(get("/1") + post("/2", "two") + get("/3"));
  for (const auto* path : {"/1", "/2", "/3"}) {
    const auto [request, out] = requests.next();
    CHECK(request.path == path);
    std::thread{[out = out, path] { out->respond(200, {}, path); }}.join();
    CHECK(client.answer().body == path);
  }
}

TEST_CASE("requests that come while an answer streams wait for its end") {
  open_requests requests;
  const auto server = serve(requests.handler());
  raw_client client{server->port()};
  client.say(get("/stream"));
  const auto first = requests.next();
  first.out->begin_stream(200, {});
  first.out->write("one");
  CHECK(client.until("one\r\n").ends_with("3\r\none\r\n"));
  client.say(post("/after", std::string(10000, 'x')));
  first.out->write("two");
  first.out->finish();
  CHECK(client.until("0\r\n\r\n") == "3\r\ntwo\r\n0\r\n\r\n");
  const auto second = requests.next();
  CHECK(second.request.body.size() == 10000);
  second.out->respond(200, {}, "ok");
  CHECK(client.answer().body == "ok");
}

TEST_CASE("a chunked body is joined") {
  const auto server = serve(echo_handler());
  raw_client client{server->port()};
  client.say("POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.say("A;name=value\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n");
  CHECK(client.answer().body == "POST /c  abc0123456789");
  client.say(get("/next"));
  CHECK(client.answer().body == "GET /next  ");
}

TEST_CASE("a client that waits for 100 Continue is told to go on") {
  open_requests requests;
  const auto server = serve(requests.handler());
  raw_client client{server->port()};
  client.say("POST /c HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(client.until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  client.say("ok");
  const auto [request, out] = requests.next();
  CHECK(request.body == "ok");
  // The interim answer is not part of what a slow reader may leave unsent.
  out->begin_stream(200, {});
  CHECK(out->write("piece"));
  CHECK(out->write("piece"));
  out->finish();
  CHECK(client.answer().body == "piecepiece");
}

TEST_CASE("a stream arrives piece by piece, from any thread, in the order of the calls") {
  open_requests requests;
  const auto server = serve(requests.handler(), {.threads = 2});
  raw_client client{server->port()};
  client.say(get("/"));
  const auto [request, out] = requests.next();
  out->begin_stream(200, {{"Content-Type", "text/event-stream"}});
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    const auto piece = "piece " + std::to_string(i) + ".";
    std::thread{[&out = out, &piece] { CHECK(out->write(piece)); }}.join();
    if (i == 0) CHECK(client.until(piece).ends_with(piece));  // before there is a second
    if (i > 0) expected += piece;
  }
  out->finish();
  std::string body = "\r\n";
  const auto rest = client.until("\r\n0\r\n\r\n");
  std::size_t at = 2;  // after the first piece's line end
  std::string got;
  while (at < rest.size()) {
    const auto n = std::stoul(rest.substr(at), nullptr, 16);
    if (n == 0) break;
    const auto begin = rest.find("\r\n", at) + 2;
    got += rest.substr(begin, n);
    at = begin + n + 2;
  }
  CHECK(got == expected);
  client.say(get("/again"));
  requests.next().out->respond(200, {}, "same connection");
  CHECK(client.answer().body == "same connection");
}

TEST_CASE("a stream to an HTTP/1.0 client is plain bytes that end with the connection") {
  open_requests requests;
  const auto server = serve(requests.handler());
  raw_client client{server->port()};
  client.say("GET / HTTP/1.0\r\n\r\n");
  const auto [request, out] = requests.next();
  out->begin_stream(200, {});
  out->write("one");
  out->write("two");
  out->finish();
  const auto all = client.until("no such end");
  CHECK(all.find("Transfer-Encoding") == std::string::npos);
  CHECK(all.ends_with("\r\n\r\nonetwo"));
}

TEST_CASE("a client that leaves is noticed, once, before and in the middle of its answer") {
  for (const bool begun : {false, true}) {
    for (const bool reset : {false, true}) {
      open_requests requests;
      const auto server = serve(requests.handler());
      std::optional<raw_client> client{std::in_place, server->port()};
      client->say(get("/"));
      const auto [request, out] = requests.next();
      signal_flag gone;
      out->on_close([&] { gone.raise(); });
      if (begun) {
        out->begin_stream(200, {{"Content-Type", "text/event-stream"}});
        out->write("one");
        client->until("one");
      }
      reset ? client->reset() : client.reset();
      CHECK(gone.wait());
      CHECK_FALSE(out->write("two"));
      out->finish();
      CHECK(eventually([&] { return server->connections() == 0; }));
      CHECK(gone.count() == 1);
      signal_flag late;
      out->on_close([&] { late.raise(); });
      CHECK(late.count() == 1);
    }
  }
}

TEST_CASE("a client that leaves is noticed though it had sent another request") {
  open_requests requests;
  const auto server = serve(requests.handler());
  std::optional<raw_client> client{std::in_place, server->port()};
  client->say(get("/1") + get("/2"));
  const auto [request, out] = requests.next();
  signal_flag gone;
  out->on_close([&] { gone.raise(); });
  client.reset();
  CHECK(gone.wait());
}

TEST_CASE("nobody is told of a client that leaves after its answer") {
  open_requests requests;
  const auto server = serve(requests.handler());
  signal_flag gone;
  {
    raw_client client{server->port()};
    client.say(get("/"));
    const auto [request, out] = requests.next();
    out->on_close([&] { gone.raise(); });
    out->respond(200, {}, "done");
    CHECK(client.answer().body == "done");
  }
  CHECK(eventually([&] { return server->connections() == 0; }));
  CHECK(gone.count() == 0);
}

TEST_CASE("a client that closes its side after sending gets its answers, ready or not") {
  {
    const auto server = serve(echo_handler());
    raw_client client{server->port()};
    client.say(get("/1") + get("/2"));
    client.finish_writing();
    CHECK(client.answer().body == "GET /1  ");
    CHECK(client.answer().body == "GET /2  ");
    CHECK(client.closed());
  }
  open_requests requests;
  const auto server = serve(requests.handler());
  raw_client client{server->port()};
  client.say(get("/1") + get("/2"));
  client.finish_writing();
  {
    const auto [request, out] = requests.next();
    // The interim answer that would have found out a client that left.
    CHECK(client.until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    out->respond(200, {}, "late");
    CHECK(client.answer().body == "late");
  }
  const auto [request, out] = requests.next();
  CHECK(client.until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  out->begin_stream(200, {{"Content-Type", "text/event-stream"}});
  out->write("data: 1\n\n");
  out->finish();
  CHECK(client.answer().body == "data: 1\n\n");
  CHECK(client.closed());
}

TEST_CASE("a client that closes its side and then leaves is noticed") {
  for (const bool begun : {false, true}) {
    open_requests requests;
    const auto server = serve(requests.handler(), {.probe_interval = 10ms});
    std::optional<raw_client> client{std::in_place, server->port()};
    client->say(get("/"));
    const auto [request, out] = requests.next();
    signal_flag gone;
    out->on_close([&] { gone.raise(); });
    if (begun) {
      out->begin_stream(200, {{"Content-Type", "text/event-stream"}});
      client->until("\r\n\r\n");
    }
    client->finish_writing();
    client->until(begun ? ":\n\n" : "\r\n\r\n");  // what it overlooks
    client.reset();
    CHECK(gone.wait());
  }
}

TEST_CASE("a server that settles lets answers under way be written, and takes no more connections") {
  open_requests requests;
  auto server = serve(requests.handler(), {.threads = 2});
  const auto port = server->port();
  raw_client client{port}, idle{port};
  client.say(get("/"));
  const auto [request, out] = requests.next();
  out->begin_stream(200, {});
  std::thread ender{[&out = out] {
    out->write(std::string(1u << 20, 'x'));
    out->finish();
  }};
  server->settle(patience);
  server.reset();
  ender.join();
  CHECK(client.answer().body.size() == 1u << 20);
  CHECK(idle.closed());
}

TEST_CASE("calls after the end of an answer change nothing") {
  open_requests requests;
  const auto server = serve(requests.handler());
  raw_client client{server->port()};
  client.say(get("/1"));
  const auto first = requests.next();
  first.out->respond(200, {}, "one");
  first.out->respond(500, {}, "two");
  first.out->write("three");
  first.out->finish();
  CHECK(client.answer().body == "one");
  client.say(get("/2"));
  requests.next().out->respond(200, {}, "next");
  CHECK(client.answer().body == "next");
}

TEST_CASE("an answer may outlive the server") {
  open_requests requests;
  auto server = serve(requests.handler(), {.threads = 2});
  raw_client client{server->port()};
  client.say(get("/"));
  const auto [request, out] = requests.next();
  signal_flag gone;
  out->on_close([&] { gone.raise(); });
  out->begin_stream(200, {});
  server.reset();
  CHECK(gone.count() == 1);
  CHECK_FALSE(out->write("late"));
  out->finish();
  CHECK(client.closed());
}

TEST_CASE("the server stops while clients send and read") {
  for (int round = 0; round < 20; ++round) {
    auto server = serve(echo_handler(), {.threads = 2});
    std::vector<raw_client> clients;
    for (int i = 0; i < 8; ++i) {
      clients.emplace_back(server->port());
      clients.back().say(get("/") + "GET /half HTTP");
    }
    server.reset();
  }
}

TEST_CASE("hundreds of streams are held by two threads") {
  constexpr int count = 400;
  open_requests requests;
  const auto server = serve(requests.handler(), {.threads = 2});
  const int before = threads_now();
  std::vector<raw_client> clients;
  std::vector<open_requests::one> open;
  for (int i = 0; i < count; ++i) {
    clients.emplace_back(server->port());
    clients.back().say(get("/" + std::to_string(i)));
  }
  for (int i = 0; i < count; ++i) {
    open.push_back(requests.next());
    open.back().out->begin_stream(200, {});
  }
  CHECK(server->connections() == count);
  CHECK(threads_now() == before);
  for (int step = 0; step < 10; ++step) {
    for (auto& one : open) CHECK(one.out->write(one.request.path + ";"));
  }
  for (auto& one : open) one.out->finish();
  for (int i = 0; i < count; ++i) {
    std::string expected;
    for (int step = 0; step < 10; ++step) expected += "/" + std::to_string(i) + ";";
    const auto answer = clients[static_cast<std::size_t>(i)].answer();
    CHECK(answer.status == 200);
    CHECK(answer.body == expected);
  }
}

TEST_CASE("an address that cannot be had is named in the error") {
  const auto first = serve(echo_handler());
  const auto taken = http_server::start({.port = first->port()}, echo_handler());
  REQUIRE_FALSE(taken.has_value());
  CHECK(taken.error().code == ec::io_error);
  CHECK(taken.error().detail.find("127.0.0.1:" + std::to_string(first->port())) != std::string::npos);
  const auto nonsense = http_server::start({.host = "not an address"}, echo_handler());
  REQUIRE_FALSE(nonsense.has_value());
  CHECK(nonsense.error().detail.find("not an address") != std::string::npos);
}

TEST_CASE("a server that drains answers what its connections still bring, once, and takes no more") {
  open_requests requests;
  const auto server = serve(requests.handler());
  raw_client running{server->port()}, idle{server->port()};
  idle.say(get("/first"));
  requests.next().out->respond(200, {}, "1");
  CHECK(idle.answer().header("connection") == "keep-alive");
  running.say(get("/running"));
  const auto slow = requests.next();
  raw_client queued{server->port()};
  server->drain();
  queued.say(get("/queued"));
  requests.next().out->respond(200, {}, "2");
  CHECK(queued.answer().header("connection") == "close");
  CHECK(queued.closed());
  idle.say(get("/second"));
  requests.next().out->respond(200, {}, "3");
  const auto last = idle.answer();
  CHECK(last.body == "3");
  CHECK(last.header("connection") == "close");
  CHECK(eventually([&] { return server->answering() == 1; }));
  slow.out->respond(200, {}, "4");
  CHECK(running.answer().header("connection") == "close");
  CHECK(eventually([&] { return server->answering() == 0; }));
}

TEST_CASE("a successor gets the listening socket, and no connection is lost between the two") {
  const test::temp_dir folder;
  http_options options;
  options.handover = folder.path() + "/front";
  auto old = http_server::start(options, echo_handler()).value();
  options.port = old->port();
  CHECK((std::filesystem::status(options.handover).permissions() & std::filesystem::perms::others_all) ==
        std::filesystem::perms::none);
  std::atomic<bool> over = false;
  std::atomic<int> answered = 0, lost = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, port = options.port] {
      while (!over) {
        raw_client client{port};
        client.say(get("/x", "Connection: close\r\n"));
        ++(client.answer().status == 200 ? answered : lost);
      }
    });
  }
  for (int generation = 0; generation < 5; ++generation) {
    auto next = http_server::start(options, echo_handler());
    REQUIRE_MESSAGE(next, to_string(next.error()));
    CHECK((*next)->port() == options.port);
    old->drain();
    const int before = answered;
    CHECK(eventually([&] { return answered > before + 50; }));
    CHECK(eventually([&] { return old->answering() == 0 && old->connections() == 0; }));
    old = std::move(*next);
  }
  over = true;
  for (auto& c : clients) c.join();
  CHECK(lost == 0);
  options.port = static_cast<std::uint16_t>(options.port ^ 1);
  CHECK(http_server::start(options, echo_handler()).error().code == ec::invalid_argument);
  old.reset();
  CHECK_FALSE(std::filesystem::exists(options.handover));
}
