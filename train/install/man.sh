#!/usr/bin/env bash
# The text from which help2man makes the man page: minnow --help, the help of each command, and the last sections of COMMAND.md.
#
#   make man     (help2man calls this with --help and with --version; MINNOW is the program)
set -euo pipefail
# The lines below the first say which libraries this machine has.
if [ "${1:-}" != --help ]; then "$MINNOW" "$@" | sed -n 1p; exit; fi
"$MINNOW" --help | sed '/^Exit status: /,$d'
commands=$("$MINNOW" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
for command in $commands; do
  printf '\n*minnow %s*\n\n' "$command"
  "$MINNOW" "$command" --help | sed '1s/^Usage: \(.*\)/\1\n/; s/^For example: /\n&/'
done
# From "## Signals" on, as help2man reads it: a section's name between asterisks, and of a table "  NAME  text".
sed -n '/^## Signals$/,$p' "$(dirname "$0")/../command/COMMAND.md" |
  sed '/^|---/,/^|/{/^|---/d}; /^| \(file\|variable\|signal\|code\) |/d; s/^## \(.*\)/*\1*/; s/^| \(.*\) | \(.*\) |$/  \1  \2/; s/`//g; s/ …/ .../g; s/^    .*/&\n/'
