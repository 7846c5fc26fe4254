#!/usr/bin/env bash
# Removes the files that share/minnow/manifest under DESTDIR and PREFIX names, then those of its folders that are empty. A folder
# that was there before install is not in the manifest and stays.
#
#   make uninstall     (PREFIX and DESTDIR as for make install)
set -euo pipefail
root=${DESTDIR:-}${PREFIX%/}
manifest=$root/share/minnow/manifest
if [ ! -f "$manifest" ]; then
  echo "there is no $manifest: nothing of minnow's is installed there; name the PREFIX and DESTDIR of make install" >&2
  exit 66
fi
mapfile -t names <"$manifest"
for name in "${names[@]}"; do
  [[ $name == */ ]] || rm -f "$root/$name"
done

# Innermost first: each folder was noted after the one that holds it.
for ((i = ${#names[@]} - 1; i >= 0; i--)); do
  name=${names[i]} path=$root
  [[ $name == */ ]] || continue
  while [[ $name == ../* ]]; do
    name=${name#../} path=$(dirname "$path")
  done
  path=$path/${name#./}
  [ ! -d "$path" ] || rmdir --ignore-fail-on-non-empty "$path"
done
