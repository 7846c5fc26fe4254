#compdef minnow
# Zsh completion of minnow. Commands, options and the words that options take come from the program's own --help.

# One argument of _arguments for each option: a list of words starts with a small letter, unlike N|30s; of its words cuda:N stands
# for several.
_minnow_options() {
  awk '
    function flush(   value, name, i, count, word, list) {
      if (option == "") return
      name = option; sub(/=.*/, "", name)
      value = name == option ? "" : substr(option, length(name) + 2)
      gsub(/[][\\]/, "\\\\&", text)
      printf "%s%s[%s]", name, value == "" ? "" : "=", text
      if (value ~ /^[a-z].*\|/) {
        count = split(value, word, "|")
        for (i = 1; i <= count; i++) if (word[i] !~ /[A-Z]/) list = list " " word[i]
        printf ":%s:(%s)", substr(name, 3), substr(list, 2)
      } else if (value != "") printf ":%s:_files", value
      print ""
    }
    /^  --/ { flush(); option = $1; $1 = ""; text = substr($0, 2); next }
    /^   / { $1 = $1; text = text (text == "" ? "" : " ") $0; next }
    END { flush() }'
}

local program=${~${(Q)words[1]}} help
local -a commands options
if (( CURRENT == 2 )); then
  commands=(${(f)"$($program --help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*  \(.*\)/\1:\2/p')"})
  _describe command commands
  compadd -- --help --version
  return
fi
help=$($program $words[2] --help 2>/dev/null)
options=(${(f)"$(_minnow_options <<<$help)"})
[[ $help == *'[OPTION...]'$'\n'* ]] || options+=('*:file:_files')
shift words
(( CURRENT-- ))
_arguments $options
