/// Saved sessions. Layout, little-endian:
///   8 bytes  "TSSESS02"
///   64 bytes fingerprint of model and cache layout (hexadecimal)
///   u64      number of tokens n, then n x i32 token ids
///   u64      number of these tokens that the state covers
///   u64      number of state bytes, then the state (private to backend and cache type)
///   u64      number of bytes of the application's note, then the note
///   64 bytes SHA-256 of everything before, hexadecimal
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "runtime/session_impl.h"

namespace ts {
namespace {

constexpr std::string_view kMagic = "TSSESS02";
constexpr size_t kHexBytes = 64;
constexpr uint64_t kMaxNoteBytes = uint64_t{64} << 20;

template <typename T>
void append_raw(std::string& out, const T* values, size_t count) {
  out.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

/// Takes bytes from the front; FormatError when there are too few.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& path) : rest_(bytes), path_(path) {}
  std::span<const std::byte> take(uint64_t count) {
    if (count > rest_.size())
      throw FormatError(fmt::format("{}: the saved session is cut short: {} bytes are missing",
                                    path_, count - rest_.size()));
    const auto part = rest_.first(static_cast<size_t>(count));
    rest_ = rest_.subspan(static_cast<size_t>(count));
    return part;
  }
  uint64_t take_u64() {
    uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take_text(size_t count) {
    const auto part = take(count);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  size_t left() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  const std::string& path_;
};

}  // namespace

void SessionImpl::save(const std::string& path, bool overwrite, std::string_view note) const {
  if (note.size() > kMaxNoteBytes)
    throw InvalidArgument(
        fmt::format("{}: a note of {} bytes cannot be kept with a session (at "
                    "most {})",
                    path, note.size(), kMaxNoteBytes));
  const std::vector<std::byte> state = state_.snapshot();
  std::string out(kMagic);
  out += engine_->fingerprint();
  const uint64_t n_tokens = tokens_.size(), n_bytes = state.size();
  const auto n_covered = static_cast<uint64_t>(state_.length());
  append_raw(out, &n_tokens, 1);
  append_raw(out, tokens_.data(), tokens_.size());
  append_raw(out, &n_covered, 1);
  append_raw(out, &n_bytes, 1);
  append_raw(out, state.data(), state.size());
  const uint64_t n_note = note.size();
  append_raw(out, &n_note, 1);
  out += note;
  out += sha256_hex(std::as_bytes(std::span(out)));
  AtomicFile file(path, overwrite);
  file.write(std::as_bytes(std::span(out)));
  file.commit();
}

std::string SessionImpl::load(const std::string& path) {
  const auto file = MappedFile::open(
      path, {.name = "session saved with --save-session",
             .if_empty = "it is no saved session; save it again, or begin a new session"});
  const auto bytes = file->bytes();
  Reader reader(bytes, path);
  if (reader.take_text(kMagic.size()) != kMagic)
    throw FormatError(
        fmt::format("{}: not a saved session (its first bytes are not {})", path, kMagic));
  const std::string_view made_with = reader.take_text(kHexBytes);
  if (made_with != engine_->fingerprint())
    throw InvalidArgument(fmt::format(
        "{}: the session was saved with another model file or KV cache type; load it with the same",
        path));
  // The checksum first: what follows is then as it was written.
  const auto damaged = [&](std::string_view what) {
    throw FormatError(fmt::format("{}: the saved session is damaged ({})", path, what));
  };
  if (bytes.size() < kMagic.size() + 2 * kHexBytes) damaged("cut short");
  const auto signed_part = bytes.first(bytes.size() - kHexBytes);
  const auto digest = bytes.last(kHexBytes);
  if (std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()) !=
      sha256_hex(signed_part))
    damaged("checksum");
  const uint64_t n_tokens = reader.take_u64();
  if (n_tokens > static_cast<uint64_t>(engine_->info().context))
    throw ResourceExhausted(fmt::format(
        "{}: the saved session has {} tokens, the context holds {}; use a larger context", path,
        n_tokens, engine_->info().context));
  std::vector<int32_t> tokens(static_cast<size_t>(n_tokens));
  const auto ids = reader.take(n_tokens * sizeof(int32_t));
  if (!tokens.empty()) std::memcpy(tokens.data(), ids.data(), ids.size());
  const uint64_t n_covered = reader.take_u64();
  if (n_covered > n_tokens) damaged("its state is longer than its tokens");
  const auto state = reader.take(reader.take_u64());
  const uint64_t n_note = reader.take_u64();
  const auto note = reader.take(n_note);
  if (reader.left() != kHexBytes) damaged("it is longer than it says");
  try {
    check_ids(tokens);
    reset();
    state_.restore(state, static_cast<int64_t>(n_covered));
  } catch (const InvalidArgument& error) {
    damaged(error.what());
  }
  tokens_ = std::move(tokens);
  restored_from_ = path;
  return {reinterpret_cast<const char*>(note.data()), note.size()};
}

}  // namespace ts
