#include "storage/objects/wire/store_wire.hpp"

#include <bit>
#include <cstring>
#include <iterator>

#include "storage/objects/terms/count_fields.hpp"

namespace mooncaf::store_wire {

std::optional<header> parse_header(std::span<const std::byte, header_bytes> in) {
  byte_reader from{in};
  header h;
  const auto length = from.get<std::uint32_t>();
  h.number = from.get<std::uint64_t>();
  const auto what = from.get<std::uint8_t>();
  constexpr std::size_t rest = header_bytes - sizeof(std::uint32_t);
  if (length < rest || length > frame_bytes_max || what == 0 || what > op_last) return std::nullopt;
  h.payload_bytes = static_cast<std::uint32_t>(length - rest);
  h.what = static_cast<op>(what);
  return h;
}

frame::frame(std::vector<std::byte>& out, std::uint64_t number, op what)
    : out_(out), begin_(out.size()), writer_(out) {
  writer_.put(std::uint32_t{0});
  writer_.put(number);
  writer_.put(static_cast<std::uint8_t>(what));
}

frame::~frame() {
  const auto length = static_cast<std::uint32_t>(out_.size() - begin_ - sizeof(std::uint32_t));
  std::memcpy(out_.data() + begin_, &length, sizeof(length));
}

store_code code_of(const error& e) {
  switch (e.code) {
    case ec::timed_out:
      return store_code::timed_out;
    case ec::invalid_argument:
      return store_code::invalid_parameters;
    default:
      return store_code::directory_unreachable;
  }
}

std::string_view get_text_view(byte_reader& in) {
  const auto bytes = in.take(in.get<std::uint32_t>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<std::uint32_t> get_count(byte_reader& in) {
  const auto n = in.get<std::uint32_t>();
  if (!in.ok() || n > batch_max) return std::nullopt;
  return n;
}

void put_policy_to(byte_writer& out, const put_policy& p) {
  out.put(p.replicas);
  out.put(static_cast<std::uint8_t>(p.hard_pin | p.soft_pin << 1 | p.replace << 2 | p.move << 3 |
                                    p.keep << 4 | p.exactly << 5 | p.for_readers << 6 | p.lossy << 7));
  out.put(static_cast<std::int64_t>(p.soft_pin_for.count()));
  out.put(static_cast<std::int64_t>(p.ttl.count()));
  out.put(static_cast<std::uint8_t>(p.preferred.size()));
  for (const auto& name : p.preferred) out.put_text(name);
  if (p.keep) out.put_text(p.leaving);
}

put_policy get_policy(byte_reader& in) {
  put_policy p;
  p.replicas = in.get<std::uint32_t>();
  const auto pins = in.get<std::uint8_t>();
  p.hard_pin = pins & 1;
  p.soft_pin = pins & 2;
  p.replace = pins & 4;
  p.move = pins & 8;
  p.keep = pins & 16;
  p.exactly = pins & 32;
  p.for_readers = pins & 64;
  p.lossy = pins & 128;
  p.soft_pin_for = duration{in.get<std::int64_t>()};
  p.ttl = duration{in.get<std::int64_t>()};
  for (auto n = in.get<std::uint8_t>(); n > 0 && in.ok(); --n) p.preferred.push_back(in.get_text());
  if (p.keep) p.leaving = in.get_text();
  return p;
}

void put_places(byte_writer& out, std::span<const replica_place> places) {
  out.put(static_cast<std::uint16_t>(places.size()));
  for (const auto& p : places) {
    out.put(p.segment);
    out.put(p.offset);
    out.put(p.bytes);
  }
}

std::vector<replica_place> get_places(byte_reader& in) {
  std::vector<replica_place> places(in.get<std::uint16_t>());
  for (auto& p : places) {
    p.segment = in.get<std::uint32_t>();
    p.offset = in.get<std::uint64_t>();
    p.bytes = in.get<std::uint64_t>();
  }
  return places;
}

void put_view(byte_writer& out, const object_view& v) {
  out.put(static_cast<std::int32_t>(v.code));
  out.put(v.size);
  out.put(v.checksum);
  put_places(out, v.places);
  out.put(static_cast<std::uint8_t>(v.disks.size()));
  for (const auto d : v.disks) out.put(d);
}

object_view get_view(byte_reader& in) {
  object_view v;
  v.code = as_store_code(in.get<std::int32_t>());
  v.size = in.get<std::uint64_t>();
  v.checksum = in.get<std::uint64_t>();
  v.places = get_places(in);
  v.disks.resize(in.get<std::uint8_t>());
  for (auto& d : v.disks) d = in.get<std::uint32_t>();
  return v;
}

void put_disk(byte_writer& out, const disk_offer& d) {
  out.put_text(d.name);
  out.put(d.bytes);
  out.put(d.beside);
  out.put(d.disk);
  out.put(d.store);
  out.put(static_cast<std::uint8_t>(d.policy.write));
  out.put(d.policy.save_hits);
  out.put(d.policy.promote_hits);
}

disk_offer get_disk(byte_reader& in) {
  disk_offer d;
  d.name = in.get_text();
  d.bytes = in.get<std::uint64_t>();
  d.beside = in.get<std::uint32_t>();
  d.disk = in.get<std::uint64_t>();
  d.store = in.get<std::uint64_t>();
  d.policy.write = static_cast<write_policy>(in.get<std::uint8_t>() % 3);
  d.policy.save_hits = in.get<std::uint32_t>();
  d.policy.promote_hits = in.get<std::uint32_t>();
  return d;
}

void put_disk(byte_writer& out, const mounted_disk& d) {
  out.put(static_cast<std::int32_t>(d.code));
  out.put(d.segment);
  out.put(d.store);
  out.put(static_cast<std::uint8_t>(d.known));
}

mounted_disk get_mounted_disk(byte_reader& in) {
  mounted_disk d;
  d.code = as_store_code(in.get<std::int32_t>());
  d.segment = in.get<std::uint32_t>();
  d.store = in.get<std::uint64_t>();
  d.known = in.get<std::uint8_t>() != 0;
  return d;
}

void put_address(byte_writer& out, const segment_address& a) {
  out.put_text(a.unix_name);
  out.put(a.region);
  out.put(static_cast<std::uint32_t>(a.announcement.size()));
  out.put_bytes(a.announcement);
  out.put_text(a.endpoint_host);
  out.put(a.endpoint_port);
}

segment_address get_address(byte_reader& in) {
  segment_address a;
  a.unix_name = in.get_text();
  a.region = in.get<std::uint64_t>();
  const auto bytes = in.take(in.get<std::uint32_t>());
  a.announcement.assign(bytes.begin(), bytes.end());
  a.endpoint_host = in.get_text();
  a.endpoint_port = in.get<std::uint16_t>();
  return a;
}

void put_welcome(byte_writer& out, const welcome& w) {
  out.put_text(w.tenant);
  out.put_text(w.endpoint_key);
  out.put(static_cast<std::uint8_t>(w.tenants));
  out.put(w.shard.index);
  out.put(w.shard.count);
}

welcome get_welcome(byte_reader& in) {
  welcome w;
  w.tenant = in.get_text();
  w.endpoint_key = in.get_text();
  w.tenants = in.get<std::uint8_t>() != 0;
  w.shard.index = in.get<std::uint32_t>();
  w.shard.count = in.get<std::uint32_t>();
  return w;
}

void put_ties(byte_writer& out, const object_ties& ties) {
  out.put_text(ties.group);
  out.put_text(ties.parent);
  out.put(std::bit_cast<std::uint64_t>(ties.cost));
}

object_ties get_ties(byte_reader& in) {
  object_ties ties;
  ties.group = get_text_view(in);
  ties.parent = get_text_view(in);
  ties.cost = std::bit_cast<double>(in.get<std::uint64_t>());
  return ties;
}

namespace {
void put_numbers(byte_writer& out, const std::vector<std::uint32_t>& all) {
  out.put(static_cast<std::uint32_t>(all.size()));
  for (const auto n : all) out.put(n);
}

std::vector<std::uint32_t> get_numbers(byte_reader& in) {
  const auto n = in.get<std::uint32_t>();
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < n && i < former_max && in.ok(); ++i) all.push_back(in.get<std::uint32_t>());
  return all;
}
}  // namespace

void put_former(byte_writer& out, const former_life& f) {
  out.put(f.segment);
  out.put(f.served_by);
  put_numbers(out, f.members);
  put_numbers(out, f.fenced);
  out.put(static_cast<std::uint8_t>(f.draining));
  out.put(f.disk);
}

former_life get_former(byte_reader& in) {
  former_life f;
  f.segment = in.get<std::uint32_t>();
  f.served_by = in.get<std::uint64_t>();
  f.members = get_numbers(in);
  f.fenced = get_numbers(in);
  f.draining = in.get<std::uint8_t>() != 0;
  f.disk = in.get<std::uint64_t>();
  return f;
}

void put_published(byte_writer& out, const segment_record& r, std::string_view key, std::string_view group) {
  out.put(r.checksum);
  const bool usual = r.version == r.ticket && r.object_size == r.size;  // one put's, in one part
  out.put(static_cast<std::uint8_t>(r.hard_pin | !usual << 1));
  out.put(static_cast<std::uint8_t>(r.copy));
  if (!usual) {
    out.put(r.version);
    out.put(r.object_size);
    out.put(r.at);
  }
  out.put(static_cast<std::int64_t>(r.soft_pin_for.count()));
  out.put(static_cast<std::int64_t>(r.ttl.count()));
  out.put(r.parent);
  out.put(r.depth);
  out.put(std::bit_cast<std::uint32_t>(r.worth));
  out.put_text(key);
  out.put_text(group);
}

void get_published(byte_reader& in, segment_record& r) {
  r.published = true;
  r.checksum = in.get<std::uint64_t>();
  const auto flags = in.get<std::uint8_t>();
  r.hard_pin = flags & 1;
  r.copy = in.get<std::uint8_t>();
  r.version = flags & 2 ? in.get<std::uint64_t>() : r.ticket;
  r.object_size = flags & 2 ? in.get<std::uint64_t>() : r.size;
  r.at = flags & 2 ? in.get<std::uint64_t>() : 0;
  r.soft_pin_for = duration{in.get<std::int64_t>()};
  r.ttl = duration{in.get<std::int64_t>()};
  r.parent = in.get<std::uint64_t>();
  r.depth = in.get<std::uint32_t>();
  r.worth = std::bit_cast<float>(in.get<std::uint32_t>());
  r.key = in.get_text();
  r.group = in.get_text();
}

void put_record(byte_writer& out, const segment_record& r) {
  out.put(static_cast<std::uint8_t>(r.published));
  out.put(r.ticket);
  out.put(r.offset);
  out.put(r.size);
  if (r.published) put_published(out, r, r.key, r.group);
}

segment_record get_record(byte_reader& in) {
  segment_record r;
  const bool published = in.get<std::uint8_t>() != 0;
  r.ticket = in.get<std::uint64_t>();
  r.offset = in.get<std::uint64_t>();
  r.size = in.get<std::uint64_t>();
  if (published) get_published(in, r);
  return r;
}

void put_withheld(byte_writer& out, const withheld& w) {
  const auto& r = w.report;
  for (const auto n : {r.withheld_bytes, r.bytes, r.idle_bytes, r.taken_bytes}) out.put(n);
  out.put(static_cast<std::int64_t>(r.coldest ? r.coldest->count() : -1));
  out.put(static_cast<std::uint32_t>(w.fresh.size()));
  for (const auto& run : w.fresh) {
    out.put(run.offset);
    out.put(run.bytes);
  }
}

withheld get_withheld(byte_reader& in) {
  withheld w;
  auto& r = w.report;
  for (auto* const n : {&r.withheld_bytes, &r.bytes, &r.idle_bytes, &r.taken_bytes})
    *n = in.get<std::uint64_t>();
  if (const auto age = in.get<std::int64_t>(); age >= 0) r.coldest = duration{age};
  for (auto n = in.get<std::uint32_t>(); n > 0 && in.ok(); --n) {
    withheld_run run;
    run.offset = in.get<std::uint64_t>();
    run.bytes = in.get<std::uint64_t>();
    w.fresh.push_back(run);
  }
  return w;
}

void put_segment(byte_writer& out, const mounted_segment& s, std::uint32_t version) {
  out.put(s.view.id);
  out.put_text(s.view.name);
  out.put_text(s.view.host);
  out.put(s.view.bytes);
  out.put(s.view.free_bytes);
  out.put(static_cast<std::uint8_t>(s.view.draining));
  out.put(static_cast<std::uint8_t>(s.view.kind == storage_tier::ssd));
  out.put(s.view.withheld_bytes);
  put_address(out, s.address);
  if (version < tells_releases) return;
  out.put(s.holder.speaks);
  out.put_text(s.holder.release);
}

mounted_segment get_segment(byte_reader& in, std::uint32_t version) {
  mounted_segment s;
  s.view.id = in.get<std::uint32_t>();
  s.view.name = in.get_text();
  s.view.host = in.get_text();
  s.view.bytes = in.get<std::uint64_t>();
  s.view.free_bytes = in.get<std::uint64_t>();
  s.view.draining = in.get<std::uint8_t>() != 0;
  s.view.kind = in.get<std::uint8_t>() != 0 ? storage_tier::ssd : storage_tier::dram;
  s.view.withheld_bytes = in.get<std::uint64_t>();
  s.address = get_address(in);
  if (version < tells_releases) return s;
  s.holder.speaks = in.get<std::uint32_t>();
  s.holder.release = in.get_text();
  return s;
}

void put_counts(byte_writer& out, const object_counts& counts) {
  for (const auto& f : count_fields) out.put(counts.*f.at);
}

object_counts get_counts(byte_reader& in) {
  object_counts counts;
  for (const auto& f : count_fields) counts.*f.at = in.get<std::uint64_t>();
  return counts;
}

void add_counts(object_counts& to, const object_counts& more) {
  for (const auto& f : count_fields) to.*f.at += more.*f.at;
}

void put_task_id(byte_writer& out, const task_id& id) {
  out.put(id.high);
  out.put(id.low);
}

task_id get_task_id(byte_reader& in) {
  task_id id;
  id.high = in.get<std::uint64_t>();
  id.low = in.get<std::uint64_t>();
  return id;
}

void put_order(byte_writer& out, const task_order& o) {
  put_task_id(out, o.id);
  out.put(static_cast<std::uint8_t>(o.kind));
  out.put(static_cast<std::uint8_t>(o.for_readers));
  out.put_text(o.key);
  out.put_text(o.source);
  out.put(static_cast<std::uint8_t>(o.targets.size()));
  for (const auto& t : o.targets) out.put_text(t);
}

task_order get_order(byte_reader& in) {
  task_order o;
  o.id = get_task_id(in);
  o.kind = static_cast<task_kind>(in.get<std::uint8_t>());
  o.for_readers = in.get<std::uint8_t>() != 0;
  o.key = in.get_text();
  o.source = in.get_text();
  for (auto n = in.get<std::uint8_t>(); n > 0 && in.ok(); --n) o.targets.push_back(in.get_text());
  return o;
}

void put_task(byte_writer& out, const task_view& t) {
  out.put(static_cast<std::uint8_t>(t.kind));
  out.put(static_cast<std::uint8_t>(t.status));
  out.put(static_cast<std::int64_t>(t.created_ago.count()));
  out.put(static_cast<std::int64_t>(t.updated_ago.count()));
  put_task_id(out, t.assigned_to);
  out.put_text(t.message);
}

task_view get_task(byte_reader& in) {
  task_view t;
  t.kind = static_cast<task_kind>(in.get<std::uint8_t>());
  t.status = static_cast<task_status>(in.get<std::uint8_t>());
  t.created_ago = duration{in.get<std::int64_t>()};
  t.updated_ago = duration{in.get<std::int64_t>()};
  t.assigned_to = get_task_id(in);
  t.message = in.get_text();
  return t;
}

void put_tenant(byte_writer& out, const tenant_view& t) {
  out.put_text(t.name);
  out.put(t.limit.bytes);
  out.put(t.limit.objects);
  out.put(t.limit.disk_bytes);
  put_counts(out, t.counts);
}

tenant_view get_tenant(byte_reader& in) {
  tenant_view t;
  t.name = in.get_text();
  t.limit.bytes = in.get<std::uint64_t>();
  t.limit.objects = in.get<std::uint64_t>();
  t.limit.disk_bytes = in.get<std::uint64_t>();
  t.counts = get_counts(in);
  return t;
}

void put_hottest(byte_writer& out, const named_hot_object& o) {
  out.put_text(o.tenant);
  out.put_text(o.object.key);
  out.put(o.object.size);
  out.put(o.object.replicas);
  out.put(std::bit_cast<std::uint64_t>(o.object.reads_per_s));
}

named_hot_object get_hottest(byte_reader& in) {
  named_hot_object o;
  o.tenant = in.get_text();
  o.object.key = in.get_text();
  o.object.size = in.get<std::uint64_t>();
  o.object.replicas = in.get<std::uint32_t>();
  o.object.reads_per_s = std::bit_cast<double>(in.get<std::uint64_t>());
  return o;
}

void put_times(byte_writer& out, const question_times& times) {
  for (const auto& t : times) {
    for (const auto n : t.counts) out.put(n);
    out.put(t.total_ns);
  }
}

question_times get_times(byte_reader& in) {
  question_times times;
  for (auto& t : times) {
    for (auto& n : t.counts) n = in.get<std::uint64_t>();
    t.total_ns = in.get<std::uint64_t>();
  }
  return times;
}

std::string_view name_of(op what) noexcept {
  constexpr std::string_view names[] = {
      "",          "hello",    "mount",       "segments",   "reserve",  "publish", "revoke",     "find",
      "look",      "exists",   "remove",      "remove_all", "list",     "counts",  "journal",    "acked",
      "announce",  "drain",    "create_task", "query_task", "end_task", "tenants", "mount_disk", "load",
      "disk_done", "put_next", "hottest",     "ring",       "withhold"};
  static_assert(std::size(names) == op_last + 1);
  const auto i = static_cast<std::size_t>(what);
  return i < std::size(names) ? names[i] : "";
}

}  // namespace mooncaf::store_wire
