#!/bin/bash
# The one list of packages. Installs on Debian 12 what a purpose needs:
#   scripts/install-deps.sh build   the programs and the library (default)
#   scripts/install-deps.sh test    and the default tests
#   scripts/install-deps.sh ci      and the sanitizer, fuzz, ARM and tooling suites
#   scripts/install-deps.sh list    only prints the packages of "ci"
set -euo pipefail

build=(g++ cmake ninja-build make pkg-config git ca-certificates python3
       libfmt-dev nlohmann-json3-dev libutf8proc-dev libssl-dev
       libcli11-dev libedit-dev libopenblas-pthread-dev)
test=(libgtest-dev libgmock-dev librapidcheck-dev libsimde-dev libbenchmark-dev binutils
      qemu-user python3-jinja2 python3-numpy)
ci=(clang-14 clang-format-14 libclang-rt-14-dev g++-aarch64-linux-gnu valgrind)
arm64=(libc6 libstdc++6 libfmt-dev libutf8proc-dev libssl-dev libedit-dev libopenblas-pthread-dev
       libgtest-dev libgmock-dev librapidcheck-dev)

purpose="${1:-build}"
packages=("${build[@]}")
case "$purpose" in
  build) ;;
  test) packages+=("${test[@]}") ;;
  ci | list) packages+=("${test[@]}" "${ci[@]}" "${arm64[@]/%/:arm64}") ;;
  *) echo "usage: $0 [build|test|ci|list]" >&2; exit 2 ;;
esac
if [ "$purpose" = list ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if [ "$purpose" = ci ] && ! dpkg --print-foreign-architectures | grep -qx arm64; then
  foreign=missing
else
  foreign=present
fi
# Is the package installed for its own (or, unqualified, for this machine's) architecture?
native="$(dpkg --print-architecture 2>/dev/null || true)"
installed() {
  local architecture="$native"
  case "$1" in *:*) architecture="${1#*:}" ;; esac
  dpkg-query -W -f='${Architecture} ${Status}\n' "${1%%:*}" 2>/dev/null |
    grep -qE "^($architecture|all) install ok installed"
}
missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo "install-deps: this system has no apt-get; install these yourself: ${missing[*]}" >&2
  exit 4
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
fi
echo "install-deps: installing ${missing[*]}" >&2
if [ "$foreign" = missing ]; then
  "${as_root[@]}" dpkg --add-architecture arm64
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
