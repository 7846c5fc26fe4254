#!/usr/bin/env bash
# In the CPU's block, as it was compiled, each loop over a group's elements multiplies vectors and has no branch inside, for every
# set of instructions.
set -euo pipefail
build=${BUILD:-build}
flags=$(cat "$build/flags.cc")
case $flags in
  *-fsanitize*|*--coverage*|*-O0*) echo "skipped: compiled to find faults, not for speed"; exit 0 ;;
esac
read -ra cc <<<"${CC:-gcc}"
if ! "${cc[@]}" --version | grep -q "Free Software Foundation" || [ "$(uname -m)" != x86_64 ]; then
  echo "skipped: not GCC's code for x86-64"
  exit 0
fi

# Lines of "FUNCTION LOOPS BRANCHES": its innermost loops that multiply packed numbers, and the branches in them.
loops() {
  objdump -d --no-show-raw-insn "$1" | awk '
    function judge(  i, j, inner, packed, inside) {
      for (i = 1; i <= n; i++) {
        if (!(i in from)) continue
        inner = 1
        packed = inside = 0
        for (j = from[i]; j < i; j++) {
          if (j in from && from[j] >= from[i]) inner = 0
          if (op[j] ~ /mulp[sd]$/) packed = 1
          if (op[j] ~ /^j/ && op[j] != "jmp") inside++
        }
        if (inner && packed) { loops++; branches += inside }
      }
      if (name != "") print name, loops + 0, branches + 0
    }
    /^[0-9a-f]+ <.*>:$/ { judge(); name = $2; gsub(/[<>:]/, "", name); n = loops = branches = 0; split("", at); split("", from); next }
    /^ +[0-9a-f]+:\t/ { sub(":", "", $1); at[$1] = ++n; op[n] = $2; if ($2 ~ /^j/ && $3 in at) from[n] = at[$3] }
    END { judge() }'
}

# The forward, the forward with loss and backward, and the backward have 13 such loops together; GCC may make two of one.
passed=0
for real in fp32 fp64; do
  while read -r function count branches; do
    case $function in chunk_of_any_ops) continue ;; chunk_*) ;; *) continue ;; esac
    if [ "$count" -lt 13 ] || [ "$branches" -gt 0 ]; then
      echo "$build/kernels/block.$real.o: $function has $count vector loops with $branches branches, not 13 or more without any" >&2
      exit 1
    fi
    passed=$((passed + 1))
  done < <(loops "$build/kernels/block.$real.o")
done
[ "$passed" = 8 ] || { echo "$passed functions, not four for each kind of real" >&2; exit 1; }
echo "$passed passed, 0 failed"
