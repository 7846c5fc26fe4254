#!/usr/bin/env bash
# libminnow.so exports what train/minnow.h declares, and nothing else but what minnow_torch calls. A C++ program that includes
# train/minnow.h compiles without a warning, links with libminnow.so alone, and runs.
set -euo pipefail
build=${BUILD:-build}
read -ra cc <<<"${CC:-gcc}"
read -ra cflags <<<"${CFLAGS:-}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LC_ALL=C

# A declaration ends at the next semicolon, and the last word before its first parenthesis is the name. Those of layers/block_call.h
# are minnow_torch's.
for header in train/minnow.h layers/block_call.h; do
  "${cc[@]}" -std=c11 -DMINNOW_PLAIN -D"__attribute__(x)=" -E -P -I. -x c "$header" | tr '\n' ' ' | tr ';' '\n' | sed -n 's/^[^{}()]*[ *]\(mn_[a-z0-9_]*\)(.*/\1/p'
done | grep -E "$(grep -ohE '\bmn_[a-z0-9_]+\(' train/minnow.h layers/block_call.h | tr -d '(' | sort -u | paste -sd'|' | sed 's/.*/^(&)$/')" | sort -u >"$folder/declared"
[ -s "$folder/declared" ] || { echo "train/minnow.h declares nothing" >&2; exit 1; }
# What the linker adds to every library, AddressSanitizer to every variable and clang to every reduction is not ours.
nm -D --defined-only "$build/libminnow.so" | awk '{ print $3 }' | grep -vE '^(_init|_fini|_edata|_end|__bss_start|__odr_asan.*|\.gomp_critical.*)$' |
  sort -u >"$folder/exported"
if ! diff "$folder/declared" "$folder/exported" >"$folder/difference"; then
  sed -n 's/^< /declared, not exported: /p; s/^> /exported, not declared: /p' "$folder/difference" >&2
  exit 1
fi

cat >"$folder/user.cpp" <<'EOF'
#include "train/minnow.h"

int main() {
  mn_device *device = nullptr;
  bool failed = mn_device_open(&device, "cpu", "fp32", 0) != MN_OK || mn_message()[0] != '\0';
  mn_device_close(device);
  return failed;
}
EOF
g++ -std=c++17 -Wall -Wextra -Werror "${cflags[@]}" -I. -o "$folder/user" "$folder/user.cpp" \
  -L"$build" -lminnow -Wl,-rpath,"$(cd "$build" && pwd)"
"$folder/user"
echo "$(wc -l <"$folder/exported") functions are exported"
echo "1 passed, 0 failed"
