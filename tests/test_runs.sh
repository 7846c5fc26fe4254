#!/usr/bin/env bash
# What people do with the files of their runs, and what happens to them: the bytes of every file that the run at hand does not own are
# compared before and after.
set -euo pipefail
minnow=$(readlink -f "${MINNOW:-build/minnow}")
rows=$(readlink -f data/digits.h5)
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export LC_ALL=C OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
passed=0

fail() {
  echo "$action: $*" >&2
  [ ! -s "$folder/err" ] || cat "$folder/err" >&2
  exit 1
}

# A run of 12 steps with a log, two earlier checkpoints and a best one, in the current folder; and the digits beside it.
cp "$rows" digits.h5
begin() {
  "$minnow" train --device cpu --hidden 8 --groups 2 --batch 400 --quiet --steps 12 --keep 3 "$@" >"$folder/out" 2>"$folder/err"
}
begin --data digits.h5 --best --checkpoint run.h5 --log run.jsonl --log-every 1 --stop-at 4
"$minnow" train --device cpu --checkpoint run.h5 --resume --quiet --stop-at 8 >out
"$minnow" train --device cpu --checkpoint run.h5 --resume --quiet >out
begin --synthetic 800 --in 8 --checkpoint other.h5 --log other.jsonl
rm out
mkdir ../"$(basename "$folder")".made && made=$(readlink -f ../"$(basename "$folder")".made)
trap 'chmod -R u+w "$folder"; rm -rf "$folder" "$made"' EXIT
cp ./*.h5 ./*.jsonl "$made"
mkdir undisturbed && cp "$made"/* undisturbed
(cd undisturbed && "$minnow" train --device cpu --checkpoint run.h5 --resume --steps 20 --quiet >out && rm out)

# does ACTION: what follows is that, in a fresh copy of the folder.
does() {
  action=$1
  rm -rf "$folder/here"
  mkdir "$folder/here"
  cd "$folder/here"
  cp "$made"/* .
}
# resumes STATUS WORDS ARGUMENT…: the command ends so, and says so.
steps=20
resumes() {
  local wanted=$1 words=$2 status=0
  shift 2
  "$minnow" train --device cpu --resume --steps "$steps" "$@" >"$folder/out" 2>"$folder/err" || status=$?
  [ "$status" = "$wanted" ] || fail "exit code $status, not $wanted"
  grep -qF -- "$words" "$folder/err" || fail "does not say '$words'"
}
sums() { find . -type f ! -name "*.lock" -exec sha256sum {} + | sort -k 2; }
# touched WHAT NAME…: since `before`, these files have changed, come or gone, and no other.
before() { sums >"$folder/before"; }
touched() {
  local what=$1 changed
  shift
  sums >"$folder/after"
  changed=$(diff "$folder/before" "$folder/after" | sed -n 's/^[<>] [0-9a-f]*  \.\///p' | sort -u | tr '\n' ' ' || true)
  [ "$changed" = "$(printf '%s\n' "$@" | sort -u | sed '/^$/d' | tr '\n' ' ')" ] || fail "touched: $changed"
  printf '%-22s %-66s %s\n' "$action" "$what" "${changed:-nothing}"
  passed=$((passed + 1))
}
# same FILE FILE: checkpoints of the same tensors and progress.
same() { "$minnow" diff "$1" "$2" >"$folder/out" || fail "$1 and $2 differ"; }
timeless() { sed 's/,"time":{[^}]*}}$/}/' "$1"; }
own=(run.h5 run.1.h5 run.2.h5 run.best.h5 run.jsonl)

does "copy file"
cp run.h5 try.h5
before
resumes 0 "fork: try.h5 was saved as run.h5" --checkpoint try.h5
touched "a fork: a run of its own, without a log" try.h5 try.1.h5 try.best.h5
resumes 0 "resuming from" --checkpoint run.h5
same run.h5 try.h5
same run.h5 ../undisturbed/run.h5
diff <(timeless run.jsonl) <(timeless ../undisturbed/run.jsonl) >&2 || fail "the original's log is another"

does "copy folder"
mkdir one && mv ./*.h5 ./*.jsonl one && cp -r one two
before
(cd two && resumes 0 "resuming from" --checkpoint run.h5)
touched "goes on in its own folder" "${own[@]/#/two/}"
resumes 0 "resuming from" --checkpoint one/run.h5
for file in run.h5 run.1.h5 run.best.h5; do cmp "one/$file" "two/$file" >&2 || fail "the same run has other bytes"; done

does "move folder"
mkdir one && mv ./*.h5 ./*.jsonl one && mv one two
before
resumes 0 "resuming from" --checkpoint two/run.h5
touched "goes on there, data and log with it" "${own[@]/#/two/}"

does "rename"
mv run.h5 first.h5
before
resumes 0 "fork: first.h5 was saved as run.h5" --checkpoint first.h5
touched "a fork; what is called run stays" first.h5 first.1.h5 first.best.h5
before
again=0
begin --data digits.h5 --checkpoint run.h5 || again=$?
{ [ "$again" = 73 ] && grep -q "run.1.h5 exists" ../err; } || fail "a new run at the old name: $again"
touched "(a new run at the old name is refused: run.1.h5 exists)" ""

does "link"
ln -s run.h5 link.h5
ln run.h5 hard.h5
before
resumes 0 "resuming from" --checkpoint link.h5
[ -L link.h5 ] || fail "the link is gone"
touched "a symbolic link is the run itself" "${own[@]}"
before
resumes 0 "fork: hard.h5 was saved as run.h5" --checkpoint hard.h5
touched "a hard link is a copy" hard.h5 hard.1.h5 hard.best.h5

does "resume from .1"
before
resumes 73 "run.1.h5 is a file of the run run.h5" --checkpoint run.1.h5
touched "refused: the run will replace it; copy it to another name" ""
cp run.1.h5 back.h5
before
resumes 0 "fork: back.h5 was saved as run.h5" --checkpoint back.h5 --log back.jsonl
touched "(its copy is a fork)" back.h5 back.1.h5 back.best.h5 back.jsonl

does "resume from .best"
before
resumes 73 "run.best.h5 is a file of the run run.h5" --checkpoint run.best.h5
touched "refused likewise" ""
rm run.h5 run.1.h5 run.2.h5
before
resumes 0 "resuming from run.best.h5" --checkpoint run.h5
touched "(where nothing else is left, the run goes on from it)" run.h5 run.best.h5 run.jsonl

does "two at once"
cp other.h5 third.h5
before
"$minnow" train --device cpu --resume --checkpoint run.h5 --steps 1000000000 --save-every 1000000 --quiet >../out 2>../err2 &
first=$!
until grep -q '"step":20,' run.jsonl; do kill -0 $first || fail "ended: $(cat ../err2)"; done
kill -STOP $first
cp run.jsonl ../stopped
resumes 73 "another run is saving to it" --checkpoint run.h5
resumes 73 "run.jsonl" --checkpoint third.h5 --log run.jsonl
cmp run.jsonl ../stopped >&2 || fail "the first one's log has changed"
kill -CONT $first
kill -TERM $first
wait $first && fail "not stopped" || [ $? = 75 ] || fail "the first ends otherwise: $(cat ../err2)"
touched "the second is refused, by checkpoint or by log" "${own[@]}"

does "same name again"
for left in run.h5 run.1.h5 run.2.h5 run.best.h5 run.damaged-3.h5; do
  cp other.h5 run.damaged-3.h5
  before
  again=0
  begin --data digits.h5 --checkpoint run.h5 || again=$?
  { [ "$again" = 73 ] && grep -q "$left exists" ../err; } || fail "exit code $again where $left is there"
  touched "refused: $left exists" ""
  rm "$left"
done

does "log deleted"
rm run.jsonl
before
resumes 0 "log: run.jsonl is new, and begins at step 12" --checkpoint run.h5
touched "begun anew, and said so" "${own[@]}"
sed -n 2p run.jsonl | grep -q '"event":"resume","step":12,' || fail "its second line is $(sed -n 2p run.jsonl)"

does "log of another run"
mv other.jsonl run.jsonl
before
resumes 73 "is not the log of this run" --checkpoint run.h5
touched "refused" ""
before
resumes 73 "is not the log of this run" --checkpoint run.h5 --log other.h5
touched "(so is any file that is no log of it)"

does "killed before a save"
before
"$minnow" train --device cpu --hidden 8 --groups 2 --data digits.h5 --steps 1000000000 --quiet --best --checkpoint b.h5 &
first=$!
until [ -f b.best.h5 ]; do kill -0 $first || fail "ended"; done
kill -KILL "$first"
wait "$first" 2>/dev/null || true
steps=$(($("$minnow" info b.best.h5 --json | grep -o '"step":[0-9]*' | head -n 1 | cut -d : -f 2) + 50))
resumes 0 "resuming from b.best.h5" --checkpoint b.h5
steps=20
touched "it goes on from the best, where there is one" b.h5 b.best.h5

does "diverged, then mended"
before
diverged=0
begin --data digits.h5 --lr 1e30 --checkpoint d.h5 --log d.jsonl || diverged=$?
[ "$diverged" = 1 ] || fail "exit code $diverged"
begin --data digits.h5 --checkpoint d.h5 --log d.jsonl
touched "its log is set aside; the same command trains" d.h5 d.jsonl d.unsaved-1.jsonl

does "a year in a name"
cp other.h5 y.2024.h5
before
resumes 66 "there is no checkpoint y.h5" --checkpoint y.h5
touched "another run, not an older checkpoint of y.h5" ""

if ! command -v gnuplot >/dev/null; then
  echo "skipped: no gnuplot: a picture that comes while a run trains"
else
  does "a picture comes"
  before
  "$minnow" train --device cpu --hidden 8 --groups 2 --data digits.h5 --steps 1000000000 --log-every 100 --quiet --log p.jsonl \
    --plot p.svg 2>../err >../out &
  first=$!
  until grep -qs '"event":"step","step":300,' p.jsonl; do kill -0 $first || fail "ended"; done
  echo mine >p.svg
  kill -TERM $first
  drawn=0
  wait $first || drawn=$?
  [ "$drawn" = 75 ] || [ "$drawn" = 73 ] || fail "exit code $drawn"
  [ "$(cat p.svg)" = mine ] || fail "p.svg is replaced"
  touched "while a run trains: it stays" p.unsaved-1.jsonl p.svg
fi

does "read-only folder"
chmod a-w .
user=()
if [ "$(id -u)" = 0 ]; then
  chmod a+rx "$folder"
  cp "$minnow" ../minnow.here && minnow=../minnow.here
  user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
before
denied=0
"${user[@]}" "$minnow" train --device cpu --resume --steps 20 --checkpoint run.h5 >../out 2>../err || denied=$?
{ [ "$denied" = 73 ] && grep -q "name a folder that can be written" ../err; } || fail "exit code $denied: $(cat ../err)"
touched "refused before the first step" ""

echo "$passed passed, 0 failed"
