#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cctype>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "actors/http/http_connection.hpp"
#include "actors/http/listener_handover.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace asio = boost::asio;
namespace beast = boost::beast;
using tcp = asio::ip::tcp;

std::string_view http_request::header(std::string_view name) const {
  const auto same = [](std::string_view a, std::string_view b) {
    return std::ranges::equal(
        a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
  };
  for (const auto& [key, value] : headers) {
    if (same(key, name)) return value;
  }
  return {};
}

namespace {

constexpr std::size_t turned_away_limit =
    64;  ///< connections beyond the limit that are told so at the same time
constexpr auto accept_pause = std::chrono::milliseconds(100);
constexpr auto complaint_pause = std::chrono::seconds(10);

/// An error that a person can act on: Asio calls most of OpenSSL's errors "asio.ssl error".
std::string tls_problem(const std::string& path, const beast::error_code& error) {
  if (::access(path.c_str(), R_OK) != 0) return std::generic_category().message(errno);
  const char* reason = ::ERR_reason_error_string(static_cast<unsigned long>(error.value()));
  return reason ? reason : error.message();
}

result<void> read_tls_files(asio::ssl::context& tls, const std::string& certificate, const std::string& key) {
  beast::error_code error;
  tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                  asio::ssl::context::no_tlsv1_1);
  tls.use_certificate_chain_file(certificate, error);
  if (error)
    return fail(ec::io_error, "cannot use " + certificate +
                                  " (--tls-certificate-file): " + tls_problem(certificate, error));
  tls.use_private_key_file(key, asio::ssl::context::pem, error);
  if (error) return fail(ec::io_error, "cannot use " + key + " (--tls-key-file): " + tls_problem(key, error));
  return {};
}

}  // namespace

result<void> check_tls_files(const std::string& certificate, const std::string& key) {
  if (certificate.empty() && key.empty()) return {};
  if (certificate.empty() || key.empty())
    return fail(ec::invalid_argument, "--tls-certificate-file and --tls-key-file go together");
  asio::ssl::context tls{asio::ssl::context::tls_server};
  return read_tls_files(tls, certificate, key);
}

class http_server::impl {
 public:
  impl(http_options options, http_handler handler)
      : shared_(std::make_shared<http_shared>(std::move(options), std::move(handler))),
        strand_(asio::make_strand(shared_->context)),
        acceptor_(strand_),
        pause_(strand_) {}

  result<void> load_tls() {
    const auto& options = shared_->options;
    if (options.tls_certificate_file.empty()) return {};
    return read_tls_files(shared_->tls.emplace(asio::ssl::context::tls_server), options.tls_certificate_file,
                          options.tls_key_file);
  }

  result<void> listen() {
    const auto& options = shared_->options;
    beast::error_code error;
    const auto address = address_of(options.host, error);
    const auto refuse = [&] {
      return fail(ec::io_error, "cannot listen on " + options.host + ":" + std::to_string(options.port) +
                                    ": " + error.message());
    };
    if (error) return refuse();
    const tcp::endpoint at{address, options.port};
    auto inherited = inherit_listener(options.handover, address.to_string(), options.port);
    if (!inherited) return fail(inherited.error());
    if (*inherited) {
      acceptor_.assign(at.protocol(), inherited->value().release(), error);
      return error ? refuse() : begin();
    }
    acceptor_.open(at.protocol(), error);
    if (error) return refuse();
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    acceptor_.bind(at, error);
    if (error) return refuse();
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return refuse();
    return begin();
  }

  /// From here on the address is this server's, and its successor's.
  result<void> begin() {
    const auto& options = shared_->options;
    port_ = acceptor_.local_endpoint().port();
    if (!options.handover.empty()) {
      auto offered = listener_offer::open(options.handover, acceptor_.native_handle());
      if (!offered) return fail(offered.error());
      offer_ = std::move(*offered);
    }
    accept();
    for (unsigned i = 0; i < options.threads; ++i) threads_.emplace_back([this] { shared_->context.run(); });
    return {};
  }

  /// An address, or a name's first one; IPv4 where it has both, as clients that know only one try that.
  asio::ip::address address_of(const std::string& host, beast::error_code& error) {
    tcp::resolver resolver{shared_->context};
    const auto found = resolver.resolve(host, "", tcp::resolver::passive, error);
    if (error) return {};
    const auto v4 = std::ranges::find_if(found, [](const auto& e) { return e.endpoint().address().is_v4(); });
    return (v4 != found.end() ? v4 : found.begin())->endpoint().address();
  }

  void stop() {
    auto& context = shared_->context;
    context.stop();
    for (auto& t : threads_) t.join();
    threads_.clear();
    beast::error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    // Only now are all connections known that were let in. Handlers that were left in the queue would keep
    // their connections, and with them the queue, for ever.
    for (auto& weak : shared_->all) {
      if (const auto c = weak.lock()) c->close();
    }
    context.restart();
    context.poll();
  }

  void drain() {
    offer_.reset();  // a successor that comes now listens by itself
    shared_->draining = true;
    asio::post(strand_, [this] {
      beast::error_code error;
      if (!acceptor_.is_open()) return;
      acceptor_.cancel(error);
      acceptor_.non_blocking(true, error);
      while (true) {
        auto socket = acceptor_.accept(asio::make_strand(shared_->context), error);
        if (error) break;
        admit(std::move(socket));
      }
      acceptor_.close(error);
    });
  }

  std::size_t answering() const {
    const std::lock_guard lock{shared_->mutex};
    return shared_->answering;
  }

  void settle(duration limit) {
    offer_.reset();
    asio::post(strand_, [this] {
      beast::error_code ignored;
      acceptor_.close(ignored);
    });
    std::unique_lock lock{shared_->mutex};
    shared_->settled.wait_for(lock, limit, [this] { return shared_->answering == 0; });
  }

  std::uint16_t port() const noexcept { return port_; }
  std::size_t connections() const noexcept { return shared_->connections; }

 private:
  void accept() {
    acceptor_.async_accept(asio::make_strand(shared_->context),
                           [this](beast::error_code error, tcp::socket socket) {
                             const bool draining = shared_->draining;
                             if (!error && (draining || acceptor_.is_open())) admit(std::move(socket));
                             if (!acceptor_.is_open() || draining) return;  // what was admitted came before
                             if (!error) return accept();
                             // Out of file descriptors, most likely: the connection stays queued, and trying
                             // again at once would spin.
                             complain(error);
                             pause_.expires_after(accept_pause);
                             pause_.async_wait([this](beast::error_code) {
                               if (acceptor_.is_open()) accept();
                             });
                           });
  }

  /// Logs why no connection could be taken, now and then: the next one fails as well until one is closed.
  void complain(const beast::error_code& error) {
    const auto now = std::chrono::steady_clock::now();
    ++unaccepted_;
    if (complained_ && now - *complained_ < complaint_pause) return;
    complained_ = now;
    log_warn("http", {{"at", shared_->options.host + ":" + std::to_string(port_)},
                      {"problem", "no connection could be taken: " + error.message()},
                      {"connections", std::to_string(shared_->connections.load())},
                      {"failed", std::to_string(std::exchange(unaccepted_, 0))},
                      {"hint", "raise the limit of open files (ulimit -n), or lower --max-connections"}});
  }

  void admit(tcp::socket socket) {
    const auto open = shared_->connections.load();
    const auto limit = shared_->options.max_connections;
    if (open >= limit + turned_away_limit) return;  // closes
    beast::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto made = std::make_shared<http_connection>(std::move(socket), shared_);
    {
      const std::lock_guard lock{shared_->mutex};
      if (shared_->all.size() > 2 * open + 64) {
        std::erase_if(shared_->all, [](const auto& weak) { return weak.expired(); });
      }
      shared_->all.push_back(made);
    }
    if (open < limit) return made->run();
    made->turn_away(503, "the server holds its limit of " + std::to_string(limit) + " connections",
                    {{"Retry-After", "1"}});
  }

  const std::shared_ptr<http_shared> shared_;
  const asio::strand<asio::io_context::executor_type> strand_;  ///< of all that accepts
  tcp::acceptor acceptor_;
  std::optional<listener_offer> offer_;
  asio::steady_timer pause_;
  std::optional<std::chrono::steady_clock::time_point> complained_;  ///< on the strand
  std::size_t unaccepted_ = 0;                                       ///< since then; on the strand
  std::vector<std::thread> threads_;
  std::uint16_t port_ = 0;
};

http_server::http_server(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
http_server::~http_server() { impl_->stop(); }

result<std::unique_ptr<http_server>> http_server::start(http_options options, http_handler handler) {
  auto made = std::make_unique<impl>(std::move(options), std::move(handler));
  if (auto loaded = made->load_tls(); !loaded) return fail(loaded.error());
  if (auto listening = made->listen(); !listening) return fail(listening.error());
  return std::unique_ptr<http_server>(new http_server(std::move(made)));
}

void http_server::drain() { impl_->drain(); }
std::size_t http_server::answering() const { return impl_->answering(); }
void http_server::settle(duration limit) { impl_->settle(limit); }
std::uint16_t http_server::port() const noexcept { return impl_->port(); }
std::size_t http_server::connections() const noexcept { return impl_->connections(); }

}  // namespace mooncaf
