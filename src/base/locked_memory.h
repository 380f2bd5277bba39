/// Locking memory, so that the system keeps it when other programs want memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ts {

/// Throws ResourceExhausted unless this process may lock `bytes` of memory, naming `what` and the
/// limit; nothing stays locked. Asked before the bytes exist: loading may take long.
void require_lockable(uint64_t bytes, const std::string& what);

/// Locks all ranges (adjoining ones at once, so that huge pages are not taken apart) until they are
/// unmapped. Pages that are not there yet are read. Throws ResourceExhausted naming `what`.
void lock_memory(std::vector<std::span<const std::byte>> ranges, const std::string& what);

}  // namespace ts
