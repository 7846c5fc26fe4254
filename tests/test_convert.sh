#!/usr/bin/env bash
# Rows or weights in another program's file: one line that names it, then three lines of Python, which make the HDF5 file that minnow
# reads.
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
