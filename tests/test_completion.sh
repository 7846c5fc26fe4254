#!/usr/bin/env bash
# The completion of bash, and of zsh where it is: commands, the options of each, the words that an option takes, and file names for
# everything else.
set -euo pipefail
minnow=$(realpath "${MINNOW:-build/minnow}")
export LC_ALL=C
passed=0
fail() { echo "$*" >&2; exit 1; }

# offers WANTED WORD…: with this command line before the cursor, at the end of the last word, bash offers exactly WANTED.
# shellcheck source=train/install/completion.bash
. train/install/completion.bash
offers() {
  local wanted=$1 offered
  shift
  COMP_WORDS=("$minnow" "$@") COMP_CWORD=$# COMPREPLY=(left over)
  _minnow "$minnow" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  offered=${COMPREPLY[*]}
  [ "$offered" = "$wanted" ] || fail "bash offers '$offered' for 'minnow $*', not '$wanted'"
  passed=$((passed + 1))
}
[[ $(complete -p minnow) == *"-o default"* ]] || fail "bash offers no file names"
commands=$("$minnow" --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | tr '\n' ' ')
[ "$(wc -w <<<"$commands")" -ge 10 ] || fail "minnow --help lists few commands: $commands"
offers "--help --version ${commands% }" ""
offers "predict" pre
offers "predict parity plot" p
offers "--keep" train --k
offers "--precision" eval --pr
offers "auto device host file" train --place ""
offers "auto device host file" train --place =
offers "device" train --place = d
offers "--place=device" train --place=d
offers "auto cpu cuda" train --device ""
offers "cross-entropy" train --quiet --loss c
offers "" train --save-every ""
offers "" train --data ""
offers "" parity ""
offers "--device --threads --precision --tolerance --json --quiet --help" parity --
for command in $commands; do
  options=$("$minnow" "$command" --help | grep -o '^  --[a-z0-9-]*' | tr -d ' ' | tr '\n' ' ')
  [ -n "$options" ] || fail "minnow $command --help lists no options"
  offers "${options% }" "$command" -
done
# A command without a file's name has nothing but options.
offers "$("$minnow" eval --help | grep -o '^  --[a-z0-9-]*' | tr -d ' ' | paste -sd' ')" eval ""

if command -v zsh >/dev/null 2>&1; then
  # What the script hands to zsh's own functions.
  # zsh_says WORD…: for this command line.
  zsh_says() {
    zsh -f -c '_arguments() { print -rl -- "words $words $CURRENT" "$@" }
      _describe() { print -rl -- ${(P)2} }
      compadd() { print -rl -- "$@" }
      words=("$@") CURRENT=$#
      complete_it() { source train/install/completion.zsh }
      complete_it' zsh "$minnow" "$@"
  }
  zsh_has() {
    grep -qxF -e "$2" <<<"$1" || fail "zsh is not told '$2', but:"$'\n'"$1"
    passed=$((passed + 1))
  }
  said=$(zsh_says "")
  for command in $commands; do grep -q "^$command:[A-Z]" <<<"$said" || fail "zsh is not offered $command"; done
  zsh_has "$said" "train:Train a stack of blocks on the rows of --data or --synthetic."
  zsh_has "$said" --version
  said=$(zsh_says train --pl "")
  zsh_has "$said" "words train --pl  3"
  zsh_has "$said" "--data=[CSV file with a line of names; or HDF5 with x \\[n, I\\] and y, or train/ and test/ of them]:F:_files"
  zsh_has "$said" "--schedule=[of the learning rate; that of sgd is constant by default (default cosine)]:schedule:(constant cosine step)"
  zsh_has "$said" "--device=[auto: the GPU where there is one; for short runs of train, eval and predict the CPU (default auto)]:device:(auto cpu cuda)"
  zsh_has "$said" "--nesterov[Nesterov's momentum, of sgd, which it implies]"
  ! grep -qxF '*:file:_files' <<<"$said" || fail "zsh offers files to train"
  for command in $commands; do
    said=$(zsh_says "$command" "")
    for option in $("$minnow" "$command" --help | grep -o '^  --[a-z0-9-]*'); do
      grep -q -e "^${option}[=[]" <<<"$said" || fail "zsh is not offered $command $option"
    done
    passed=$((passed + 1))
  done
  zsh_has "$(zsh_says parity "")" '*:file:_files'
else
  echo "no zsh here: its completion is not checked"
fi
echo "$passed passed, 0 failed"
