/// What the tokenizer golden tests share.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "format/gguf.h"
#include "model/gguf_tokenizer.h"
#include "text/tokenizer.h"

namespace ts::test {

inline std::filesystem::path testdata() {
  return TS_TESTDATA_DIR;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::shared_ptr<const Tokenizer> tokenizer_of(const std::filesystem::path& gguf) {
  return Tokenizer::create(read_gguf_tokenizer(GgufFile::open(gguf)->metadata()));
}

/// The texts of a file in vocab/: separated by a line "__ggml_vocab_test__".
inline std::vector<std::string> vocab_texts(const char* name = "texts.txt") {
  const std::string all = read_file(testdata() / "vocab" / name);
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(separator, at), all.size());
    texts.push_back(all.substr(at, end - at));
    at = end + separator.size();
  }
  return texts;
}

/// One list of ids a line.
inline std::vector<std::vector<TokenId>> read_ids(const std::filesystem::path& path) {
  std::istringstream in(read_file(path));
  std::vector<std::vector<TokenId>> lists;
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    lists.emplace_back(std::istream_iterator<TokenId>(numbers), std::istream_iterator<TokenId>());
  }
  return lists;
}

/// The texts of testdata/tokenizer/, made by tools/make_tokenizer_golden.py.
inline std::vector<std::string> golden_texts() {
  return nlohmann::json::parse(read_file(testdata() / "tokenizer" / "texts.json"));
}

/// The ids another implementation gives for them.
inline std::vector<std::vector<TokenId>> golden_ids(const std::string& model) {
  return nlohmann::json::parse(read_file(testdata() / "tokenizer" / (model + ".ids.json")));
}

}  // namespace ts::test
