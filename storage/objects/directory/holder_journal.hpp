#pragma once
// Tells the holders of segments of each change to their memory and SSDs: the table's journal as entries in
// the outbox.

#include <cstdint>
#include <span>
#include <string_view>

#include "storage/objects/directory/disk_book.hpp"
#include "storage/objects/directory/outbox.hpp"
#include "storage/objects/directory/segment_holders.hpp"
#include "storage/objects/table/object_journal.hpp"

namespace mooncaf {

/// @thread  not synchronised
class holder_journal final : public object_journal {
 public:
  /// All of them must outlive it.
  holder_journal(outbox& out, const segment_holders& holders, disk_book& disks)
      : out_(out), holders_(holders), disks_(disks) {}

  /// As long as it lives, objects that are freed or erased must not be seen again: the answer in the making
  /// waits until the holders have acknowledged it.
  class removal {
   public:
    explicit removal(holder_journal& journal) : journal_(journal) { journal_.removing_ = true; }
    ~removal() { journal_.removing_ = false; }
    removal(const removal&) = delete;
    removal& operator=(const removal&) = delete;

   private:
    holder_journal& journal_;
  };

  void reserved(std::uint32_t segment, const segment_record& record) override;
  void published(std::uint32_t segment, const segment_record& record, std::string_view key,
                 std::string_view group) override;
  void freed(std::uint32_t segment, std::uint64_t ticket, std::uint64_t offset, duration rests) override;
  void erased(std::uint32_t disk, std::uint64_t ticket, std::string_view key) override;
  void changed(std::string_view key) override { disks_.changed(key); }
  void save(std::uint32_t to, const segment_record& record, std::string_view key, std::string_view group,
            std::span<const replica_place> from) override;
  void load(std::uint32_t from, std::uint64_t ticket, std::span<const replica_place> to) override;

 private:
  void before_a_removal();

  outbox& out_;
  const segment_holders& holders_;
  disk_book& disks_;
  bool removing_ = false;
  bool publication_unsent_ = false;  // there is one among the entries that are not in a frame yet
};

}  // namespace mooncaf
