#!/bin/bash
# Installs a finished build into a temporary prefix and uses it from another project, once through
# the CMake package and once through pkg-config. Usage: scripts/test_install.sh BUILD_DIR
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
build="$(cd "${1:?usage: $0 BUILD_DIR}" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
prefix="$work/prefix"

cmake --install "$build" --prefix "$prefix" >/dev/null
library="$(find "$prefix" -name 'libtensorsharp.so.*' -type l | head -1)"
[ -n "$library" ] || { echo "no soname link was installed" >&2; exit 1; }
libdir="$(dirname "$library")"
# Only the public API may be visible.
leaked="$(nm -D --defined-only -C "$library" | awk '$2 ~ /[TDBRV]/' |
          grep -vE ' (ts::|vtable for ts::|typeinfo (name )?for ts::|guard variable for ts::|VTT for ts::|non-virtual thunk to ts::)' || true)"
[ -z "$leaked" ] || { echo "symbols outside the public API are visible:" >&2; echo "$leaked" | head >&2; exit 1; }

mkdir "$work/consumer"
cat > "$work/consumer/main.cc" <<'SOURCE'
#include <cstdio>
#include <string>

#include <tensorsharp/engine.hpp>
#include <tensorsharp/error.hpp>
#include <tensorsharp/version.hpp>

int main(int argc, char** argv) {
  std::printf("tensorsharp %s\n", std::string(ts::version()).c_str());
  try {
    const auto engine = ts::Engine::load(argc > 1 ? argv[1] : "missing.gguf");
    const auto ids = engine->tokenize("Once upon a time");
    ts::GenerateOptions options;
    options.max_tokens = 8;
    options.sampling.temperature = 0;
    std::printf("%s\n", engine->new_session()->generate(ids, options).text.c_str());
  } catch (const ts::Error& e) {
    std::printf("%s: %s\n", std::string(e.kind().name).c_str(), e.what());
    return e.kind().exit_status;
  }
}
SOURCE
cat > "$work/consumer/CMakeLists.txt" <<'SOURCE'
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
find_package(tensorsharp 0.1 REQUIRED)
add_executable(consumer main.cc)
target_link_libraries(consumer tensorsharp::tensorsharp)
SOURCE
cmake -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/consumer/build" >/dev/null
export PKG_CONFIG_PATH="$libdir/pkgconfig"
# shellcheck disable=SC2046
g++ -std=c++20 "$work/consumer/main.cc" -o "$work/consumer/by_pkg_config" \
  $(pkg-config --cflags --libs tensorsharp)

for program in "$work/consumer/build/consumer" "$work/consumer/by_pkg_config"; do
  LD_LIBRARY_PATH="$libdir" "$program" "$root/testdata/stories260k.gguf"
  status=0
  LD_LIBRARY_PATH="$libdir" "$program" "$work/missing.gguf" || status=$?
  [ "$status" -eq 3 ] || { echo "expected exit status 3 for a missing file, got $status" >&2; exit 1; }
done
if [ -x "$prefix/bin/tensorsharp" ]; then
  "$prefix/bin/tensorsharp" --version
fi
echo "install test passed"
