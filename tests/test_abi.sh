#!/usr/bin/env bash
# The sizes and offsets of train/minnow.h's structs are those of tests/abi.txt: programs that were compiled go on running. With others MINNOW_ABI rises, and with it the soname; then WRITE=1 tests/test_abi.sh.
set -euo pipefail
read -ra cc <<<"${CC:-gcc}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${cc[@]}" -std=c11 -I. tests/abi_show.c -o "$folder/public"
"$folder/public" >"$folder/public.txt"
[ "${WRITE:-}" != 1 ] || [ "$(sed 1q tests/abi.txt)" = "$(sed 1q "$folder/public.txt")" ] || cp "$folder/public.txt" tests/abi.txt
diff tests/abi.txt "$folder/public.txt" >&2 || { echo "structs have changed since tests/abi.txt: MINNOW_ABI has to rise in train/minnow.h" >&2; exit 1; }
echo "1 passed, 0 failed"
