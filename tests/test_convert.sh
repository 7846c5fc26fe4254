#!/usr/bin/env bash
# Rows or weights in another program's file: one line that names it, then lines of Python, which make the HDF5 file that minnow
# reads.
set -euo pipefail
minnow=$(realpath "${MINNOW:-build/minnow}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
passed=0
fail() { echo "$*" >&2; exit 1; }
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import h5py, numpy' 2>/dev/null || python=
[ -n "$python" ] || echo "skipped: what the lines do; python3 has no h5py and numpy"

# refuses NAME: the command ends with 65, one line and the lines for Python, in lines.py.
train() { "$minnow" train --quiet --device cpu --hidden 8 --groups 2 --batch 4 --epochs 1 --data "$@"; }
refuses() {
  local code=0
  train "$1" >out 2>err || code=$?
  [ "$code" = 65 ] || fail "'$1' ends with $code: $(cat err)"
  if [ -s out ] || [ "$(wc -l <err)" != 6 ]; then fail "'$1': not 6 lines: $(cat err)"; fi
  sed 1d err >lines.py
  head -n 1 err | grep -q "^minnow: .* is no HDF5 file" || fail "'$1': $(head -n 1 err)"
  [[ $(head -n 1 lines.py) == "import h5py, numpy as np"*"  # "* ]] || fail "'$1': $(cat lines.py)"
  # shellcheck disable=SC2016 # these two characters
  if LC_ALL=C.UTF-8 grep -q '[[:cntrl:]$`]' lines.py; then fail "'$1': a shell or terminal reads $(cat -v lines.py)"; fi
  passed=$((passed + 1))
}
# converts NAME TO: the lines write TO, whose x and y are those below, and which trains; a second time they replace nothing.
converts() {
  [ -n "$python" ] || return 0
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
save() {
  printf '\x93NUMPY' >"$1"
  [ -z "$python" ] || "$python" -c 'import numpy as np, sys; np.save(sys.argv[1], np.c_[np.arange(16).reshape(8, 2) / 4, np.arange(8) % 3])' "$1"
}
# Names that Python, a shell or a terminal would read otherwise.
# shellcheck disable=SC2016 # that is meant
for name in 'it'"'"'s "here" \n $(ls) `ls`!' $'line\nbreak \x1b[31m \xc2\x9b31m' $'latin-\xe9 größe %s%n'; do
  save "$name.npy"
  refuses "$name.npy"
  converts "$name.npy" "$name.h5"
done

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
for name, a, b in ("rows73.mat", x, y), ("square.mat", x.reshape(4, 4), y[:4]):  # of version 7.3; that a square is turned its text alone tells
    with h5py.File(name, "w", userblock_size=512) as f:
        f["x"], f["y"] = a.T, b if name == "square.mat" else b[None]
    with open(name, "r+b") as f:
        f.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
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
  for rows in rows.npz rows.mat rows73.mat square.mat; do
    [ -e $rows ] || continue
    code=0
    train $rows >out 2>err || code=$?
    [ "$code:$(wc -l <err)" = 65:4 ] || fail "$rows: $code, $(cat err)"
    sed 1d err >lines.py
    "$python" lines.py || fail "$rows: Python refuses $(cat lines.py)"
    train "${rows%.*}.h5" >out || fail "$rows does not train"
    [ "$rows" = square.mat ] || "$python" -c 'import h5py, sys; f = h5py.File(sys.argv[1]); assert f["x"].shape == (8, 2) and f["x"][3, 1] == 1.75' "${rows%.*}.h5" ||
      fail "$rows is turned"
    rm "${rows%.*}.h5"
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

# eval, predict and info say the same; plot, which reads no rows, and what is no array have one line.
save e.npy
mkdir a.npy
printf 'PK\x03\x04,,,,' >a.npy/zip
"$minnow" train --quiet --device cpu --synthetic 64 --in 2 --hidden 8 --groups 2 --head 1 --steps 1 --run run >/dev/null
for line in "train --hidden 8 --groups 2 --data" "train --data" "eval --run run --data" "predict --run run --out o.h5 --data" info "plot --out o.svg"; do
  for data in e.npy a.npy/zip; do
    code=0 lines=6
    # shellcheck disable=SC2086 # a list of words
    "$minnow" $line $data >out 2>err || code=$?
    [ $data = e.npy ] && [ "${line%% *}" != plot ] || lines=1
    if [ "$code" = 0 ] || [ "$(wc -l <err)" != "$lines" ]; then fail "'$line $data' ends with $code: $(cat err)"; fi
    passed=$((passed + 1))
  done
done
echo "$passed passed, 0 failed"
