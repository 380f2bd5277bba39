#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/sha256.h"

namespace ts {
namespace {

namespace fs = std::filesystem;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ts-files-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(dir_); }
  static std::span<const std::byte> bytes(std::string_view s) {
    return std::as_bytes(std::span(s.data(), s.size()));
  }
  size_t entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  fs::path dir_;
};

TEST_F(FilesTest, AtomicFileAppearsOnlyOnCommit) {
  const fs::path target = dir_ / "a b \xC3\xA9\xE4\xB8\xAD.bin";
  {
    AtomicFile file(target, false);
    file.write(bytes("head"));
    file.write_zeros(3);
    file.write_at(0, bytes("HE"));
    EXPECT_FALSE(fs::exists(target));
    file.commit();
  }
  std::ifstream in(target, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(content, std::string("HEad\0\0\0", 7));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FilesTest, AbandonedAtomicFileLeavesNothing) {
  { AtomicFile(dir_ / "x", false).write(bytes("data")); }
  EXPECT_EQ(entries(), 0U);
}

TEST_F(FilesTest, ExistingTargetIsKeptWithoutOverwrite) {
  const fs::path target = dir_ / "x";
  { std::ofstream(target) << "old"; }
  EXPECT_THROW(AtomicFile(target, false), InvalidArgument);
  AtomicFile file(target, true);
  file.write(bytes("new"));
  file.commit();
  EXPECT_EQ(fs::file_size(target), 3U);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FilesTest, AFullDiskShowsBeforeTheWork) {
  AtomicFile file(dir_ / "x", false);
  EXPECT_NO_THROW(file.require_space(1));
  try {
    file.require_space(UINT64_MAX);
    FAIL();
  } catch (const ResourceExhausted& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(UINT64_MAX)));
    EXPECT_THAT(error.what(), ::testing::HasSubstr((dir_ / "x").string()));
  }
}

TEST_F(FilesTest, AFileInMemoryIsFilledAndRead) {
  const auto file = MappedFile::in_memory("made up", 400'000);
  EXPECT_EQ(file->path(), "made up");
  EXPECT_EQ(file->size(), 400'000u);
  EXPECT_TRUE(std::all_of(file->bytes().begin(), file->bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
  file->writable_bytes()[399'999] = std::byte{7};
  file->dont_need(0, 400'000);  // a hint, whatever the file is on
  EXPECT_EQ(file->bytes()[399'999], std::byte{7});
  EXPECT_NO_THROW(file->check_not_truncated());
  // Whole pages inside the range are given back; what shares a page with others stays.
  std::memset(file->writable_bytes().data(), 7, 400'000);
  file->discard(100, 300'000);
  EXPECT_EQ(file->bytes()[0], std::byte{7});
#if defined(__x86_64__)  // other systems run this under emulation, which does not pass the hint on
  EXPECT_EQ(file->bytes()[150'000], std::byte{0});
#endif
  EXPECT_EQ(file->bytes()[390'000], std::byte{7});
  EXPECT_THROW(MappedFile::in_memory("too large", size_t{1} << 62), ResourceExhausted);
}

TEST_F(FilesTest, TargetThatAppearsMeanwhileIsKept) {
  const fs::path target = dir_ / "x";
  AtomicFile file(target, false);
  file.write(bytes("new!"));
  { std::ofstream(target) << "old"; }
  EXPECT_THROW(file.commit(), InvalidArgument);
  EXPECT_EQ(fs::file_size(target), 3U);
}

TEST_F(FilesTest, OnlyOrdinaryFilesAreReplaced) {
  const fs::path pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(AtomicFile(pipe, true), InvalidArgument);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_THROW(AtomicFile(dir_, true), InvalidArgument);
  // A link stays one.
  const fs::path target = dir_ / "target", link = dir_ / "link";
  { std::ofstream(target) << "old"; }
  fs::create_symlink("target", link);
  AtomicFile file(link, true);
  file.write(bytes("newer"));
  file.commit();
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(fs::file_size(target), 5U);
}

TEST_F(FilesTest, AFileInUseIsKnownByAllItsNames) {
  const fs::path path = dir_ / "model", other = dir_ / "other name";
  { std::ofstream(path) << "weights"; }
  fs::create_hard_link(path, other);
  EXPECT_FALSE(MappedFile::is_open(path));
  auto map = MappedFile::open(path);
  EXPECT_TRUE(MappedFile::is_open(path));
  EXPECT_TRUE(MappedFile::is_open(other));
  EXPECT_FALSE(MappedFile::is_open(dir_ / "none"));
  map.reset();
  EXPECT_FALSE(MappedFile::is_open(other));
}

TEST_F(FilesTest, NothingStaysBehindWhenTheProcessIsKilled) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile file(dir_ / "x", false);
    file.write_zeros(3 << 20);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(entries(), 0U);
}

TEST_F(FilesTest, MappedFileErrorsNameThePath) {
  const auto message = [](const fs::path& path) -> std::string {
    try {
      MappedFile::open(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(dir_ / "missing.gguf"), ::testing::HasSubstr("missing.gguf: cannot open"));
  EXPECT_THAT(message(dir_), ::testing::HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(message(dir_ / "fifo"), ::testing::HasSubstr("not a regular file"));
  { std::ofstream(dir_ / "empty"); }
  EXPECT_THAT(message(dir_ / "empty"), ::testing::HasSubstr("empty"));
}

TEST_F(FilesTest, ShrunkFileIsNoticed) {
  const fs::path target = dir_ / "x";
  { std::ofstream(target) << "0123456789"; }
  const auto file = MappedFile::open(target);
  EXPECT_NO_THROW(file->check_not_truncated());
  fs::resize_file(target, 4);
  EXPECT_THROW(file->check_not_truncated(), IoError);
}

TEST_F(FilesTest, Sha256) {
  EXPECT_EQ(sha256_hex(bytes("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  { std::ofstream(dir_ / "x") << "abc"; }
  EXPECT_EQ(sha256_file(dir_ / "x"), sha256_hex(bytes("abc")));
}

TEST(ErrorTable, RowsAreInOrder) {
  for (const ErrorKind& kind : error_kinds())
    EXPECT_EQ(error_kind(kind.code).name, kind.name);
  EXPECT_EQ(FormatError("x").kind().exit_status, 3);
  EXPECT_EQ(HadamardDimensionError("x", {128}).kind().python_class, "HadamardDimensionError");
}

}  // namespace
}  // namespace ts
