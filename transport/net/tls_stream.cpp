#include "transport/net/tls_stream.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "transport/net/tls_psk.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t record_bytes_max = 16 * 1024;

}  // namespace

// ---- OpenSSL's call-backs ----

struct tls_stream::calls {
  static tls_stream& of(SSL* ssl) { return *static_cast<tls_stream*>(SSL_get_app_data(ssl)); }
  static tls_stream& of(BIO* bio) { return *static_cast<tls_stream*>(BIO_get_data(bio)); }

  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* size,
                       SSL_SESSION** session) {
    auto& s = of(ssl);
    *id = s.offer_.data();
    *size = s.offer_.size();
    *session = tls_psk_session(ssl, s.own_->bytes());
    return *session != nullptr ? 1 : 0;
  }

  static int find_key(SSL* ssl, const unsigned char* id, std::size_t size, SSL_SESSION** session) {
    auto& s = of(ssl);
    *session = nullptr;
    for (const auto& key : *s.keys_) {
      if (!key.made({id, size})) continue;
      s.known_ = static_cast<std::size_t>(&key - s.keys_->data());
      *session = tls_psk_session(ssl, key.bytes());
      break;
    }
    return 1;
  }

  static int write(BIO* bio, const char* from, int size) {
    auto& s = of(bio);
    BIO_clear_retry_flags(bio);
    const std::span bytes{reinterpret_cast<const std::byte*>(from), static_cast<std::size_t>(size)};
    if (s.renewing_) s.rest_.insert(s.rest_.end(), bytes.begin(), bytes.end());
    auto sent = passed{s.send_rest(), bytes.size()};
    if (s.renewing_ && sent.at != state::broken) return size;
    if (sent.at == state::ok) sent = s.below_->send(bytes);
    if (sent.at == state::ok) return static_cast<int>(sent.bytes);
    if (sent.at == state::again) BIO_set_retry_write(bio);
    else s.below_at_ = sent.at;
    return -1;
  }

  static int read(BIO* bio, char* to, int size) {
    auto& s = of(bio);
    BIO_clear_retry_flags(bio);
    const auto got = s.below_->receive({reinterpret_cast<std::byte*>(to), static_cast<std::size_t>(size)});
    if (got.at == state::ok) {
      if (!std::exchange(s.heard_, true))
        s.foreign_ = !begins({reinterpret_cast<const std::byte*>(to), got.bytes});
      return static_cast<int>(got.bytes);
    }
    if (got.at == state::again) BIO_set_retry_read(bio);
    else s.below_at_ = got.at;
    return got.at == state::closed ? 0 : -1;
  }

  static long control(BIO* bio, int what, long, void*) {
    if (what == BIO_CTRL_FLUSH) return 1;
    return what == BIO_CTRL_EOF && of(bio).ended() ? 1 : 0;
  }

  /// Made once and never freed, as streams may outlive the static objects of a process.
  static const BIO_METHOD* method() {
    static const BIO_METHOD* const made = [] {
      auto* const m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "link_stream");
      const bool whole = m != nullptr && BIO_meth_set_write(m, write) == 1 &&
                         BIO_meth_set_read(m, read) == 1 && BIO_meth_set_ctrl(m, control) == 1;
      return whole ? m : nullptr;
    }();
    return made;
  }

  /// Made once, too, for both roles; it holds no key.
  static SSL_CTX* context() {
    static SSL_CTX* const made = [] {
      auto* const c = make_tls_psk_context({offer_key, find_key});
      if (c == nullptr || SSL_CTX_set1_groups_list(c, "X25519") != 1) {
        SSL_CTX_free(c);
        return static_cast<SSL_CTX*>(nullptr);
      }
      SSL_CTX_set_read_ahead(c, 1);  // many small records by one system call
      return c;
    }();
    return made;
  }
};

// ---- beginning and end ----

tls_stream::tls_stream(std::unique_ptr<link_stream>& below, std::optional<tls_key> own, keyring keys,
                       std::uint64_t renew_after)
    : below_(std::move(below)), keys_(std::move(keys)), own_(std::move(own)), renew_after_(renew_after) {}

result<void> tls_stream::open(bool client) {
  ERR_clear_error();
  auto* const context = calls::context();
  const auto* const method = calls::method();
  auto* const bio = method == nullptr ? nullptr : BIO_new(method);
  ssl_ = context == nullptr || bio == nullptr ? nullptr : SSL_new(context);
  if (ssl_ == nullptr) {
    BIO_free(bio);
    unsigned long code = 0;
    return fail(ec::io_error, said_by_openssl(code));
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  set_tls_psk_role(ssl_, client);
  if (!client) return {};
  const auto offer = own_->make_offer();
  if (!offer) return fail(offer.error());
  offer_ = *offer;
  return {};
}

result<std::unique_ptr<tls_stream>> tls_stream::client(std::unique_ptr<link_stream>& below,
                                                       const tls_key& key, std::uint64_t renew_after) {
  std::unique_ptr<tls_stream> made{new tls_stream(below, key, nullptr, renew_after)};
  if (auto ok = made->open(true); !ok) {
    below = std::move(made->below_);
    return fail(ok.error());
  }
  return made;
}

result<std::unique_ptr<tls_stream>> tls_stream::server(std::unique_ptr<link_stream>& below, keyring keys,
                                                       std::uint64_t renew_after) {
  std::unique_ptr<tls_stream> made{new tls_stream(below, std::nullopt, std::move(keys), renew_after)};
  if (auto ok = made->open(false); !ok) {
    below = std::move(made->below_);
    return fail(ok.error());
  }
  return made;
}

tls_stream::~tls_stream() {
  if (below_) say_closed();
  SSL_free(ssl_);
}

/// Tells the other end that this one closes, unless a record is incomplete: then the other end shall see that
/// the stream was cut off.
void tls_stream::say_closed() noexcept {
  if (!done_ || ended() || owed_ > 0 || problem_.code != ec::none || std::exchange(shut_, true)) return;
  ERR_clear_error();
  SSL_shutdown(ssl_);
  ERR_clear_error();
}

void tls_stream::shutdown() noexcept {
  const std::lock_guard lock{mutex_};
  say_closed();
  shut_ = true;
  below_->shutdown();
}

bool tls_stream::begins(std::span<const std::byte> first) noexcept {
  const auto type = static_cast<unsigned>(first[0]);  // of a record
  return type >= 20 && type <= 23 && (first.size() < 2 || first[1] == std::byte{3});
}

// ---- the handshake ----

result<bool> tls_stream::greet() {
  const std::lock_guard lock{mutex_};
  return shake();
}

result<bool> tls_stream::shake() {
  if (done_) return true;
  if (problem_.code != ec::none) return fail(problem_);
  // The queue of errors is the thread's: an error that another connection left there would fail this one.
  ERR_clear_error();
  const int status = SSL_do_handshake(ssl_);
  const int at = SSL_get_error(ssl_, status);
  if (!foreign_ && (at == SSL_ERROR_WANT_READ || at == SSL_ERROR_WANT_WRITE)) {
    waits_for_ = at == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return false;
  }
  if (at == SSL_ERROR_NONE && tls_psk_proved(ssl_)) {
    done_ = true;
    pending_ = SSL_has_pending(ssl_) == 1;
    return true;
  }
  failed();
  return fail(problem_);
}

link_stream::state tls_stream::failed() {
  if (problem_.code == ec::none) problem_ = read_problem();
  return state::broken;
}

error tls_stream::read_problem() const {
  unsigned long code = 0;
  const auto said = said_by_openssl(code);
  if (foreign_) return {ec::incompatible, "it speaks no TLS"};
  if (below_at_ == state::broken) return {ec::peer_lost, below_->why()};
  if (below_at_ == state::closed)
    return {ec::peer_lost, done_ ? "the connection was cut" : "it closed the connection"};
  if (done_) return {ec::corrupt, "what came is not what was sent (" + said + ")"};
  return {ec::unauthenticated, "the two ends do not know the same secret (" + said + ")"};
}

// ---- bytes ----

/// Sends the rest of a record that OpenSSL believes sent, before anything else.
link_stream::state tls_stream::send_rest() {
  while (!rest_.empty()) {
    const auto sent = below_->send(rest_);
    if (sent.at != state::ok) return sent.at;
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(sent.bytes));
  }
  return state::ok;
}

/// Tells the other end of a new key, and sends under it from now on. The announcement never stops half way,
/// which would make the receiving thread wait for room: bytes that the stream below does not take stay in
/// `rest_`.
bool tls_stream::renew() {
  renewing_ = true;
  const bool done = SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(ssl_) == 1;
  renewing_ = false;
  records_ = 0;
  return done;
}

/// Sends one record at most. OpenSSL wants a record that has begun to be offered again as it was: `owed_`
/// keeps its size.
link_stream::passed tls_stream::send(std::span<const std::byte> bytes) {
  const std::lock_guard lock{mutex_};
  const auto ready = shake();
  if (!ready) return {state::broken};
  if (!*ready) return {state::again};
  if (problem_.code == ec::none && shut_) problem_ = {ec::peer_lost, "this process has closed it"};
  if (problem_.code != ec::none) return {state::broken};
  if (bytes.empty()) return {};
  // A record that has begun keeps its size, however many bytes the caller has added behind it.
  const auto size = owed_ > 0 ? owed_ : std::min(bytes.size(), record_bytes_max);
  if (bytes.size() < size) {
    problem_ = {ec::internal, "a record has begun with bytes that are not there any more"};
    return {state::broken};
  }
  ERR_clear_error();
  if (owed_ == 0 && records_ >= renew_after_ && !renew()) return {failed()};
  std::size_t sent = 0;
  const int status = SSL_write_ex(ssl_, bytes.data(), size, &sent);
  if (status == 1) {
    owed_ = 0;
    ++records_;
    return {state::ok, sent};
  }
  if (SSL_get_error(ssl_, status) != SSL_ERROR_WANT_WRITE) return {failed()};
  owed_ = size;
  return {state::again};
}

/// Takes as many whole records as there is room for; the rest of one stays with OpenSSL.
link_stream::passed tls_stream::receive(std::span<std::byte> into) {
  std::size_t all = 0;
  pending_ = false;
  // The lock is open between records, so that the sending thread does not wait for all of them.
  for (bool more = true; more && all < into.size();) {
    const std::lock_guard lock{mutex_};
    const auto ready = shake();
    const auto told = [&](state at) { return all > 0 ? passed{state::ok, all} : passed{at}; };
    if (!ready) return {state::broken};
    if (!*ready) return {state::again};
    if (problem_.code != ec::none) return told(state::broken);
    ERR_clear_error();
    std::size_t got = 0;
    const int status = SSL_read_ex(ssl_, into.data() + all, into.size() - all, &got);
    if (status == 1) {
      all += got;
      pending_ = more = SSL_has_pending(ssl_) == 1;
      continue;
    }
    pending_ = false;
    const int at = SSL_get_error(ssl_, status);
    if (at == SSL_ERROR_WANT_READ) return told(state::again);
    if (at == SSL_ERROR_ZERO_RETURN || (ended() && shut_)) return told(state::closed);
    return told(failed());
  }
  return {state::ok, all};
}

bool tls_stream::heard() const {
  const std::lock_guard lock{mutex_};
  return heard_;
}

std::string tls_stream::why() const {
  const std::lock_guard lock{mutex_};
  return problem_.detail;
}

}  // namespace mooncaf
