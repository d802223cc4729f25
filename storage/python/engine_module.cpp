// The transfer engine in the extension, with the GIL released around every call that waits.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <memory>

#include "storage/engine/transfer_engine.hpp"
#include "storage/python/python_values.hpp"

namespace mooncaf {

namespace {

/// Codes of Mooncake's engine that callers look at.
enum engine_code {
  ok = 0,
  failed = -1,
  not_registered = -3,
  overlapping = -7,
  no_such_name = -101,
  no_connection = -102
};

/// @thread  Any; `close` is for when no call is under way, as the interpreter's destruction of objects is.
class python_engine {
 public:
  int open(const std::string& host, std::uint16_t port, bool rdma, const std::string& secret_file) {
    const without_lock free;
    const auto key = key_for(engine_key_purpose, secret_file);
    if (!key) return refuse(key.error());
    transfer_engine_options options;
    options.secret = *key;
    options.host = host;
    options.port = port;
    options.rdma = rdma;
    auto started = transfer_engine::start(std::move(options));
    if (!started) return refuse(started.error());
    engine_ = std::move(*started);
    return ok;
  }
  void close() {
    const without_lock free;
    engine_.reset();
  }
  /// In a forked child: the threads of these objects are not there to be waited for.
  void abandon() { static_cast<void>(engine_.release()); }

  int port() const { return engine_->port(); }
  int offer(std::uint64_t address, std::uint64_t bytes) {
    const without_lock free;
    const std::span<std::byte> memory{reinterpret_cast<std::byte*>(address), bytes};
    const bool sound = address != 0 && bytes > 0 && bytes <= ~std::uint64_t{0} - address;
    if (!sound || !all_there({&memory, 1})) return refuse({ec::invalid_argument, "no memory is there"});
    return code_of(engine_->offer(address, bytes));
  }
  int take_back(std::uint64_t address) {
    const without_lock free;
    return code_of(engine_->take_back(address));
  }
  std::uint64_t allocate(std::uint64_t bytes) {
    const without_lock free;
    return or_zero(engine_->allocate(bytes));
  }
  int release(std::uint64_t address) {
    const without_lock free;
    return code_of(engine_->release(address));
  }
  int move(const std::string& target, const std::vector<std::uint64_t>& local,
           const std::vector<std::uint64_t>& remote, const std::vector<std::uint64_t>& bytes, bool write,
           double seconds) {
    const without_lock free;
    const auto all = pieces_of(local, remote, bytes, !write);
    return all ? code_of(engine_->move(op_of(write), target, *all, from_seconds(seconds))) : failed;
  }
  std::uint64_t begin(const std::string& target, const std::vector<std::uint64_t>& local,
                      const std::vector<std::uint64_t>& remote, const std::vector<std::uint64_t>& bytes,
                      bool write, double seconds) {
    const without_lock free;
    const auto all = pieces_of(local, remote, bytes, !write);
    return all ? or_zero(engine_->begin(op_of(write), target, *all, from_seconds(seconds))) : 0;
  }
  /// @returns 1: done, 0: running, -1: failed, -2: there is no such transfer, or its end was told before.
  int ended(std::uint64_t number, bool wait) {
    const without_lock free;
    switch (engine_->ended(number, wait)) {
      case transfer_engine::state::running:
        return 0;
      case transfer_engine::state::done:
        return 1;
      case transfer_engine::state::failed:
        return -1;
      case transfer_engine::state::unknown:
        break;
    }
    return -2;
  }
  std::uint64_t first_address(const std::string& target) {
    const without_lock free;
    return or_zero(engine_->first_address(target));
  }
  int probe(const std::string& target) {
    const without_lock free;
    const auto done = engine_->probe(target);
    if (done) return ok;
    refuse(done.error());
    return done.error() == ec::invalid_argument ? no_such_name : no_connection;
  }
  int notify(const std::string& target, const std::string& name, const std::string& text) {
    const without_lock free;
    return code_of(engine_->notify(target, {name, text}));
  }
  std::string why() const { return why_.text(); }
  std::vector<std::pair<py::bytes, py::bytes>> words() {
    std::vector<std::pair<py::bytes, py::bytes>> all;
    for (const auto& w : engine_->take_words()) all.emplace_back(py::bytes(w.name), py::bytes(w.text));
    return all;
  }

 private:
  int code_of(const result<void>& done) {
    if (done) return ok;
    refuse(done.error());
    switch (done.error().code) {
      case ec::already_exists:
        return overlapping;
      case ec::not_found:
        return not_registered;
      default:
        return failed;
    }
  }
  template <class T>
  T or_zero(const result<T>& value) {
    if (value) return *value;
    refuse(value.error());
    return T{};
  }
  int refuse(const error& why) {
    why_.note(why);
    return failed;
  }
  static transfer_op op_of(bool write) { return write ? transfer_op::write : transfer_op::read; }
  static std::optional<std::vector<engine_piece>> pieces_of(const std::vector<std::uint64_t>& local,
                                                            const std::vector<std::uint64_t>& remote,
                                                            const std::vector<std::uint64_t>& bytes,
                                                            bool written_here) {
    if (local.size() != remote.size() || local.size() != bytes.size()) return std::nullopt;
    std::vector<engine_piece> all;
    std::vector<std::span<std::byte>> here;
    for (std::size_t i = 0; i < local.size(); ++i) {
      all.push_back({local[i], remote[i], bytes[i]});
      if (bytes[i] > ~std::uint64_t{0} - local[i]) return std::nullopt;
      if (bytes[i] > 0) here.emplace_back(reinterpret_cast<std::byte*>(local[i]), bytes[i]);
    }
    if (!all_there(here, written_here)) return std::nullopt;
    return all;
  }

  last_error why_;
  std::unique_ptr<transfer_engine> engine_;
};

/// Copies between Python and memory that the caller names. @returns nothing where no memory is.
py::object bytes_at(std::uint64_t address, std::uint64_t size) {
  const std::span<std::byte> memory{reinterpret_cast<std::byte*>(address), size};
  if (size == 0) return py::bytes();
  if (size > ~std::uint64_t{0} - address || !all_there({&memory, 1})) return py::none();
  return py::bytes(reinterpret_cast<const char*>(address), size);
}

bool put_bytes_at(std::uint64_t address, const py::bytes& data, std::uint64_t size) {
  const std::span<std::byte> memory{reinterpret_cast<std::byte*>(address), size};
  const std::string_view from{data};
  if (size > from.size() || size > ~std::uint64_t{0} - address) return false;
  if (size == 0) return true;
  if (!all_there({&memory, 1}, true)) return false;
  std::memcpy(memory.data(), from.data(), size);
  return true;
}

}  // namespace

void add_engine(py::module_& m) {
  py::class_<python_engine>(m, "Engine")
      .def(py::init<>())
      .def("open", &python_engine::open)
      .def("close", &python_engine::close)
      .def("abandon", &python_engine::abandon)
      .def("port", &python_engine::port)
      .def("offer", &python_engine::offer)
      .def("take_back", &python_engine::take_back)
      .def("allocate", &python_engine::allocate)
      .def("release", &python_engine::release)
      .def("move", &python_engine::move)
      .def("begin", &python_engine::begin)
      .def("ended", &python_engine::ended)
      .def("first_address", &python_engine::first_address)
      .def("probe", &python_engine::probe)
      .def("notify", &python_engine::notify)
      .def("words", &python_engine::words)
      .def("last_error", &python_engine::why);
  m.def("bytes_at", &bytes_at);
  m.def("put_bytes_at", &put_bytes_at);
}

}  // namespace mooncaf
