#pragma once
// An HTTP client that says exactly the bytes it is told, and reads answers with a deadline.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mooncaf::testing {

struct raw_answer {
  unsigned status = 0;  ///< 0: the connection ended before a whole answer
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;  ///< chunks joined

  std::string header(std::string_view lower_case_name) const;
};

/// One blocking connection to loopback; every wait ends after 10 s. Closes when it dies.
class raw_client {
 public:
  /// @param receive_buffer  bytes that the kernel keeps for us; 0: its default.
  explicit raw_client(std::uint16_t port, int receive_buffer = 0);
  ~raw_client();
  raw_client(raw_client&& other) noexcept;
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;

  /// @returns false if the server no longer listens.
  bool say(std::string_view bytes);
  /// The next whole answer. @param without_body  it answers a HEAD.
  raw_answer answer(bool without_body = false);
  /// Everything up to and including `end`; what came, if the connection ends before.
  std::string until(std::string_view end);
  /// Reads on until the server hangs up. @returns false if it did not within the deadline.
  bool closed();
  /// No more bytes from us.
  void finish_writing();
  /// Ends the connection with a reset.
  void reset();

 private:
  bool more();

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace mooncaf::testing
