#!/usr/bin/env bash
# --data F of a CSV or .npy file: one line that names it, then three lines of Python, which make the HDF5 file that minnow trains on.
set -euo pipefail
minnow=$(realpath "${MINNOW:-build/minnow}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
passed=0
fail() { echo "$*" >&2; exit 1; }
python=/usr/bin/python3
"$python" -c 'import h5py, numpy' 2>/dev/null || python=

# refuses NAME: both commands end with 65, one line and the three lines, in lines.py.
train() { "$minnow" train --quiet --device cpu --hidden 8 --groups 2 --batch 4 --epochs 1 --data "$@"; }
refuses() {
  local code=0
  train "$1" >out 2>err || code=$?
  [ "$code" = 65 ] || fail "'$1' ends with $code: $(cat err)"
  if [ -s out ] || [ "$(wc -l <err)" != 4 ]; then fail "'$1': not one line and three: $(cat err)"; fi
  sed 1d err >lines.py
  head -n 1 err | grep -q "^minnow: .* is no HDF5 file" || fail "'$1': $(head -n 1 err)"
  [[ $(head -n 1 lines.py) == "import h5py, numpy as np  # "* ]] || fail "'$1': $(cat lines.py)"
  # shellcheck disable=SC2016 # these two characters
  if LC_ALL=C.UTF-8 grep -q '[[:cntrl:]$`]' lines.py; then fail "'$1': a shell or terminal reads $(cat -v lines.py)"; fi
  passed=$((passed + 1))
}
# converts NAME TO: the lines write TO, whose x and y are those below, and which trains; a second time they replace nothing.
converts() {
  [ -n "$python" ] || { echo "skipped: python3 has no h5py and numpy"; return 0; }
  "$python" lines.py || fail "'$1': Python refuses $(cat -v lines.py)"
  "$python" - "$2" <<'CHECK' || fail "'$2' does not hold the rows"
import h5py, numpy as np, sys
with h5py.File(sys.argv[1]) as f:
    assert np.array_equal(f["x"][()], np.arange(16, dtype="float32").reshape(8, 2) / 4)
    assert np.array_equal(f["y"][()], np.arange(8) % 3)
CHECK
  train "$2" >/dev/null || fail "'$2' does not train"
  ! "$python" lines.py 2>/dev/null || fail "'$1': the lines replace $2"
  rm "$2"
  passed=$((passed + 1))
}
rows() { for n in 0 1 2 3 4 5 6 7; do echo "$((n / 2)).$((n % 2 * 5))$1$((n / 2)).$((n % 2 * 5 + 2))5$1$((n % 3))"; done; }

rows , >plain.csv && refuses plain.csv && converts plain.csv plain.h5
{ echo '"length","width","kind"'; rows ','; } >header.csv && refuses header.csv && converts header.csv header.h5
{ echo 'nano;infinite;y'; rows ';'; } >semicolons.CSV && refuses semicolons.CSV && converts semicolons.CSV semicolons.h5
rows $'\t' >tabs.v1.tsv && refuses tabs.v1.tsv && converts tabs.v1.tsv tabs.v1.h5
rows , | sed 's/$/\r/' >dos.csv && refuses dos.csv && converts dos.csv dos.h5
mkdir 'a.csv' && rows , >'a.csv/none.csv' && refuses a.csv/none.csv && converts a.csv/none.csv a.csv/none.h5
# Names that Python, a shell or a terminal would read otherwise.
# shellcheck disable=SC2016 # that is meant
for name in 'it'"'"'s "here" \n $(ls) `ls`!' $'line\nbreak \x1b[31m \xc2\x9b31m' $'latin-\xe9 größe %s%n'; do
  rows , >"$name.csv"
  refuses "$name.csv"
  converts "$name.csv" "$name.h5"
done
if [ -n "$python" ]; then
  "$python" -c 'import numpy as np; np.save("a.npy", np.c_[np.arange(16).reshape(8, 2) / 4, np.arange(8) % 3])'
  refuses a.npy
  converts a.npy a.h5
fi

# An index without a name, and a first value that is missing.
for start in ',length,kind:1' ',0.5,1:0'; do
  printf '%s\n0,0.5,1\n' "${start%:*}" >first.csv
  refuses first.csv
  grep -q "skip_header=${start#*:}," lines.py || fail "'${start%:*}': $(cat lines.py)"
done

# eval and predict say the same; what is no table has the one line that it had.
rows , >e.csv
printf 'PK\x03\x04,,,,' >a.csv/zip
printf 'Dear reader, this is no table,\nbut a letter, as you see.\n' >letter.txt
for line in "train --hidden 8 --groups 2" "eval --checkpoint run.h5" "predict --checkpoint run.h5 --out o.h5"; do
  for data in e.csv a.csv/zip letter.txt; do
    [ -e run.h5 ] || "$minnow" train --quiet --device cpu --synthetic 64 --in 2 --hidden 8 --groups 2 --head 1 --steps 1 --checkpoint run.h5 >/dev/null
    code=0
    # shellcheck disable=SC2086 # a list of words
    "$minnow" $line --device cpu --data $data >out 2>err || code=$?
    [ "$code" = 65 ] || fail "'$line' of $data ends with $code"
    [ "$(wc -l <err)" = "$([ $data = e.csv ] && echo 4 || echo 1)" ] || fail "'$line' of $data: $(cat err)"
    passed=$((passed + 1))
  done
done
echo "$passed passed, 0 failed"
