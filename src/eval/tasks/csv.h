/// Comma-separated tables (RFC 4180).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ts {

struct CsvRow {
  size_t line = 1;  ///< in the text, from 1
  std::vector<std::string> fields;
};

struct CsvTable {
  std::vector<CsvRow> rows;  ///< all with the same number of fields
  /// Rows whose quotation marks inside a field are not doubled, as the format wants it. Such a row
  /// is taken only when it is one line, begins with a quotation mark, and splits at "," (with the
  /// marks) into exactly as many fields as the first row has; otherwise it is an error.
  size_t n_repaired = 0;
};

/// Rows of `text`; empty lines are skipped, a byte-order mark is dropped, line ends are LF or CR
/// LF. `source` opens every message. FormatError: no row, a quotation mark that nothing closes,
/// rows of different lengths.
CsvTable parse_csv(std::string_view text, std::string_view source);

}  // namespace ts
