#!/usr/bin/env bash
# train/install/minnow.1 says, word for word, what minnow --help, minnow COMMAND --help and the end of COMMAND.md say: `make man` was
# not forgotten.
set -euo pipefail
export MINNOW=${MINNOW:-build/minnow}
page=train/install/minnow.1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# One word a line. What help2man adds is taken away: fonts, escapes, and its sections SYNOPSIS and DESCRIPTION.
words() { sed 's/  */\n/g' | sed '/^$/d'; }
train/install/man.sh --help >"$folder/help"
sed 's/^Usage: //; s/^\*\(.*\)\*$/\U\1/' "$folder/help" | words >"$folder/said"
sed -n '/^\.SH SYNOPSIS$/,$p' "$page" | sed '/^\.SH SYNOPSIS$/d; /^\.SH DESCRIPTION$/d; s/\\f[BIRP]//g; s/\\[,/&]//g; s/\\-/-/g
    s/^\.B //; s/^\.S[HS] "\{0,1\}\([^"]*\)"\{0,1\}$/\1/; /^\.\(TP\|PP\|HP\|IP\)$/d' | words >"$folder/printed"
[ "$(wc -l <"$folder/said")" -gt 500 ] || { echo "minnow's help has few words" >&2; exit 1; }
if ! diff "$folder/said" "$folder/printed" >"$folder/difference"; then
  sed -n 's/^< /not in the page: /p; s/^> /only in the page: /p' "$folder/difference" | head >&2
  echo "$page is not what the help says: run make man (package help2man)" >&2
  exit 1
fi
for section in SIGNALS '"EXIT STATUS"' ENVIRONMENT FILES EXAMPLES; do
  grep -qx "\.SH $section" "$page" || { echo "$page has no section $section" >&2; exit 1; }
done
version=$(train/install/man.sh --version)
grep -q "^\.TH MINNOW \"1\" .*\"$version\"" "$page" ||
  { echo "$page is not of $version: run make man (package help2man)" >&2; exit 1; }
echo "1 passed, 0 failed"
