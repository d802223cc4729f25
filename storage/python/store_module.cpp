// The extension under mooncaf.store: the client of the store, with the GIL released around every call that
// waits.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "storage/objects/segment_lender.hpp"
#include "storage/objects/store_client.hpp"
#include "transport/net/secret.hpp"

namespace py = pybind11;
using namespace mooncaf;

namespace {

constexpr auto invalid = static_cast<std::int32_t>(store_code::invalid_parameters);

std::mutex error_mutex;
std::string error_text;

std::int32_t refuse(const error& why) {
  std::lock_guard lock{error_mutex};
  error_text = to_string(why);
  if (why == ec::invalid_argument || why == ec::already_exists) return invalid;
  return static_cast<std::int32_t>(why == ec::timed_out ? store_code::timed_out
                                                        : store_code::directory_unreachable);
}

/// Memory that an operation works on: given as (address, size), or as an object with the buffer protocol,
/// which is held.
struct pieces {
  std::vector<std::span<std::byte>> spans;
  std::vector<py::buffer_info> held;
  bool valid = true;

  void add(const py::handle& part, bool writable) {
    if (py::isinstance<py::tuple>(part)) {
      const auto pair = part.cast<std::pair<py::int_, py::int_>>();
      const auto address = pair.first.cast<std::uint64_t>();
      const auto size = pair.second.cast<std::int64_t>();
      if (address == 0 || size <= 0 || static_cast<std::uint64_t>(size) > ~std::uint64_t{0} - address) {
        valid = false;
        return;
      }
      spans.emplace_back(reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(size));
      return;
    }
    held.push_back(py::reinterpret_borrow<py::buffer>(part).request(writable));
    const auto& b = held.back();
    py::ssize_t expected = b.itemsize;  // C order, without gaps
    for (auto d = b.ndim; d-- > 0; expected *= b.shape[static_cast<std::size_t>(d)])
      if (b.strides[static_cast<std::size_t>(d)] != expected && b.shape[static_cast<std::size_t>(d)] > 1)
        throw py::type_error("the buffer is not contiguous");
    spans.emplace_back(static_cast<std::byte*>(b.ptr), static_cast<std::size_t>(b.size * b.itemsize));
  }
  std::uint64_t bytes() const {
    std::uint64_t n = 0;
    for (const auto& s : spans) n += s.size();
    return n;
  }
};

std::vector<pieces> take(const py::list& all, std::size_t count, bool writable) {
  if (all.size() != count) throw py::value_error("as many lists of parts as keys");
  std::vector<pieces> taken(count);
  for (std::size_t i = 0; i < count; ++i)
    for (const auto& part : all[i].cast<py::list>()) taken[i].add(part, writable);
  return taken;
}

std::vector<std::string_view> views(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

/// @thread  Any; `close` waits for none of the others, which end by themselves.
class client {
 public:
  std::int32_t open(const std::string& host, int port, const std::string& secret_file,
                    const std::string& name, std::uint64_t lend, std::uint64_t staging) {
    const py::gil_scoped_release free;
    const auto path = secret_file.empty() ? cluster_secret::default_path() : result<std::string>{secret_file};
    if (!path) return refuse(path.error());
    const auto secret =
        secret_file.empty() ? cluster_secret::from_file_or_new(*path) : cluster_secret::from_file(*path);
    if (!secret) return refuse(secret.error());
    const auto key = secret->derive(store_key_purpose);
    store_client_options options;
    options.directory.host = host;
    options.directory.port = static_cast<std::uint16_t>(port);
    options.directory.secret.assign(reinterpret_cast<const char*>(key.data()), key.size());
    options.directory.own_host = this_host();
    options.staging_bytes = std::max<std::uint64_t>(staging, 1 * MiB);
    auto store = store_client::connect(options);
    if (!store) return refuse(store.error());
    std::unique_ptr<segment_lender> lender;
    if (lend > 0) {
      segment_lender_options segment;
      segment.directory = options.directory;
      segment.name = name;
      segment.bytes = lend;
      auto started = segment_lender::start(std::move(segment));
      if (!started) return refuse(started.error());
      lender = std::move(*started);
    }
    std::lock_guard lock{mutex_};
    store_ = std::move(*store);
    lender_ = std::move(lender);
    return 0;
  }

  void close() {
    const py::gil_scoped_release free;
    std::shared_ptr<store_client> store;
    std::unique_ptr<segment_lender> lender;
    std::lock_guard lock{mutex_};
    store.swap(store_);
    lender.swap(lender_);
  }

  /// In a forked child: the threads of these objects are not there to be waited for.
  void abandon() {
    static_cast<void>(lender_.release());
    static_cast<void>(new std::shared_ptr<store_client>(std::move(store_)));
  }

  bool reachable() {
    const py::gil_scoped_release free;
    const auto store = get();
    return store && store->counts().has_value();
  }

  std::vector<std::int32_t> put(const std::vector<std::string>& keys, const py::list& all,
                                std::uint32_t replicas, bool hard, bool soft, std::uint64_t soft_ms,
                                std::vector<std::string> preferred) {
    auto parts = take(all, keys.size(), false);
    std::vector<std::int32_t> codes(keys.size(), invalid);
    {
      const py::gil_scoped_release free;
      const auto store = get();
      if (!store) return codes;
      put_policy policy;
      policy.replicas = replicas;
      policy.hard_pin = hard;
      policy.soft_pin = soft;
      constexpr std::uint64_t longest = 24ull * 3600 * 1000;
      if (soft_ms > longest || preferred.size() > 64) return codes;
      policy.soft_pin_for = std::chrono::milliseconds(soft_ms);
      policy.preferred = std::move(preferred);
      std::vector<outgoing_object> items;
      std::vector<std::size_t> which;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (!parts[i].valid) continue;
        which.push_back(i);
        items.push_back({keys[i], {parts[i].spans.begin(), parts[i].spans.end()}});
      }
      const auto done = store->put(items, policy);
      for (std::size_t i = 0; i < which.size(); ++i) codes[which[i]] = static_cast<std::int32_t>(done[i]);
    }
    return codes;
  }

  py::list get_bytes(const std::vector<std::string>& keys) {
    const auto store = get();
    std::vector<object_view> found(keys.size());
    if (store) {
      const py::gil_scoped_release free;
      found = store->find(views(keys));
    }
    py::list all;
    for (const auto& object : found) {
      if (!store || object.code != store_code::ok) {
        all.append(py::none());
        continue;
      }
      auto data = py::reinterpret_steal<py::object>(
          PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(object.size)));
      if (!data) throw py::error_already_set();
      const std::span<std::byte> whole{reinterpret_cast<std::byte*>(PyBytes_AS_STRING(data.ptr())),
                                       object.size};
      const auto code = [&] {
        const py::gil_scoped_release free;
        return store->read(object, {&whole, 1});
      }();
      all.append(code == store_code::ok ? data : py::none());
    }
    return all;
  }

  std::vector<std::int64_t> get_into(const std::vector<std::string>& keys, const py::list& all) {
    auto parts = take(all, keys.size(), true);
    std::vector<std::int64_t> codes(keys.size(), invalid);
    const py::gil_scoped_release free;
    const auto store = get();
    if (!store) return codes;
    const auto found = store->find(views(keys));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!parts[i].valid) continue;
      codes[i] = static_cast<std::int64_t>(found[i].code);
      if (found[i].code != store_code::ok) continue;
      if (parts[i].bytes() < found[i].size) {
        codes[i] = invalid;
        continue;
      }
      auto& spans = parts[i].spans;
      for (auto over = parts[i].bytes() - found[i].size; over > 0;) {
        const auto cut = std::min<std::uint64_t>(over, spans.back().size());
        spans.back() = spans.back().first(spans.back().size() - cut);
        over -= cut;
        if (spans.back().empty()) spans.pop_back();
      }
      const auto code = store->read(found[i], spans);
      codes[i] =
          code == store_code::ok ? static_cast<std::int64_t>(found[i].size) : static_cast<std::int64_t>(code);
    }
    return codes;
  }

  std::vector<std::int32_t> exists(const std::vector<std::string>& keys) {
    const py::gil_scoped_release free;
    const auto store = get();
    return store ? store->exists(views(keys)) : std::vector<std::int32_t>(keys.size(), invalid);
  }

  std::vector<std::int64_t> sizes(const std::vector<std::string>& keys) {
    const py::gil_scoped_release free;
    const auto store = get();
    std::vector<std::int64_t> all(keys.size(), invalid);
    if (!store) return all;
    const auto found = store->look(views(keys));
    for (std::size_t i = 0; i < keys.size(); ++i)
      all[i] = found[i].code == store_code::ok ? static_cast<std::int64_t>(found[i].size)
                                               : static_cast<std::int64_t>(found[i].code);
    return all;
  }

  /// (size, offset, name of the segment) of every replica of every key; none for a key that is not there.
  std::vector<std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string>>> replicas(
      const std::vector<std::string>& keys) {
    const py::gil_scoped_release free;
    std::vector<std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string>>> all(keys.size());
    const auto store = get();
    if (!store) return all;
    const auto found = store->find(views(keys));
    const auto segments = store->segments();
    for (std::size_t i = 0; i < keys.size() && segments; ++i)
      for (const auto& place : found[i].places)
        for (const auto& s : *segments)
          if (s.view.id == place.segment) all[i].emplace_back(found[i].size, place.offset, s.view.name);
    return all;
  }

  std::vector<std::int32_t> remove(const std::vector<std::string>& keys, bool force) {
    const py::gil_scoped_release free;
    const auto store = get();
    std::vector<std::int32_t> codes(keys.size(), invalid);
    if (!store) return codes;
    const auto done = store->remove(views(keys), force);
    for (std::size_t i = 0; i < keys.size(); ++i) codes[i] = static_cast<std::int32_t>(done[i]);
    return codes;
  }

  std::int64_t remove_all(const std::string& pattern, bool force) {
    const py::gil_scoped_release free;
    const auto store = get();
    return store ? store->remove_all(pattern, force) : invalid;
  }

 private:
  std::shared_ptr<store_client> get() {
    std::lock_guard lock{mutex_};
    return store_;
  }
  std::mutex mutex_;
  std::shared_ptr<store_client> store_;
  std::unique_ptr<segment_lender> lender_;
};

std::uint64_t unique_number() {
  static std::atomic<std::uint64_t> next{0};
  return static_cast<std::uint64_t>(::getpid()) * 1000 + next++;
}

std::uint64_t address_of(const py::bytes& data) {
  return reinterpret_cast<std::uint64_t>(PyBytes_AS_STRING(data.ptr()));
}

std::string last_error() {
  std::lock_guard lock{error_mutex};
  return error_text;
}

}  // namespace

PYBIND11_MODULE(_store, m) {
  m.doc() = "The client of mooncaf's object store; use mooncaf.store.";
  py::class_<client>(m, "Client")
      .def(py::init<>())
      .def("open", &client::open)
      .def("close", &client::close)
      .def("abandon", &client::abandon)
      .def("reachable", &client::reachable)
      .def("put", &client::put)
      .def("get", &client::get_bytes)
      .def("get_into", &client::get_into)
      .def("exists", &client::exists)
      .def("sizes", &client::sizes)
      .def("replicas", &client::replicas)
      .def("remove", &client::remove)
      .def("remove_all", &client::remove_all);
  m.def("unique_number", &unique_number);
  m.def("address_of", &address_of);
  m.def("last_error", &last_error);
}
