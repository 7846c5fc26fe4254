# Bash completion of minnow. Commands, options and the words that options take come from the program's own --help.
# shellcheck shell=bash
_minnow() {
  local program=${1/#\~\//$HOME/} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} prefix="" help words=""
  # "--precision=bf16" is three words for bash, or one where the user's COMP_WORDBREAKS has no "=".
  if [[ $word == --*=* ]]; then
    before=${word%%=*} prefix=${word%%=*}= word=${word#*=}
  elif [[ $word == = ]]; then
    word=""
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ((COMP_CWORD == 1)); then
    words="--help --version $("$program" --help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p')"
  else
    help=$("$program" "${COMP_WORDS[1]}" --help 2>/dev/null)
    if [[ $before == --* && $help =~ "  $before="([^[:space:]]+) ]]; then
      # A list of words starts with a small letter, unlike N|30s; of its words cuda:N stands for several.
      [[ ${BASH_REMATCH[1]} != [a-z]*"|"* ]] || words=$(tr '|' '\n' <<<"${BASH_REMATCH[1]}" | grep -v '[A-Z]')
    elif [[ $word == -* || $help == *"[OPTION...]"$'\n'* ]]; then
      words=$(sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' <<<"$help")
    fi
  fi
  mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "$word")
}
# Without a word to offer, file names are.
complete -o default -F _minnow minnow
