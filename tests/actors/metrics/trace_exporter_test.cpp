#include "actors/metrics/trace_exporter.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <string>

#include "transport/net/socket.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

/// Takes one POST after the other, and answers as it is told.
struct collector {
  unique_fd listener = listen_tcp(resolve_tcp("127.0.0.1", 0).value()).value();
  host_port at{"127.0.0.1", bound_port(listener.get())};

  std::string take(const std::string& answer) {
    const auto until = clock_type::now() + 20s;
    REQUIRE(wait_for_socket(listener.get(), POLLIN, until));
    const unique_fd line{::accept(listener.get(), nullptr, nullptr)};
    std::string said;
    for (std::size_t body = std::string::npos; said.size() < body;) {
      char some[4096];
      REQUIRE(wait_for_socket(line.get(), POLLIN, until));
      const auto n = ::recv(line.get(), some, sizeof some, 0);
      REQUIRE(n > 0);
      said.append(some, static_cast<std::size_t>(n));
      const auto head = said.find("\r\n\r\n"), length = said.find("Content-Length: ");
      if (head != std::string::npos) body = head + 4 + std::stoul(said.substr(length + 16));
    }
    const auto whole = "HTTP/1.1 " + answer + "\r\nContent-Length: 0\r\n\r\n";
    REQUIRE(::send(line.get(), whole.data(), whole.size(), MSG_NOSIGNAL) > 0);
    return said;
  }
};

request_trace named(const std::string& name) {
  request_trace t;
  t.name = name;
  t.outcome = "finished";
  return t;
}

}  // namespace

TEST_CASE("a collector gets what was added, and what it refused once more") {
  collector there;
  trace_exporter exporter{there.at, {"node", "model"}, 1, 1ms};
  exporter.add(named("the first"));
  const auto refused = there.take("503 Service Unavailable");
  CHECK(refused.starts_with("POST /v1/traces HTTP/1.1\r\n"));
  CHECK(refused.find("the first") != std::string::npos);
  exporter.add(named("the second"));
  const auto taken = there.take("200 OK");
  CHECK(taken.find("the first") != std::string::npos);
  CHECK(taken.find("the second") != std::string::npos);
  exporter.add(named("the third"));
  CHECK(there.take("202 Accepted").find("the third") != std::string::npos);
  CHECK(exporter.dropped() == 0);
}

TEST_CASE("traces that a collector refuses for good do not keep others from it") {
  collector there;
  trace_exporter exporter{there.at, {"node", "model"}, 1, 1ms};
  exporter.add(named("the refused"));
  CHECK(there.take("400 Bad Request").find("the refused") != std::string::npos);
  exporter.add(named("the next"));
  const auto next = there.take("200 OK");
  CHECK(next.find("the next") != std::string::npos);
  CHECK(next.find("the refused") == std::string::npos);
  CHECK(exporter.dropped() == 1);
}

TEST_CASE("what waits when the program ends is sent") {
  collector there;
  auto exporter = std::make_unique<trace_exporter>(there.at, trace_source{"node", "model"}, 1.0, 1h);
  exporter->add(named("the last"));
  const auto ended = std::async(std::launch::async, [&] { exporter.reset(); });
  CHECK(there.take("200 OK").find("the last") != std::string::npos);
  ended.wait();
}

TEST_CASE("without a collector traces are counted and thrown away, and a stop does not hang") {
  host_port nobody;
  {
    const collector gone;
    nobody = gone.at;
  }
  trace_exporter exporter{nobody, {"node", "model"}, 1, 1h};
  for (std::size_t i = 0; i < trace_exporter::most_waiting + 100; ++i) exporter.add(named(std::to_string(i)));
  CHECK(exporter.dropped() == 100);
  CHECK(exporter.sent() == 0);
}
