#!/usr/bin/env bash
# The sources as $BUILD/minnow-$VERSION.tar.gz: the files that git tracks, as they stand here. If there is no git, or it refuses a tree
# of another user's, all but .git and folders that were built into. Equal files give equal bytes.
set -euo pipefail
name=minnow-${VERSION:?} build=${BUILD:?}
files() {
  if [ -e .git ] && git ls-files >/dev/null 2>&1; then git ls-files -z; else find . \( -path ./.git -o -path "./$build" -o -exec test -e '{}/flags.cc' \; \) -prune -o -type f -printf '%P\0'; fi
}
mkdir -p "$build"
files | LC_ALL=C sort -z | tar --null -T - --transform "s,^,$name/," --owner 0 --group 0 --numeric-owner --mode u+rw,go+r,go-w \
  --mtime "@${SOURCE_DATE_EPOCH:-0}" -c | gzip -n >"$build/$name.tar.gz.new"
mv "$build/$name.tar.gz.new" "$build/$name.tar.gz"
echo "$build/$name.tar.gz"
