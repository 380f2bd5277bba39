/// What was measured to be the fastest way to compute a product, kept in a file for the next start.
/// A choice changes the time of a product, never a bit of its result.
#pragma once

#include <cstddef>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ts {

/// For the products of one matrix shape with one row of activations.
struct KernelChoice {
  bool repack = true;           ///< tiles, or the mapped bytes
  size_t rows_per_piece = 16;   ///< a power of two; a thread takes a multiple of it at a time
  double repacked_seconds = 0;  ///< of one pass over the sample; 0 = has no other layout
  double mapped_seconds = 0;
};

/// What a choice is for, besides this CPU and this version of the program.
struct KernelChoiceKey {
  std::string isa;
  int n_threads = 0;
  bool huge_pages = false;
  std::string codec;
  size_t rows = 0, cols = 0;
  bool operator==(const KernelChoiceKey&) const = default;
};

/// Thread-safe; several processes may use one file.
class KernelChoices {
 public:
  struct Entry {
    KernelChoiceKey key;
    KernelChoice choice;
  };

  /// Reads `path`. A file that is missing is empty; one that is damaged, or another CPU's or
  /// version's, counts as empty (with a log line) and is replaced by the first add().
  explicit KernelChoices(std::filesystem::path path);

  std::optional<KernelChoice> find(const KernelChoiceKey& key) const;
  /// Remembers a choice and writes the file, with what other processes have added meanwhile. When
  /// it cannot be written that is a log line: the next start measures again.
  void add(const KernelChoiceKey& key, const KernelChoice& choice);
  std::vector<Entry> entries() const;

 private:
  void merge_file(bool report);
  void put(const Entry& entry, bool replace);

  const std::filesystem::path path_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace ts
