#!/usr/bin/env bash
# Rows or weights in another program's file: one line that names it, then lines of Python, which make the HDF5 file that minnow
# reads. A table that is more than plain numbers is read by pandas.
set -euo pipefail
minnow=$(realpath "${MINNOW:-build/minnow}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
passed=0
fail() { echo "$*" >&2; exit 1; }
python=/usr/bin/python3
"$python" -c 'import h5py, numpy' 2>/dev/null || python=
for pandas in ${PYTHON:-} /usr/bin/python3 python3 ""; do
  if [ -z "$pandas" ] || "$pandas" -c 'import h5py, pandas' 2>/dev/null; then break; fi
done

# refuses NAME [LINES]: both commands end with 65, one line and the lines for Python, in lines.py.
train() { "$minnow" train --quiet --device cpu --hidden 8 --groups 2 --batch 4 --epochs 1 --data "$@"; }
refuses() {
  local code=0
  train "$1" >out 2>err || code=$?
  [ "$code" = 65 ] || fail "'$1' ends with $code: $(cat err)"
  if [ -s out ] || [ "$(wc -l <err)" != "${2:-6}" ]; then fail "'$1': not ${2:-6} lines: $(cat err)"; fi
  sed 1d err >lines.py
  head -n 1 err | grep -q "^minnow: .* is no HDF5 file" || fail "'$1': $(head -n 1 err)"
  [[ $(head -n 1 lines.py) == "import h5py, numpy as np"*"  # "* ]] || fail "'$1': $(cat lines.py)"
  # shellcheck disable=SC2016 # these two characters
  if LC_ALL=C.UTF-8 grep -q '[[:cntrl:]$`]' lines.py; then fail "'$1': a shell or terminal reads $(cat -v lines.py)"; fi
  passed=$((passed + 1))
}
# converts NAME TO: the lines write TO, whose x and y are those below, and which trains; a second time they replace nothing.
converts() {
  [ -n "$python" ] || { echo "skipped: python3 has no h5py and numpy"; return 0; }
  paste_into "$python"
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
# paste_into PYTHON: as a user does at the prompt, where another line follows at once.
paste_into() {
  { cat lines.py; echo 'print("past", "the end")'; } | "$1" -qi >said 2>&1 || true
  grep -q "past the end" said || fail "$1: $(cat said) to $(cat -v lines.py)"
}
rows() { for n in 0 1 2 3 4 5 6 7; do echo "$((n / 2)).$((n % 2 * 5))$1$((n / 2)).$((n % 2 * 5 + 2))5$1$((n % 3))"; done; }

rows , >plain.csv && refuses plain.csv && converts plain.csv plain.h5
{ echo '"length","width","kind"'; rows ','; } >header.csv && refuses header.csv && converts header.csv header.h5
{ echo 'nano;infinite;y'; rows ';'; } >semicolons.CSV && refuses semicolons.CSV && converts semicolons.CSV semicolons.h5
rows $'\t' >tabs.v1.tsv && refuses tabs.v1.tsv && converts tabs.v1.tsv tabs.v1.h5
rows , | sed 's/$/\r/' >dos.csv && refuses dos.csv && converts dos.csv dos.h5
mkdir 'a.csv' && rows , >'a.csv/none.csv' && refuses a.csv/none.csv && converts a.csv/none.csv a.csv/none.h5
{ echo ',length,width,kind'; rows , | awk '{ print NR - 1 "," $0 }'; } >index.csv && refuses index.csv && converts index.csv index.h5
rows , | awk '{ print NR - 1 "," $0 }' >counted.csv && refuses counted.csv && converts counted.csv counted.h5
{ echo ',0,1,2'; rows , | awk '{ print NR - 1 "," $0 }'; } >numbered.csv && refuses numbered.csv && converts numbered.csv numbered.h5

# mixed NAME X Y CLASSES: the lines with pandas write these arrays, which train reads.
mixed() {
  refuses "$1" 11
  rm -f "${1%.*}.h5"
  [ -n "$pandas" ] || { echo "skipped: python3 has no pandas"; return 0; }
  paste_into "$pandas"
  "$pandas" - "${1%.*}.h5" "${@:2}" <<'CHECK' || fail "'$1' is converted to something else by $(cat lines.py)"
import h5py, numpy as np, sys
nan = None
with h5py.File(sys.argv[1]) as f:
    x, y, classes = f["x"][()], f["y"][()], [n.decode() for n in f["classes"][()]] if len(f["classes"]) else []
want = [eval(a) for a in sys.argv[2:]]
assert x.dtype == "float32" and (y.dtype == "int32") == bool(classes), (x.dtype, y.dtype)
assert np.array_equal(x[:len(want[0])], np.array(want[0], "float32")), x
assert y[:len(want[1])].tolist() == want[1] and classes == want[2], (y, classes)
CHECK
  train "${1%.*}.h5" >/dev/null || fail "${1%.*}.h5 does not train"
  passed=$((passed + 1))
}
# What a spreadsheet of a country with decimal commas saves: a byte order mark, quotes, names of classes, an empty line.
printf '\xef\xbb\xbf"Länge, cm";Breite;Art\r\n"1,5";2,25;"Hund"\r\n3,5;"4,25";"Katze; klein"\r\n0,5;7;Ara\r\n5;6;Hund\r\n;;\r\n' >tiere.csv
mixed tiere.csv '[[1.5, 2.25], [3.5, 4.25], [0.5, 7], [5, 6]]' '[1, 2, 0, 1]' '["Ara", "Hund", "Katze; klein"]'
# Semicolons with decimal points; commas in a text.
printf 'a;place;y\n1.5;Paris, France;no\n2.5;Rome;None\n3.5;Rome;no\n4.5;;no\n' >points.csv
mixed points.csv '[[1.5, 1, 0], [2.5, 0, 1], [3.5, 0, 1], [4.5, 0, 0]]' '[1, 0, 1, 1]' '["None", "no"]'
# Missing numbers, truth values, categories, a row without a target, names that are all different; targets are few whole numbers.
{
  echo 'name, age, colour, member, y'
  for n in $(seq 0 119); do echo "name $n, $((n % 2 ? n : 50)), $((n % 2)), $([ $((n % 3)) = 0 ] && echo True || echo False), $((3 + n % 2))"; done
  printf 'x, ?, , True, 3\ny, NA, 1, True,\n'
} >people.csv
mixed people.csv '[[50, 0, 1], [1, 1, 0]]' '[0, 1, 0]' '["3.0", "4.0"]'
[ -z "$pandas" ] || grep -q "left out: .'name'" said || fail "nobody is told of the column 'name': $(cat said)"
# R's table: names for all columns but that of the rows; whole numbers that are many are no classes.
{ printf '"a"\t"b"\t"y"\n'; for n in $(seq 1 40); do printf '"%d"\t%d.5\t"%s"\t%d\n' "$n" "$n" "$([ $((n % 2)) = 0 ] && echo u || echo v)" $((n * 10)); done; } >r.tsv
mixed r.tsv '[[1.5, 0, 1], [2.5, 1, 0]]' '[10, 20, 30]' '[]'
# What begins like a number is none.
printf 'day,a,y\n2024-01-02,1,0\n2024-01-03,2,1\n2024-01-03,3,1\n2024-01-02,4,0\n' >days.csv
mixed days.csv '[[1, 1, 0], [2, 0, 1]]' '[0, 1, 1, 0]' '["0", "1"]'
# No names, quoted numbers of rows, text as a target.
for n in 0 1 2 3 4; do echo "\"$n\",1.$n,2,$([ $n = 3 ] && echo b || echo a)"; done >bare.csv
mixed bare.csv '[[1, 2], [1.1, 2], [1.2, 2], [1.3, 2], [1.4, 2]]' '[0, 0, 0, 1, 0]' '["a", "b"]'

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

# Arrays under names, and weights of other programs. Where torch, safetensors or scipy is missing, a module of its name stands in.
if [ -n "$python" ]; then
  mkdir modules modules/safetensors
  cat >modules/torch.py <<'STANDIN'
import pickle
class Tensor:
    def __init__(self, values): self.values = values
    def float(self): return self
    def numpy(self): return self.values
def load(path, map_location, weights_only):
    with open(path, "rb") as f: return {n: Tensor(v) for n, v in pickle.load(f).items()}
STANDIN
  echo 'import torch
def load_file(path): return torch.load(path, "cpu", weights_only=True)' >modules/safetensors/torch.py
  touch modules/safetensors/__init__.py
  export PYTHONPATH=$PWD/modules
  "$python" - <<'MAKE'
import h5py, numpy as np, pickle
x, y = np.arange(16, dtype="float32").reshape(8, 2) / 4, np.arange(8) % 3
np.savez("rows.npz", x=x, y=y)
try:
    import scipy.io
    scipy.io.savemat("rows.mat", {"x": x, "y": y[:, None]})
except ImportError:
    pass
r = np.random.default_rng(0)
w = {"blocks.0.fc.weight": r.normal(size=(8, 2)), "blocks.0.fc.bias": r.normal(size=8), "blocks.0.gn.weight": r.normal(size=8),
     "blocks.0.gn.bias": r.normal(size=8), "blocks.1.fc.weight": r.normal(size=(4, 8)), "blocks.1.fc.bias": r.normal(size=4),
     "blocks.1.gn.weight": r.normal(size=4), "blocks.1.gn.bias": r.normal(size=4)}
w = {n: v.astype("float32") for n, v in w.items()}
for name in "w.pt", "w.PTH", "w.safetensors":
    with open(name, "wb") as f:
        pickle.dump(w, f)
with h5py.File("w.weights.h5", "w") as f:
    for i, mark in enumerate(("", "_1")):
        for layer, part in ("dense", "fc"), ("group_normalization", "gn"):
            for k, v in enumerate(("weight", "bias")):
                f[f"layers/{layer}{mark}/vars/{k}"] = w[f"blocks.{i}.{part}.{v}"].T
        f.create_group(f"layers/leaky_re_lu{mark}/vars")
with h5py.File("wide.h5", "w") as f:
    f["x"], f["y"] = x, y
with h5py.File("expected.h5", "w") as f:
    for n, v in w.items():
        f["model/" + n] = v
MAKE
  for rows in rows.npz rows.mat; do
    [ -e $rows ] || continue
    code=0
    train $rows >out 2>err || code=$?
    [ "$code:$(wc -l <err)" = 65:4 ] || fail "$rows: $code, $(cat err)"
    sed 1d err >lines.py
    "$python" lines.py || fail "$rows: Python refuses $(cat lines.py)"
    train rows.h5 >out || fail "$rows does not train"
    rm rows.h5
    passed=$((passed + 1))
  done
  init=("$minnow" train --quiet --device cpu --data wide.h5 --hidden "8,4" --groups 2 --batch 4 --head 0 --epochs 1 --init)
  "${init[@]}" expected.h5 >expected
  for weights in w.pt w.PTH w.safetensors w.weights.h5; do
    code=0
    "${init[@]}" "$weights" >out 2>err || code=$?
    [ "$code:$(wc -l <err)" = 65:4 ] || fail "$weights: $code, $(cat err)"
    sed 1d err >lines.py
    "$python" lines.py || fail "$weights: Python refuses $(cat lines.py)"
    "${init[@]}" w.h5 >out || fail "$weights is no start"
    cmp out expected || fail "$weights is another start"
    rm w.h5
    passed=$((passed + 1))
  done
fi

# A first value that is missing.
printf ',0.5,1\n0,0.5,1\n' >first.csv
refuses first.csv 11
grep -q 'header=None, index_col=None' lines.py || fail "a first value that is missing: $(cat lines.py)"

# eval and predict say the same; what is no table has the one line that it had.
rows , >e.csv
: >empty.csv
printf 'PK\x03\x04,,,,' >a.csv/zip
printf 'Dear reader, this is no table,\nbut a letter, as you see.\n' >letter.txt
for line in "train --hidden 8 --groups 2" "eval --run run" "predict --run run --out o.h5"; do
  for data in e.csv a.csv/zip letter.txt empty.csv; do
    [ -e run/checkpoint.h5 ] || "$minnow" train --quiet --device cpu --synthetic 64 --in 2 --hidden 8 --groups 2 --head 1 --steps 1 --run run >/dev/null
    code=0
    # shellcheck disable=SC2086 # a list of words
    "$minnow" $line --device cpu --data $data >out 2>err || code=$?
    [ "$code" = 65 ] || fail "'$line' of $data ends with $code"
    [ "$(wc -l <err)" = "$([ $data = e.csv ] && echo 6 || echo 1)" ] || fail "'$line' of $data: $(cat err)"
    passed=$((passed + 1))
  done
done
# A first question may lack an option, or be what the file holds.
for line in "train --data e.csv" "info e.csv"; do
  # shellcheck disable=SC2086 # a list of words
  "$minnow" $line >out 2>err && fail "'$line' ends well"
  grep -q "import h5py" err || fail "'$line' of e.csv: $(cat err)"
  passed=$((passed + 1))
done
echo "$passed passed, 0 failed"
