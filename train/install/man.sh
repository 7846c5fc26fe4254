#!/usr/bin/env bash
# The text from which help2man makes the man page: minnow --help, then the help of each command as a section of its own.
#
#   make man     (help2man calls this with --help and with --version; MINNOW is the program)
set -euo pipefail
# The lines below the first say which libraries this machine has.
if [ "${1:-}" != --help ]; then "$MINNOW" "$@" | sed -n 1p; exit; fi
"$MINNOW" --help | sed 's/^Exit status: /\n*Exit status*\n\n/'
commands=$("$MINNOW" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
for command in $commands; do
  printf '\n*minnow %s*\n\n' "$command"
  # help2man would move what stands under "Files:" to a section of the whole page.
  "$MINNOW" "$command" --help | sed '1s/^Usage: \(.*\)/\1\n/; s/^Files:$/Files read and written:/'
done
