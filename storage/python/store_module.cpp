// The extension under mooncaf.store: the client of the store, with the GIL released around every call that
// waits.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "runtime/base/host_place.hpp"
#include "storage/objects/client/store_client.hpp"
#include "storage/objects/mount/segment_mount.hpp"
#include "storage/objects/wire/tenant_token.hpp"
#include "storage/python/disk_capsule.hpp"
#include "storage/python/python_values.hpp"
#include "storage/python/store_parts.hpp"

namespace py = pybind11;
using namespace mooncaf;

namespace {

constexpr auto invalid = static_cast<std::int32_t>(store_code::invalid_parameters);

using spans = std::vector<std::span<std::byte>>;

std::uint64_t unique_number() {
  static std::atomic<std::uint64_t> next{0};
  return static_cast<std::uint64_t>(::getpid()) * 1000 + next++;
}

/// @thread  Any; `close` waits for none of the others, which end by themselves.
class client {
 public:
  /// @param token_file  of a tenant, which then sees its own objects alone; empty: the cluster's secret.
  /// @param tenant  the name that it must have; empty: any.
  /// @param ssd  a `disk_capsule`, lent beside the memory; None: none is.
  /// @param location  where this host stands, as in "row2/rack7"; empty: unknown.
  std::int32_t open(const std::vector<std::pair<std::string, int>>& directories,
                    const std::string& secret_file, const std::string& token_file, const std::string& tenant,
                    const std::string& name, const std::string& listen_host, std::uint64_t lend,
                    std::uint64_t staging, const py::object& ssd, const std::string& location) {
    std::shared_ptr<object_disk> disk;
    if (!ssd.is_none()) {
      auto* const given = PyCapsule_GetPointer(ssd.ptr(), disk_capsule);
      if (!given) throw py::error_already_set();
      disk = *static_cast<const std::shared_ptr<object_disk>*>(given);
    }
    const without_lock free;
    const auto key =
        token_file.empty() ? key_for(store_key_purpose, secret_file) : tenant_key_from_file(token_file);
    if (!key) return refuse(key.error());
    store_client_options options;
    std::vector<host_port> seats;
    for (const auto& [host, port] : directories) seats.push_back({host, static_cast<std::uint16_t>(port)});
    options.directory.at = std::make_shared<const directory_seats>(std::move(seats));
    options.directory.secret = *key;
    if (!is_location(location)) {
      why_.note({ec::invalid_argument, "MOONCAF_STORE_LOCATION: '" + location + "' is not like row2/rack7"});
      return static_cast<std::int32_t>(store_code::invalid_parameters);
    }
    options.directory.own_host = host_at(location, this_host());
    options.staging_bytes = std::max<std::uint64_t>(staging, 1 * MiB);
    options.registered = registered_;
    auto store = store_client::connect(options);
    if (!store) return refuse(store.error());
    if (const auto who = (*store)->tenant(); !tenant.empty() && who && *who != tenant) {
      why_.note({ec::unauthenticated, "the token is not that of the tenant " + tenant});
      return static_cast<std::int32_t>(store_code::tenant_not_registered);
    }
    if (lend > 0 && !token_file.empty()) {
      why_.note({ec::unauthenticated, "a tenant lends no memory: others' objects would lie in it"});
      return static_cast<std::int32_t>(store_code::not_supported);
    }
    std::unique_ptr<segment_mount> lender;
    segment_mount_options segment;
    segment.directory = options.directory;
    segment.listen_host = listen_host;
    if (lend > 0) {
      auto own = segment;
      own.name = name;
      own.bytes = lend;
      own.disk = std::move(disk);
      auto started = segment_mount::start(own);
      if (!started && started.error() == ec::already_exists) {  // callers may give several stores one name
        own.name = name + "/" + std::to_string(unique_number());
        started = segment_mount::start(std::move(own));
      }
      if (!started) return refuse(started.error());
      lender = std::move(*started);
    }
    std::lock_guard lock{mutex_};
    store_ = std::move(*store);
    lender_ = std::move(lender);
    segment_ = std::move(segment);
    return 0;
  }

  void close() {
    const without_lock free;
    std::shared_ptr<store_client> store;
    std::unique_ptr<segment_mount> lender;
    std::unordered_map<std::string, std::unique_ptr<segment_mount>> lent;
    std::lock_guard lock{mutex_};
    in_parts.forget();
    store.swap(store_);
    lender.swap(lender_);
    lent.swap(lent_);
  }

  /// In a forked child: the threads of these objects are not there to be waited for.
  void abandon() {
    static_cast<void>(lender_.release());
    for (auto& [name, segment] : lent_) static_cast<void>(segment.release());
    static_cast<void>(new std::shared_ptr<store_client>(std::move(store_)));
  }

  bool reachable() {
    const without_lock free;
    const auto store = get();
    return store && store->counts().has_value();
  }

  std::vector<std::int32_t> put(const std::vector<std::string>& keys, const py::list& all, const how& given,
                                bool replace) {
    auto parts = take(all, keys.size(), false);
    std::vector<std::int32_t> codes(keys.size(), invalid);
    {
      const without_lock free;
      const auto store = get();
      auto policy = given.policy();
      if (!store || !policy || !given.fits(keys.size())) return codes;
      policy->replace = replace;
      std::vector<outgoing_object> items;
      std::vector<std::size_t> which;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (!parts[i].valid) continue;
        which.push_back(i);
        items.push_back({keys[i], {parts[i].spans.begin(), parts[i].spans.end()}, given.ties(i)});
      }
      const auto done = store->put(items, *policy);
      for (std::size_t i = 0; i < which.size(); ++i) codes[which[i]] = static_cast<std::int32_t>(done[i]);
    }
    return codes;
  }

  // ---- the calls that are made most, without the detours: keys as they are given, nothing said of how

  std::int32_t put_bytes(const py::object& key, const py::bytes& value) {
    const auto bytes = static_cast<std::string_view>(value);
    return put_one(key, std::as_bytes(std::span{bytes}));
  }

  std::int32_t put_from(const py::object& key, std::uint64_t address, std::int64_t size) {
    const auto from = memory_at(address, size);
    return put_one(key, from && all_there({&*from, 1}) ? *from : std::span<std::byte>{});
  }

  std::int32_t put_one(const py::object& key, std::span<const std::byte> bytes) {
    const auto name = key_views::of(key);
    const without_lock free;
    const auto store = get();
    if (!store || bytes.empty() || name[0].empty()) return invalid;
    const outgoing_object item{name[0], {bytes}};
    return static_cast<std::int32_t>(store->put({&item, 1}, {}).front());
  }

  /// One run of memory for each key.
  std::vector<std::int32_t> put_runs(const py::object& keys, const py::object& addresses,
                                     const py::object& sizes) {
    const auto names = key_views::of_all(keys);
    const auto runs = runs_at(addresses, sizes);
    std::vector<std::int32_t> codes(names.size(), invalid);
    const without_lock free;
    const auto store = get();
    if (!store || runs.size() != names.size()) return codes;
    std::vector<outgoing_object> items;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].empty() || names[i].empty()) continue;
      which.push_back(i);
      items.push_back({names[i], {runs[i]}});
    }
    const auto done = store->put(items, {});
    for (std::size_t i = 0; i < which.size(); ++i) codes[which[i]] = static_cast<std::int32_t>(done[i]);
    return codes;
  }

  /// None where there is no such object, or it cannot be read.
  py::object get_one(const py::object& key) {
    const auto name = key_views::of(key);
    auto data = read_bytes(name.views());
    return data.front() ? std::move(data.front()) : py::none();
  }

  std::int64_t get_into_one(const py::object& key, std::uint64_t address, std::int64_t size) {
    const auto name = key_views::of(key);
    auto into = memory_at(address, size).value_or(std::span<std::byte>{});
    if (!into.empty() && !all_there({&into, 1}, true)) into = {};
    const without_lock free;
    return read_runs(name.views(), {&into, 1}, false).front();
  }

  /// Into memory that a call has made for itself: where a caller forgot to unregister, it may lie there.
  std::int64_t get_into_own(const py::object& key, std::uint64_t address, std::int64_t size) {
    const auto name = key_views::of(key);
    const auto into = memory_at(address, size).value_or(std::span<std::byte>{});
    const without_lock free;
    return read_runs(name.views(), {&into, 1}, true).front();
  }

  std::vector<std::int64_t> get_runs(const py::object& keys, const py::object& addresses,
                                     const py::object& sizes) {
    const auto names = key_views::of_all(keys);
    const auto runs = runs_at(addresses, sizes, true);
    const without_lock free;
    if (runs.size() != names.size()) return std::vector<std::int64_t>(names.size(), invalid);
    return read_runs(names.views(), runs, false);
  }

  /// Without the GIL. @param own  the memory need not be held against registered buffers. @returns sizes, or
  /// codes.
  std::vector<std::int64_t> read_runs(std::span<const std::string_view> keys,
                                      std::span<const std::span<std::byte>> runs, bool own) {
    std::vector<std::int64_t> codes(keys.size(), invalid);
    const auto store = get();
    if (!store) return codes;
    std::vector<std::int64_t> sizes(keys.size());
    const auto done = store->get(keys, [&](std::size_t i, std::uint64_t size) {
      sizes[i] = static_cast<std::int64_t>(size);
      const bool fits = size <= runs[i].size() && (own || registered_->permits(runs[i].first(size)));
      return fits ? spans{runs[i].first(size)} : spans{};
    });
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (!runs[i].empty())
        codes[i] = done[i] == store_code::ok ? sizes[i] : static_cast<std::int64_t>(done[i]);
    return codes;
  }

  py::list get_bytes(const py::object& keys) {
    const auto names = key_views::of_all(keys);
    py::list all;
    for (auto& one : read_bytes(names.views())) all.append(one ? std::move(one) : py::none());
    return all;
  }

  /// @returns bytes for each key, null where there is no such object.
  std::vector<py::object> read_bytes(std::span<const std::string_view> keys) {
    std::vector<py::object> data(keys.size());
    const auto store = get();
    if (!store) return data;
    bool out_of_memory = false;
    std::vector<store_code> codes;
    {
      const without_lock free;
      codes = store->get(keys, [&](std::size_t i, std::uint64_t size) {
        const with_lock held;
        data[i] = py::reinterpret_steal<py::object>(
            PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
        if (!data[i]) PyErr_Clear();
        out_of_memory = out_of_memory || !data[i];
        return data[i] ? spans{{reinterpret_cast<std::byte*>(PyBytes_AS_STRING(data[i].ptr())), size}}
                       : spans{};
      });
    }
    if (out_of_memory) throw std::bad_alloc();
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (codes[i] != store_code::ok) data[i] = py::object{};
    return data;
  }

  std::vector<std::int64_t> get_into(const std::vector<std::string>& keys, const py::list& all) {
    auto parts = take(all, keys.size(), true);
    std::vector<std::int64_t> codes(keys.size(), invalid);
    const without_lock free;
    const auto store = get();
    if (!store) return codes;
    std::vector<std::int64_t> sizes(keys.size());
    const auto done = store->get(views(keys), [&](std::size_t i, std::uint64_t size) {
      sizes[i] = static_cast<std::int64_t>(size);
      if (!parts[i].valid || parts[i].bytes() < size) return spans{};
      auto& into = parts[i].spans;
      for (auto over = parts[i].bytes() - size; over > 0;) {
        const auto cut = std::min<std::uint64_t>(over, into.back().size());
        into.back() = into.back().first(into.back().size() - cut);
        over -= cut;
        if (into.back().empty()) into.pop_back();
      }
      const auto may = [&](std::span<const std::byte> to) { return registered_->permits(to); };
      return std::all_of(into.begin(), into.end(), may) ? into : spans{};
    });
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (parts[i].valid)
        codes[i] = done[i] == store_code::ok ? sizes[i] : static_cast<std::int64_t>(done[i]);
    return codes;
  }

  std::vector<std::int32_t> exists(const py::object& keys) {
    const auto names = key_views::of_all(keys);
    const without_lock free;
    const auto store = get();
    return store ? store->exists(names.views()) : std::vector<std::int32_t>(names.size(), invalid);
  }

  std::int32_t exists_one(const py::object& key) {
    const auto name = key_views::of(key);
    const without_lock free;
    const auto store = get();
    return store ? store->exists(name.views()).front() : invalid;
  }

  std::vector<std::int64_t> sizes(const std::vector<std::string>& keys) {
    const without_lock free;
    const auto store = get();
    std::vector<std::int64_t> all(keys.size(), invalid);
    if (!store) return all;
    const auto found = store->look(views(keys));
    for (std::size_t i = 0; i < keys.size(); ++i)
      all[i] = found[i].code == store_code::ok ? static_cast<std::int64_t>(found[i].size)
                                               : static_cast<std::int64_t>(found[i].code);
    return all;
  }

  /// Of every replica of every key: its size, where it begins, the names of the segments that it lies in, in
  /// the order of its stripes, and whether they are SSDs, which are told together; none for a key that is not
  /// there.
  /// @param leased  they are not to leave at once; nothing is read from SSD for it.
  using replica = std::tuple<std::uint64_t, std::uint64_t, std::vector<std::string>, bool>;
  std::vector<std::vector<replica>> replicas(const std::vector<std::string>& keys, bool leased) {
    const without_lock free;
    std::vector<std::vector<replica>> all(keys.size());
    const auto store = get();
    if (!store) return all;
    if (leased) store->exists(views(keys));
    const auto found = store->look(views(keys));
    const auto segments = store->segments();
    const auto names_of = [&](const auto& places, auto id_of) {
      std::vector<std::string> names;
      for (const auto& place : places)
        for (const auto& s : *segments)
          if (s.view.id == id_of(place)) names.push_back(s.view.name);
      return names;
    };
    for (std::size_t i = 0; i < keys.size() && segments; ++i) {
      const auto& o = found[i];
      if (o.code != store_code::ok) continue;
      for (const auto stripes : replicas_of(o.places, o.size)) {
        auto names = names_of(stripes, [](const replica_place& p) { return p.segment; });
        if (names.size() != stripes.size()) continue;  // of a segment that has just gone
        all[i].emplace_back(o.size, stripes.front().offset, std::move(names), false);
      }
      auto disks = names_of(o.disks, [](std::uint32_t id) { return id; });
      if (!disks.empty()) all[i].emplace_back(o.size, 0, std::move(disks), true);
    }
    return all;
  }

  // ---- tasks

  using task_number = std::pair<std::uint64_t, std::uint64_t>;
  /// @param source  of a move; empty: a copy.
  std::pair<task_number, std::int32_t> create_task(const std::string& key, const std::string& source,
                                                   const std::vector<std::string>& targets, bool moves) {
    const without_lock free;
    const auto store = get();
    if (!store || targets.size() > 255) return {{}, invalid};
    task_order order;
    order.kind = moves ? task_kind::move : task_kind::copy;
    order.key = key;
    order.source = source;
    order.targets = targets;
    const auto [code, id] = store->create_task(order);
    return {{id.high, id.low}, static_cast<std::int32_t>(code)};
  }

  /// Code, kind, status, milliseconds since the task was made and since it changed, the process that has it,
  /// a message.
  std::tuple<std::int32_t, int, int, std::int64_t, std::int64_t, task_number, std::string> query_task(
      std::uint64_t high, std::uint64_t low) {
    const without_lock free;
    const auto store = get();
    if (!store) return {invalid, 0, 0, 0, 0, {}, {}};
    const auto [code, t] = store->query_task({high, low});
    const auto ms = [](duration d) {
      return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
    };
    return {static_cast<std::int32_t>(code),
            static_cast<int>(t.kind),
            static_cast<int>(t.status),
            ms(t.created_ago),
            ms(t.updated_ago),
            {t.assigned_to.high, t.assigned_to.low},
            t.message};
  }

  std::vector<std::int32_t> remove(const std::vector<std::string>& keys, bool force) {
    const without_lock free;
    const auto store = get();
    std::vector<std::int32_t> codes(keys.size(), invalid);
    if (!store) return codes;
    const auto done = store->remove(views(keys), force);
    for (std::size_t i = 0; i < keys.size(); ++i) codes[i] = static_cast<std::int32_t>(done[i]);
    return codes;
  }

  // ---- memory that this process lends beside that of `open`

  /// @returns 0 or a code. @param name  of the segment; unique in the store.
  std::int32_t lend(const std::string& name, std::uint64_t bytes) {
    const without_lock free;
    if (!get()) return invalid;
    auto options = segment_;
    options.name = name;
    options.bytes = bytes;
    auto started = segment_mount::start(std::move(options));
    if (!started) return refuse(started.error());
    std::lock_guard lock{mutex_};
    lent_[name] = std::move(*started);
    return 0;
  }

  /// Takes it back, with the objects that lie there alone. @returns whether it was lent.
  /// @param grace_s  for so long it first moves its objects to others, where there is free room.
  bool take_back(const std::string& name, double grace_s) {
    const without_lock free;
    if (grace_s > 0) move_away(name, std::chrono::duration<double>(std::min(grace_s, 1e6)));
    std::unique_ptr<segment_mount> going;
    std::lock_guard lock{mutex_};
    const auto found = lent_.find(name);
    if (found == lent_.end()) return false;
    going = std::move(found->second);
    lent_.erase(found);
    return true;
  }

  std::int64_t remove_all(const std::string& pattern, bool force) {
    const without_lock free;
    const auto store = get();
    return store ? store->remove_all(pattern, force) : invalid;
  }

  /// Null where it is closed.
  std::shared_ptr<store_client> get() {
    std::lock_guard lock{mutex_};
    return store_;
  }

  std::string why() const { return why_.text(); }

  // ---- memory that the caller registers

  /// @returns false where it overlaps with a registered buffer.
  bool enter(std::uint64_t address, std::uint64_t bytes) { return registered_->add(address, bytes); }
  bool strike(std::uint64_t address) {
    const without_lock free;  // a NIC forgets its pages
    return registered_->drop(address);
  }
  /// Whether a call may write there.
  bool permits(std::uint64_t address, std::uint64_t bytes) const {
    return registered_->permits({reinterpret_cast<const std::byte*>(address), bytes});
  }

  /// @param registered  each part must lie in one buffer that is registered.
  std::vector<std::vector<std::int64_t>> get_parts(const store_parts::strings& keys, const py::list& all,
                                                   const store_parts::offsets_by_key& offsets,
                                                   bool in_session, bool registered) {
    const auto may = [&](std::span<const std::byte> to) {
      return registered ? registered_->holds(to) : registered_->permits(to);
    };
    return in_parts.get_parts(get(), keys, all, offsets, in_session, may);
  }

  store_parts in_parts;

 private:
  std::int32_t refuse(const error& why) {
    why_.note(why);
    if (why == ec::invalid_argument || why == ec::already_exists) return invalid;
    return static_cast<std::int32_t>(why == ec::timed_out ? store_code::timed_out
                                                          : store_code::directory_unreachable);
  }
  void move_away(const std::string& name, std::chrono::duration<double> patience) {
    store_client_options options;
    {
      std::lock_guard lock{mutex_};
      if (lent_.find(name) == lent_.end()) return;
      options.directory = segment_.directory;
    }
    options.directory.everyone = true;  // the segment has objects of all tenants
    const auto store = store_client::connect(options);
    const auto until = clock_type::now() + std::chrono::duration_cast<duration>(patience);
    if (store && (*store)->drain(name, true) == store_code::ok) (*store)->empty(name, until);
  }

  last_error why_;
  const std::shared_ptr<registered_memory> registered_ = std::make_shared<registered_memory>();
  std::mutex mutex_;
  std::shared_ptr<store_client> store_;
  std::unique_ptr<segment_mount> lender_;
  segment_mount_options segment_;
  std::unordered_map<std::string, std::unique_ptr<segment_mount>> lent_;
};

template <class R, class... Args>
auto of_parts(R (store_parts::*function)(const store_parts::store&, Args...)) {
  return [function](client& c, Args... args) { return (c.in_parts.*function)(c.get(), args...); };
}

}  // namespace

// Names of the extension, as mooncaf/store.py and mooncaf/engine.py call them: one line for each.
PYBIND11_MODULE(_store, m) {
  m.doc() = "The client of mooncaf's object store; use mooncaf.store.";
  py::class_<how>(m, "How").def(py::init([](std::uint32_t replicas, bool hard, bool soft,
                                            std::uint64_t soft_ms, std::vector<std::string> preferred,
                                            std::vector<std::string> groups, std::vector<std::string> parents,
                                            std::vector<double> costs, std::uint64_t ttl_ms) {
    return how{
        replicas,         hard,  soft, soft_ms, std::move(preferred), std::move(groups), std::move(parents),
        std::move(costs), ttl_ms};
  }));
  py::class_<buffer_handle>(m, "BufferHandle", py::buffer_protocol())
      .def(py::init([](py::bytes data) { return buffer_handle{std::move(data)}; }))
      .def("ptr", [](const buffer_handle& h) { return reinterpret_cast<std::uint64_t>(h.begin()); })
      .def("size", &buffer_handle::size)
      .def("__len__", &buffer_handle::size)
      .def_buffer([](const buffer_handle& h) {
        return py::buffer_info{reinterpret_cast<signed char*>(h.begin()), h.size()};
      });
  py::class_<client>(m, "Client")
      .def(py::init<>())
      .def("open", &client::open)
      .def("close", &client::close)
      .def("abandon", &client::abandon)
      .def("reachable", &client::reachable)
      .def("put", &client::put)
      .def("put_bytes", &client::put_bytes)
      .def("put_from", &client::put_from)
      .def("put_runs", &client::put_runs)
      .def("get", &client::get_bytes)
      .def("get_one", &client::get_one)
      .def("get_into_one", &client::get_into_one)
      .def("get_into_own", &client::get_into_own)
      .def("get_runs", &client::get_runs)
      .def("get_into", &client::get_into)
      .def("begin_puts", of_parts(&store_parts::begin_puts))
      .def("put_parts", of_parts(&store_parts::put_parts))
      .def("end_puts", of_parts(&store_parts::end_puts))
      .def("begin_gets", of_parts(&store_parts::begin_gets))
      .def("get_parts", &client::get_parts)
      .def("end_gets", [](client& c, const store_parts::strings& keys) { c.in_parts.end_gets(keys); })
      .def("enter", &client::enter)
      .def("strike", &client::strike)
      .def("permits", &client::permits)
      .def("last_error", &client::why)
      .def("lend", &client::lend)
      .def("take_back", &client::take_back)
      .def("exists", &client::exists)
      .def("exists_one", &client::exists_one)
      .def("sizes", &client::sizes)
      .def("replicas", &client::replicas)
      .def("create_task", &client::create_task)
      .def("query_task", &client::query_task)
      .def("remove", &client::remove)
      .def("remove_all", &client::remove_all);
  add_engine(m);
  m.def("unique_number", &unique_number);
  m.def("is_there", [](std::uint64_t address, std::uint64_t size) {
    const std::span<std::byte> memory{reinterpret_cast<std::byte*>(address), size};
    return size <= ~std::uint64_t{0} - address && all_there({&memory, 1});
  });
}
