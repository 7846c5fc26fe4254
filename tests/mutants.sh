#!/usr/bin/env bash
# Checks that the tests notice errors: changes the CPU kernels, the way of rows to their batch, the training loop and the
# saver in one place at a time, in a copy of the sources, and expects some test program to fail. Prints one line for each
# change (mutant): which program caught it, or SURVIVED. The exit code is 1 if a mutant survives, or if the text that it
# replaces is not in the file exactly once: then the row below needs the new text.
#
#   tests/mutants.sh                 all of them, shared out among copies, two for each core
#   ONE_IN=3 FROM=1 tests/mutants.sh   every third, from the first on (FROM=2: from the second on)
#   PASSED=1 tests/mutants.sh        where all tests have just passed, and need not run first without any mutant
#   TEXTS=1 tests/mutants.sh         only whether each text is there once, as make lint does
#   tests/mutants.sh WORD            those whose name has WORD in it
#   tests/mutants.sh WORD PROGRAM    the same, run by this test program alone
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
only=${1:-} alone=${2:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/minnow_mutants.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
# Threads that wait without spinning leave the cores to the compiler; -O1 compiles in half the time; a mutant may leave a variable unused.
export OMP_WAIT_POLICY=passive
build=(make --no-print-directory -j2 CUDA=0 BUILD=build OPTIMIZE=-O1 WERROR=0)
programs=${alone:-test_block test_kernels test_gemm test_planes test_optimizer test_gradients test_tape test_parity test_masters test_product}
every=${alone:-$programs test_block_call test_block_update test_reading test_doubts test_fingerprint test_chunks test_held_out test_order test_rows test_loader test_saver test_library test_trainer test_trainer_errors test_retake test_nonfinite test_pauses test_training test_init test_best test_validation test_predict test_standardize test_model test_terminal test_log test_resume test_progress test_command test_advice test_newest test_sums test_disk test_signals test_hosts test_arrays test_options}

# A worker of the process below takes its copy (BUILT), and of the mutants its SHARE. Any other builds a copy, in which all must pass.
if [ -n "${TEXTS:-}" ]; then
  BUILT=none
elif [ -n "${BUILT:-}" ]; then
  cp -a "$BUILT/." "$work" || exit 1
else
  for folder in Makefile kernels engine layers train data tests; do cp -a "$here/$folder" "$work" || exit 1; done
fi
cd "$work" || exit 1

# Runs the programs in turn up to the first that fails; prints its name.
first_failing() {
  local program
  for program in "$@"; do
    local path=build/tests/$program
    [[ $program != *.sh ]] || path=tests/$program
    "${build[@]}" build/minnow "$path" >log 2>&1 || { echo "no build"; return; }
    timeout 120 "$path" >log 2>&1 || { echo "$program"; return; }
  done
}

if [ -z "${BUILT:-}" ]; then
  # shellcheck disable=SC2086 # lists of names
  mapfile -t names < <(printf 'build/tests/%s\n' $every | sort -u)
  "${build[@]}" build/minnow "${names[@]}" >log 2>&1 || { tail log; exit 1; }
  if [ -z "${PASSED:-}" ]; then
    for program in "${names[@]}"; do
      timeout 120 "$program" >log 2>&1 && continue
      tail -n 20 log
      echo "$program fails without any mutant"
      exit 1
    done
  fi
fi
# Two workers a core, since some tests sleep or wait.
if [ -z "${BUILT:-}$only" ]; then
  shares=$((2 * $(nproc))) status=0 workers=()
  for ((share = 0; share < shares; share++)); do
    BUILT=$work SHARE=$share SHARES=$shares "$here/tests/mutants.sh" &
    workers+=($!)
  done
  for worker in "${workers[@]}"; do wait "$worker" || status=1; done
  exit $status
fi
number=0

# mutant NAME FILE OLD NEW: OLD stands in FILE once.
mutant() {
  local name=$1 file=$2 old=$3 new=$4 content rest order caught
  [[ $name == *"$only"* ]] || return 0
  number=$((number + 1))
  [ $(((number - ${FROM:-1}) % ${ONE_IN:-1})) = 0 ] || return 0
  [ $((number / ${ONE_IN:-1} % ${SHARES:-1})) = "${SHARE:-0}" ] || return 0
  content=$(<"$here/$file")
  rest=${content#*"$old"}
  if [[ $rest == "$content" || $rest == *"$old"* ]]; then
    printf '%-52s STALE: its text is not in %s exactly once\n' "$name" "$file"
    failed=$((failed + 1))
    return
  fi
  [ -z "${TEXTS:-}" ] || return 0
  case $file in
  kernels/loss.c) order=${alone:-test_kernels test_gradients test_block test_optimizer test_tape test_parity} ;;
  kernels/update.c) order=${alone:-test_optimizer test_gemm test_planes test_masters test_kernels test_tape test_gradients test_block test_parity} ;;
  engine/tensor.c | engine/forms.c) order=${alone:-test_masters test_kernels test_optimizer test_tape} ;;
  kernels/memory.c) order=${alone:-test_masters test_kernels test_loader test_optimizer test_tape} ;;
  kernels/planes.h) order=${alone:-test_masters test_planes test_kernels test_gemm test_optimizer test_tape} ;;
  data/dataset.c | data/hdf5/dataset_file.c | data/hdf5/file.c) order=${alone:-test_reading test_library} ;;
  data/hdf5/chunk.c | data/hdf5/hdf5.c) order=${alone:-test_chunks test_reading} ;;
  data/fingerprint.c) order=${alone:-test_fingerprint} ;;
  train/command/resume.c | train/command/files.c) order=${alone:-test_resume test_faults} ;;
  kernels/status.c) order=${alone:-test_resume test_command} ;;
  kernels/order.[ch]) order=${alone:-test_order test_loader} ;;
  data/held_out.c) order=${alone:-test_held_out} ;;
  data/columns.c) order=${alone:-test_standardize} ;;
  data/class_names.c | data/hdf5/words.c) order=${alone:-test_words} ;;
  data/arrays.c) order=${alone:-test_arrays} ;;
  data/read_rows.c) order=${alone:-test_rows test_loader test_standardize test_library} ;;
  data/*) order=${alone:-test_loader} ;;
  kernels/real.h) order=${alone:-test_kernels} ;;
  kernels/elementwise.c | kernels/gemm.c) order=${alone:-test_planes test_kernels test_gemm test_block test_fused test_nonfinite} ;;
  engine/ranks/hosts.c) order=${alone:-test_hosts} ;;
  layers/block_call.c | kernels/stream.[ch]) order=${alone:-test_block_call test_block_update} ;;
  layers/block.c | layers/norms.c | engine/planes.c) order=${alone:-test_block_update test_optimizer test_retake} ;;
  train/optimizer.c | train/rule.c) order=${alone:-test_optimizer test_parity} ;;
  train/command/session.c) order=${alone:-test_command test_words test_init test_validation test_resume} ;;
  train/checkpoint/read.c | train/checkpoint/misfits.c) order=${alone:-test_model test_init} ;;
  train/checkpoint/restore.c) order=${alone:-test_resume} ;;
  train/checkpoint/atomic_file.c) order=${alone:-test_atomic_file} ;;
  train/checkpoint/sums.c) order=${alone:-test_sums} ;;
  train/runs/keep.c) order=${alone:-test_atomic_file test_saver} ;;
  train/runs/folder.c | train/runs/lock.c) order=${alone:-test_run_folder.sh} ;;
  train/runs/*) order=${alone:-test_newest test_saver test_retake} ;;
  train/checkpoint/* | engine/thread.c) order=${alone:-test_saver test_rows test_model test_retake test_loader test_training test_standardize} ;;
  train/command/announce.c | train/command/log.c) order=${alone:-test_progress test_terminal test_log test_resume} ;;
  train/command/options_*) order=${alone:-test_options test_training} ;;
  train/check/cases.c) order=${alone:-test_cases test_parity} ;;
  train/command/plot.*) order=${alone:-test_command} ;;
  train/json.c | train/command/info.c) order=${alone:-test_inspect test_advice test_faults} ;;
  train/command/apply.c) order=${alone:-test_predict} ;;
  train/command/saves.c) order=${alone:-test_pauses test_disk test_resume} ;;
  train/command/*) order=${alone:-test_pauses test_best test_disk test_training test_terminal} ;;
  train/*) order=${alone:-test_library test_arrays test_trainer test_trainer_errors test_nonfinite test_retake test_pauses test_training test_predict test_standardize} ;;
  *) order=$programs ;;
  esac
  [[ $name != spelled:* ]] || order=${alone:-test_words}
  [[ $name != files:* ]] || order=${alone:-test_doubts}
  [[ $name != defaults:* ]] || order=${alone:-test_options}
  [[ $name != missing:* ]] || order=${alone:-test_missing}
  [[ $name != newer:* ]] || order=${alone:-test_newer}
  [[ $name != sums:* ]] || order=${alone:-test_sums}
  [[ $name != signals:* ]] || order=${alone:-test_signals}
  printf '%s\n' "${content/"$old"/"$new"}" >"$file"
  # shellcheck disable=SC2086
  caught=$(first_failing $order)
  cp "$here/$file" "$file" # a new time, so that it is compiled again
  touch "$file"
  case $caught in
  "no build") printf '%-52s DOES NOT COMPILE\n' "$name" ;;
  "") printf '%-52s SURVIVED\n' "$name" ;;
  *)
    printf '%-52s caught by %s\n' "$name" "$caught"
    passed=$((passed + 1))
    return
    ;;
  esac
  failed=$((failed + 1))
}

b=kernels/block.c
# y
mutant "y: sum subtracts" $b 'a + a : a' 'a - a : a'
mutant "y: sum dropped" $b 'a + a : a' 'a : a'
mutant "y: bias subtracted" $b 'd[at + c] + ((const real *)b->bias)' 'd[at + c] - ((const real *)b->bias)'
mutant "y: bias dropped" $b '] = d[at + c] + ((const real *)b->bias)[c0 + c]' '] = d[at + c]'
mutant "y: mean added" $b '(g->z[c] - g->mean) * g->rstd' '(g->z[c] + g->mean) * g->rstd'
mutant "y: mean dropped" $b '(g->z[c] - g->mean) * g->rstd' 'g->z[c] * g->rstd'
mutant "y: rstd dropped" $b '(g->z[c] - g->mean) * g->rstd' '(g->z[c] - g->mean)'
mutant "y: beta subtracted" $b 'g->gamma[c] + g->beta[c]' 'g->gamma[c] - g->beta[c]'
mutant "y: beta dropped" $b 'g->gamma[c] + g->beta[c]' 'g->gamma[c]'
mutant "y: gamma dropped" $b 'standardised(g, c) * g->gamma[c] + ' 'standardised(g, c) + '
mutant "y: gamma taken per group" $b 'standardised(g, c) * g->gamma[c] + ' 'standardised(g, c) * g->gamma[0] + '
mutant "y: sign of the slope" $b 'low = g->slope * v' 'low = -g->slope * v'
mutant "y: slope on the wrong side" $b '(v > 0 ? v : low)' '(v < 0 ? v : low)'
# the statistics
mutant "eps: twice" $b 'sqrt(variance + eps)' 'sqrt(variance + 2 * eps)'
mutant "eps: none" $b 'sqrt(variance + eps)' 'sqrt(variance)'
mutant "eps: outside the root" $b '(real)sqrt(variance + eps)' '((real)sqrt(variance) + eps)'
mutant "variance: unbiased" $b 'mn_total(squares, g->lanes) * part' 'mn_total(squares, g->lanes) / (real)(g->width > 1 ? g->width - 1 : 1)'
mutant "variance: one pass" $b 'g->rstd = 1 / (real)sqrt(variance + eps) + 0 * variance; /* NaN if squares overflow */' \
  'real raw = 0;
  for (int64_t c = 0; c < g->width; c++) raw += g->z[c] * g->z[c];
  g->rstd = 1 / (real)sqrt(raw * part - g->mean * g->mean + eps);'
mutant "statistics: over the batch" $b 'statistics(g, (real)b->eps);' \
  '{
      real sum = 0, squares = 0, count = (real)(b->rows * g->width);
      for (int pass = 0; pass < 2; pass++)
        for (int64_t n = 0; n < b->rows; n++)
          for (int64_t c = c0; c < c0 + g->width; c++) {
            real z = d[n * b->channels + c];
            if (ops & MN_OP_BIAS && d != b->z) z += ((const real *)b->bias)[c];
            if (pass == 0) sum += z;
            if (pass == 1) squares += (z - sum / count) * (z - sum / count);
          }
      g->mean = sum / count;
      g->rstd = 1 / (real)sqrt(squares / count + (real)b->eps);
    }'
mutant "statistics: over the row" $b 'statistics(g, (real)b->eps);' \
  '{ struct group row = *g; row.z -= c0; row.width = b->channels; statistics(&row, (real)b->eps);
     g->mean = row.mean, g->rstd = row.rstd; }'
# g
mutant "g: sign of the sum" $b 'dy = 2 * dy;' 'dy = -2 * dy;'
mutant "g: sum dropped" $b 'dy = 2 * dy;' 'dy = 1 * dy;'
mutant "g: sign of the slope" $b 'low = g->slope * dy' 'low = -g->slope * dy'
mutant "g: slope dropped" $b 'low = g->slope * dy' 'low = dy'
mutant "g: v = 0 on the other side" $b '(v > 0 ? dy : low)' '(v >= 0 ? dy : low)'
mutant "g: sign of the target" $b '(activated(g, ops, v) - g->target[c])' '(activated(g, ops, v) + g->target[c])'
# dz
mutant "dz: sign of h" $b '(at * g->gamma[c] - m1 -' '(-at * g->gamma[c] - m1 -'
mutant "dz: sign of m1" $b '[c] - m1 - standardised' '[c] + m1 - standardised'
mutant "dz: m1 dropped" $b '[c] - m1 - standardised' '[c] - standardised'
mutant "dz: sign of m2" $b '- m1 - standardised(g, c) * m2' '- m1 + standardised(g, c) * m2'
mutant "dz: m2 dropped" $b '- m1 - standardised(g, c) * m2' '- m1'
mutant "dz: rstd dropped" $b '? g->rstd * (at *' '? (at *'
mutant "dz: gamma taken per group" $b '(at * g->gamma[c] - m1' '(at * g->gamma[0] - m1'
mutant "dz: gamma dropped from m1" $b 'sum[i] += h;' 'sum[i] += at;'
mutant "dz: gamma dropped from m2" $b 'products[i] += h * z;' 'products[i] += at * z;'
mutant "dz: m1 is a sum" $b 'mn_total(sum, g->lanes) / (real)g->width' 'mn_total(sum, g->lanes)'
mutant "dz: m2 is a sum" $b 'mn_total(products, g->lanes) / (real)g->width' 'mn_total(products, g->lanes)'
# the column sums, the loss in the epilogue, the flag
mutant "dbias: sign" $b 'dbias[c] += at;' 'dbias[c] -= at;'
mutant "flag: of the output" $b 'poison[i] += 0 * (y[c] = output(g, ops, c));' 'y[c] = output(g, ops, c);'
mutant "flag: of dz" $b 'poison[i] += 0 * at;' ''
mutant "dgamma: sign" $b 'dgamma[c] += at * z;' 'dgamma[c] -= at * z;'
mutant "dbeta: sign" $b 'dbeta[c] += at;' 'dbeta[c] -= at;'
mutant "column sums: a chunk left out" kernels/gemm.c 'for (int64_t k = 1; k < chunks; k++)' 'for (int64_t k = 2; k < chunks; k++)'
mutant "fused loss: factor 2 dropped" $b '(real)(2 * b->scale /' '(real)(b->scale /'
mutant "fused loss: sign of the target" $b 'output(g, ops, c) - g->target[c];' \
  'output(g, ops, c) + g->target[c];'
mutant "column sums: the loss beside them dropped" kernels/gemm.c 'return loss ? mn_reduce_cpu(device, loss) : MN_OK;' 'return MN_OK;'
mutant "flag: not raised" $b ') mn_raise(device);' ') return;'

l=kernels/loss.c
mutant "mse: sign of the target" $l '+= (a[k] - t[k]) * (a[k] - t[k])' '+= (a[k] + t[k]) * (a[k] + t[k])'
mutant "mse gradient: sign of the target" $l 'factor * (a[k] - t[k])' 'factor * (a[k] + t[k])'
mutant "mse gradient: factor 2 dropped" $l '(real)(2 * scale / ((double)rows' '(real)(scale / ((double)rows'
mutant "cross-entropy: sign of the label" $l '(a[largest] - at_label)' '(a[largest] + at_label)'
mutant "cross-entropy: maximum not taken off" $l 'sum += (real)exp(y[k] - y[*largest]);' 'sum += (real)exp(y[k]);'
mutant "cross-entropy: last of equal ones" $l 'if (y[k] > y[*largest])' 'if (y[k] >= y[*largest])'
mutant "cross-entropy gradient: sign of the label" $l '(probability - (k == labels[n]))' '(probability + (k == labels[n]))'
mutant "cross-entropy gradient: label dropped" $l '(probability - (k == labels[n]))' 'probability'
mutant "cross-entropy gradient: sum, not mean" $l '(real)(scale / (double)rows)' '(real)scale'
mutant "reduce: factor dropped" $l '*r->out = r->factor * sum;' '*r->out = sum;'
mutant "reduce: flag not raised" $l 'if (!isfinite(sum)) mn_raise(device);' ''
mutant "flag: the last mark stays" kernels/real.h 'if (*device->nonfinite == 0) ' ''
mutant "flag: no mark" kernels/real.h '= device->mark;' '= 1;'

u=kernels/update.c
mutant "sgd: sign of the step" $u 's->w[i] -= s->rate' 's->w[i] += s->rate'
mutant "sgd: momentum dropped" $u '(g ? s->momentum * s->m[i] : s->m[i]) + at' 'at'
mutant "sgd: momentum not multiplied" $u '(g ? s->momentum * s->m[i] : s->m[i]) + at' 's->m[i] + at'
mutant "sgd: dampened" $u 's->m[i] : s->m[i]) + at' 's->m[i] : s->m[i]) + (1 - s->momentum) * at'
mutant "sgd: sign of the decay" $u '+ s->decay * s->w[i]' '- s->decay * s->w[i]'
mutant "sgd: decay dropped" $u '+ s->decay * s->w[i]' ''
mutant "sgd: decay after momentum" $u ' nesterov ? at + s->momentum * s->m[i] : s->m[i])' ' nesterov ? at + s->momentum * s->m[i] : s->m[i] + s->decay * s->w[i])'
mutant "sgd: nesterov without momentum" $u 'at + s->momentum * s->m[i] : s->m[i]' 'at + s->m[i] : s->m[i]'
mutant "sgd: nesterov dropped" $u ' nesterov ? at + s->momentum * s->m[i] : s->m[i]' ' s->m[i]'
mutant "sgd: clipping dropped" $u '(g ? s->scale * s->g[i]' '(g ? s->g[i]'
mutant "sgd: plane left stale" $u 'plane[c] = mn_to_plane_of(device, update->w, (float)step.w[row * ld + c], factor);' ';'
mutant "sgd: ties of copies to even" $u 'mn_to_plane_of(device, update->w, (float)step.w[row * ld + c], factor)' \
  'mn_to_plane(device->plane_kind, (float)step.w[row * ld + c], factor)'
mutant "sgd: plane without its factor" $u 'update->w->scale ? update->w->scale->factor : 1;' '1;'
mutant "sgd: sums of gradients stay" kernels/gemm.c 'if (epilogue->update->clears) memset(d' 'if (0) memset(d'
mutant "sgd: every gradient cleared" kernels/gemm.c 'if (epilogue->update->clears) memset(d' 'memset(d'
mutant "sgd: sums are not said to be such" engine/tensor.c 'clears = how == MN_ADD' 'clears = 0'
mutant "sgd: updates in spite of the flag" kernels/gemm.c 'if (*device->nonfinite) return MN_OK;
    MN_TRY(run' 'MN_TRY(run'
mutant "adamw: decay in the gradient" $u 's->w[i] = s->shrink * s->w[i] -' 's->w[i] = s->w[i] -'
mutant "adamw: mean of gradients dropped" $u 's->beta1 * s->m[i] + s->rest1 * g;' 'g;'
mutant "adamw: mean of squares not squared" $u 's->rest2 * g * g' 's->rest2 * g'
mutant "adamw: squares not corrected" $u '(real)sqrt(s->v[i]) * s->second' '(real)sqrt(s->v[i])'
mutant "adamw: eps dropped" $u ' * s->second + s->eps)' ' * s->second)'
mutant "adamw: gradients not corrected" $u 'rate * rule->rate[MN_RATE_FIRST]' 'rate'
mutant "adamw: a step ahead" train/optimizer.c '(double)step + 1;' '(double)step + 2;'
mutant "rule: a member of another rule passes" train/rule.c 'return value == 0 ? MN_OK' 'return 1 ? MN_OK'
mutant "rule: a share of 1" train/rule.c '(!m->share || value < 1)' '1'
mutant "rule: a case without its members" train/check/cases.c 'mn_rule_set(rule, member, value);' ''
mutant "rule: its options are not read" train/command/options_parse.c 'if (m->rules >> out->rule.kind & 1)' 'if (0)'
mutant "rule: an option implies none" train/command/options_parse.c 'if (stray) out->optimizer = first_rule(stray);' '(void)stray;'
mutant "rule: another rule's option passes" train/command/options_parse.c '  if (stray)
    return' '  if (0)
    return'
mutant "adamw: squares are not saved" train/checkpoint/describe.c 't->update.v}' 'NULL}'
mutant "clip: never" $u 'max_norm / (*norm + 1e-6) < 1 ?' 'max_norm / (*norm + 1e-6) < 0 ?'
mutant "clip: norm of norms" $u '0 : sqrt(sum);' '0 : sum;'
mutant "clip: the root of less than 0" $u 'sum < 0 ? 0 : sqrt(sum)' 'sqrt(sum)'
mutant "dot: of the first with itself" kernels/loss.c '(double)u[i] * v[i]' '(double)u[i] * u[i]'
mutant "clip: flag not raised" $u 'if (!isfinite(sum)) mn_raise(device);' ''

# planes and their scales
n=kernels/planes.h
mutant "float16: half-way always up" $n '0xfffu + (bits >> 13 & 1u)' '0x1000u'
mutant "float16: small ones as the others" $n 'if (fabsf(value) < 0x1p-14f) return small;' ''
mutant "float16: infinite too late" $n 'fabsf(value) < 65520.0f' 'fabsf(value) < 65536.0f'
mutant "factor: without headroom" $n 'ldexpf(1, 15 - headroom - ilogbf' 'ldexpf(1, 15 - ilogbf'
mutant "factor: without an end" $n 'return fminf(fmaxf(found, 1 / MN_FACTOR_MOST), MN_FACTOR_MOST);' 'return found;'
mutant "factor: of zeros" $n 'if (!(largest > 0 && largest < INFINITY)) return factor;' 'if (!(largest < INFINITY)) return factor;'
mutant "factor: of an infinity" $n 'if (!(largest > 0 && largest < INFINITY)) return factor;' 'if (!(largest > 0)) return factor;'
mutant "scale: the largest of the last part" $b 'scale->largest = fmaxf(scale->largest, found.largest)' 'scale->largest = found.largest'
mutant "scale: too large a value unseen" $b '|| (scale && found.largest * scale->factor > MN_FP16_MOST)' ''
m=kernels/elementwise.c
mutant "round: never measures" $m 'if (scale && measure) {' 'if (scale && 0) {'
mutant "round: always measures" $m 'if (scale && measure) {' 'if (scale) {'
mutant "round: the largest, with its sign" $n 'size = fabsf(value), counted' 'size = value, counted'
mutant "round: an infinity is the largest" $n 'size < INFINITY ? size : 0' 'size'
mutant "rescale: the largest of all steps" $m 'dz->largest = 0;' ''
mutant "rescale: a slope above 1 forgotten" $m '2 * fmax(1, fabs(b->slope))' '2'
mutant "rescale: sign of the slope" $m 'fabs(b->slope)' 'b->slope'
mutant "rescale: beta forgotten" $m '* gamma + beta);' '* gamma);'
mutant "rescale: a bound that is one channel wide" $m 'sqrt(width - 1)' 'sqrt(width)'
mutant "gemm: factors stay in the product" kernels/gemm.c '1 / ((real)a->scale->factor * (real)b->scale->factor)' '1'
mutant "tile: its sums begin anew" $b 'row % MN_CHUNK_ROWS == 0' '1'
mutant "tile: values of the last alone" kernels/gemm.c 'poison += found.poison' 'poison = found.poison'
mutant "tile: groups are cut" kernels/gemm.c 'cols / e->block->groups : e->kind' '1 : e->kind'
mutant "gemm: adds in spite of the flag" kernels/gemm.c '(epilogue->kind == MN_ADD || epilogue->kind == MN_UPDATE)' 'epilogue->kind == MN_UPDATE'
mutant "gemm: updates in spite of the flag" kernels/gemm.c '(epilogue->kind == MN_ADD || epilogue->kind == MN_UPDATE)' 'epilogue->kind == MN_ADD'
mutant "product: edges of tiles" kernels/gemm.c 'if (t.col + t.cols > p->cols) t.cols = p->cols - t.col;' ''
mutant "product: blocks begin anew" kernels/product_level.h 'k ? 1 : p->beta' 'p->beta'
mutant "product: an edge is not read" kernels/product_level.h 'if (!whole && beta != 0)' 'if (0)'
mutant "product: the overlap" kernels/product_level.h 'next : depth - LANES; /*' 'next : 0; /*'
mutant "epilogue: adds in spite of the flag" kernels/gemm.c 'if (*device->nonfinite) return MN_OK;
#pragma' '#pragma'
mutant "dz: its largest not noted" $b 'if (scale) scale->largest = fmaxf(scale->largest, found.largest);' ''
mutant "y: under no factor" $b 'o->scale ? o->scale->factor : 1, kind}' '1, kind}'
# the block called from outside
o=layers/block_call.c
mutant "call: planes not made" $o 'o->stale = planes > 0;' ''
mutant "call: planes made again" $o 'if (matrix->ready) o.stale = 0;' ''
mutant "call: a scale within its plane" $o '(memory + (all + 15) / 16 * 16)' 'memory'
mutant "call: less workspace than is taken" $o '(3 * mn_chunks(call->rows) * call->channels) * device->real' 'call->channels * device->real'
mutant "call: dz's planes not made" $o 'MN_TRY(mn_operand_prepare(device, &work->dz));' ''
mutant "call: a struct of any size" $o 'if (call->size == sizeof *call) return MN_OK;' 'if (call->size) return MN_OK;'
mutant "call: a grown weight's factor without room" $o 'if (matrix->updated) o.headroom = MN_HEADROOM_W;' ''
mutant "call: dz under the first factor" $o 'if (dz->scale && !dz->real) MN_TRY(mn_rescale(device, dz->scale, NULL, NULL));' ''
mutant "call: its flag is the device's" $o 'call->nonfinite ? call->nonfinite : device->nonfinite' 'device->nonfinite'
mutant "call: its mark is the device's" $o 'call->nonfinite ? MN_BLOCK_NONFINITE : device->mark' 'device->mark'
mutant "call: the flag is not given back" kernels/stream.c 'outside->nonfinite = nonfinite, outside->mark = mark;' ''
mutant "update: planes stay" $o '.planes = weight ? call->weight.planes : NULL,' '.planes = NULL,'
mutant "update: dz under its own scale" $o 'if (dz->scale && call->dz_scale) dz->scale = call->dz_scale;' ''
mutant "update: the pair is used up" $o 'work->summed ? work->summed : work->sums' 'work->sums'
mutant "update: a gradient is followed, not stored" $o '{.kind = MN_STORE, .into = p->gradient}' '{.kind = MN_UPDATE, .update = &updates[i]}'
mutant "update: vectors stay" $o 'call->channels, &sinks[MN_BLOCK_BIAS],' 'call->channels, (const struct mn_epilogue *[3]){0},'
mutant "update: without m" $o 'mn_rule_keeps_m(&call->rule) && !p->m' '0'
mutant "update: no planes needed" $o '!weight->gradient && planes && !call->weight.planes' '0'
mutant "update: both grams are dz's" layers/norms.c 'of[i], of[i], &store' 'of[0], of[0], &store'
mutant "update: grams of any number of rows" $o 'call->rows % 8)' '0)'
mutant "update: a step in place of its grams" $o 'if (call->grams) return write_grams' 'if (0) return write_grams'
mutant "clip: not on the tape" engine/tape.c 'if (tape->clipping) MN_TRY(clip(tape));' ''
mutant "clip: vectors take no part" layers/norms.c 'return vectors ? append_square(' 'return 0 ? append_square('
mutant "clip: the weight takes no part" layers/block.c 'sinks[WEIGHT] ? &node->inputs[X]->value : NULL' 'NULL'
mutant "clip: dz with itself" layers/norms.c 'count, grams, behind, product' 'count, grams, grams, product'
mutant "update: a skipped step counts" kernels/stream.h 'c->ended && !skipped' 'c->ended'
mutant "update: the flag stays" kernels/stream.h '*nonfinite = 0;' ''
mutant "call: any alignment" $o 'if ((uintptr_t)memory % (uintptr_t)bytes == 0) return' 'if (1) return'

gp=engine/planes.c
mutant "scale: dz keeps its first factor" $gp 'b->dz->real = NULL, of_dz = b->dz->scale;' 'b->dz->real = NULL;'
mutant "scale: y has none" $gp 'of_y = y->scale;' '(void)0;'
mutant "scale: dz measured under an old factor" $gp 'dz, MN_MEASURE_TOGETHER)' 'dz, 0)'

# split weights
pl=kernels/planes.h tc=engine/forms.c
mutant "split: ties to even" $pl 'o->split ? mn_to_upper_half(value) : mn_to_plane(' 'mn_to_plane('
mutant "split: cut off, not rounded" $pl '(uint16_t)((mn_split_bits(value) + 0x8000u) >> 16)' '(uint16_t)(mn_split_bits(value) >> 16)'
mutant "split: the lower half without its sign" $pl '(uint32_t)(int32_t)(int16_t)low' 'low'
mutant "split: a NaN made a number" $pl 'value != value ? 0x7fff0000u : bits' 'bits'
mutant "split: the copy left stale" $tc 'return mn_round(device, &part, 0);' 'return MN_OK;'
mutant "split: to the first elements" $tc '(char *)w->planes[0] + (size_t)first * device->plane' 'w->planes[0]'
mutant "split: floats to the first elements" $tc 'floats : (float *)w->real + first' 'floats : (float *)w->real'
mutant "narrow: from the first elements" kernels/elementwise.c '(const real *)from->real + first' '(const real *)from->real'
mutant "pieces: all of the first values" $tc 'values->from[first + i]' 'values->from[i]'
mutant "pieces: all to the first values" $tc 'values->wide[first + i]' 'values->wide[i]'
mutant "pieces: all downloaded to the first values" $tc 'values->narrow + first' 'values->narrow'
mutant "pieces: all of the first random numbers" $tc 'values->drawn + (uint64_t)first' 'values->drawn'
mutant "weights: stale from the beginning" $tc 'w->stale = !w->split;' 'w->stale = 1;'

# what is read past HDF5, and by several threads
d=data/hdf5/dataset_file.c
mutant "reading: where the rows begin dropped" $d 'offset = a->object.offset + (uint64_t)at' 'offset = (uint64_t)at'
mutant "reading: a double taken for a float" data/hdf5/file.c 'wide > 0 ? sizeof(double) : 0' 'wide > 0 ? sizeof(float) : 0'
mutant "reading: packed reals as they stand" $d '!o->filters && !a->packed ?' '!o->filters ?'
mutant "reading: interruption is an error" data/hdf5/hdf5.c \
  'if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;' 'if (done < 0) return errno;'
mutant "reading: a cut file read as whole" $d 'if (got < (size_t)here * a->direct)' 'if (got > (size_t)here * a->direct)'
mutant "reading: values not checked" $d 'MN_TRY(check_stored(d, a, at, here, to, a->direct));' ''
mutant "missing: all below a limit and a value alike" $d 'side < 0 ? -INFINITY : value - slack' '-INFINITY'
mutant "missing: no value is equal to itself" $d 'value - slack, high' 'value + slack, high'
mutant "missing: unsigned integers as they stand" $d 'values[i] < 0 ? a->wrap : 0' '0'
mutant "reading: column of another row" data/dataset.c '(long long)((at + i) % cols)' '(long long)(i % cols)'
mutant "reading: through HDF5 all the same" $d 'if (a->direct == real) return read_direct(d, a, first, count, out);' ''

# arrays
ar=data/arrays.c
mutant "arrays: values not checked" $ar 'MN_TRY(mn_dataset_check_finite("the arrays", name, at, cols, values, from + at, sizeof *from));' ''
mutant "arrays: where the rows begin dropped" $ar 'memcpy(to, from + at,' 'memcpy(to, from,'
mutant "arrays: labels not checked when they are opened" $ar 'if (d->classes) MN_TRY(mn_labels_check(a.labels' 'if (0) MN_TRY(mn_labels_check(a.labels'
mutant "arrays: labels not checked when they are read" $ar 'MN_TRY(mn_labels_check(a->labels + first, first' 'if (0) MN_TRY(mn_labels_check(a->labels + first, first'
mutant "arrays: as many classes as the last label says" $ar 'if (a.labels[i] >= d->outputs)' 'if (1)'
mutant "arrays: NULL taken" $ar ' || !a.x ||' ' ||'
mutant "prediction: every batch to the first rows" train/evaluate.c 'kept->y + first * cols' 'kept->y'
mutant "prediction: an output beyond a float handed on" train/evaluate.c 'if (mn_find_outside(out, values, sizeof *out, -INFINITY, INFINITY) < 0) return MN_OK;' 'return MN_OK;'
mutant "defaults: no warm-up" train/trainer.c 'steps < 1000 ? steps / 10 : 100' '0'

# chunks of HDF5 files, unpacked without HDF5
c=data/hdf5/chunk.c
mutant "chunks: less than a chunk inflated is enough" $c ' || got != wanted)' ')'
mutant "chunks: any checksum is right" $c 'if (!sum_is_right(*at, size)) return "a checksum is wrong";' ''
mutant "chunks: masks are not looked at" $c 'if (mask >> i & 1) continue;' ''
mutant "chunks: a short one is taken" $c 'return size == c->bytes ? NULL' 'return size <= c->bytes ? NULL'
mutant "chunks: a chunk taken for its neighbour" $c 'if (slot->chunk != number + 1) {' 'if (slot->chunk == 0) {'
mutant "newer: any error of HDF5 is a damaged file" data/hdf5/hdf5.c 'strstr(error->desc, "version") != NULL' '0'
mutant "newer: behind a wrong checksum too" data/hdf5/hdf5.c ' : newer && !strstr(error->desc, "checksum")' ' : newer'
mutant "newer: a newer checkpoint counts as damaged" train/checkpoint/read.c 'reader.damaged && !reader.file.newer' 'reader.damaged'
mutant "disk: any number of bytes is read" data/hdf5/hdf5.c 'size > file->disk->limit' '0'
mutant "child: a crash goes unnoticed" data/hdf5/hdf5.c 'if (WIFEXITED(how) || WTERMSIG(how) == crashes[i]) return 1;' ''

# the order of samples
o=kernels/order.h
mutant "order: eight rounds" $o 'MN_ORDER_ROUNDS = 24,' 'MN_ORDER_ROUNDS = 8,'
mutant "order: a coin of the one, not of both" $o '(uint32_t)(x > other ? x : other) ^ key' '(uint32_t)x ^ key'
mutant "order: the short extent taken for whole" $o 'window < o->hole ? window : window - o->missing' 'window'
mutant "order: all windows alike" $o 'mn_order_mix(mn_order_mix((uint32_t)(window / MN_ORDER_WINDOW_ROWS)) >> 1)' '0 * (uint32_t)window'
mutant "order: extents stay" kernels/order.c 'o->extents = (int32_t)last + 1;' 'o->extents = 0;'
mutant "order: of the seed alone" kernels/order.c '(uint64_t)epoch, words)' '0 * (uint64_t)epoch, words)'
mutant "order: the last extent last" kernels/order.c 'place = mn_shuffle_round(' '(void)mn_shuffle_round('
mutant "numbers: rows between batches too" kernels/order.c 'rows[gap] = -1;' 'rows[gap] = 0;'
mutant "numbers: across the end of an epoch" kernels/order.c 'next = s->offset + i >= s->epochs[0].rows;' 'next = 0;'
mutant "numbers: across the end of a window" kernels/order.c 'least(s->each - within, first + all - sample)' 's->each - within'
mutant "numbers: across the end of a batch" kernels/order.c 'least(s->each - within, first + all - sample)' 'first + all - sample'

# rows on their way to a batch
r=data/read_rows.c
mutant "rows: the first error met" $r '(r->failed < 0 || number < r->failed)' 'r->failed < 0'
mutant "rows: read on after an error" $r '&& r->failed < 0 &&' '&&'
mutant "rows: each task to the range's beginning" $r 'rows, range->at + r->done}' 'rows, range->at}'
mutant "rows: each task from the range's beginning" $r '{range->first + r->done, rows' '{range->first, rows'
mutant "rows: y to another row" $r 'to->y + (size_t)task->at * form->y_row' 'to->y + (size_t)task->first * form->y_row'
mutant "rows: a part rounded" $r 'round_all(x, scratch, task->count * d->inputs' 'round_all(x, scratch, task->count'
mutant "rows: not rounded on the CPU" $r 'out[i] = mn_to_bf16(from[i]);' 'out[i] = from[i];'
mutant "rows: the largest to another row" $r 'to->largest[task->at + i]' 'to->largest[i]'
mutant "rows: a stop not heard" $r '!(r->stop && __atomic_load_n(r->stop, __ATOMIC_ACQUIRE))' '1'
mutant "rows: a rank reads by all cores of its host" $r 'r->form->threads > 0 ? r->form->threads :' ''
mutant "rows: a stop is no error" $r 'r.range < count ? mn_fail(MN_INTERRUPTED, "reading was stopped") : MN_OK' 'MN_OK'
w=data/windows.c
mutant "windows: of another seed" $w 'rows, w->seed, w->reading' 'rows, 0, w->reading'
mutant "windows: shuffled" $w 'w->reading / windows, w->shuffled)' 'w->reading / windows, 1)'
mutant "windows: gaps between extents read too" $w 'ranges[number - 1].count != first)' 'ranges[number - 1].count > first)'
mutant "windows: each extent to the first row" $w '.first = first, .at = at}' '.first = first}'
mutant "windows: the last extent taken for whole" $w 'left < each ? left : each' 'each'
mutant "windows: always of the first epoch" $w 'w->reading / windows, w->shuffled)' '0, w->shuffled)'
mutant "windows: an error ahead of its window" $w 'mn_outcome_tell(&(*window)->outcome)' \
  '((*window)->outcome.status == MN_OK ? sem_wait(&w->ready) + sem_post(&w->ready) : 0, mn_outcome_tell(&w->window[(w->number + ((*window)->outcome.status == MN_OK)) % MN_WINDOWS].outcome))'
mutant "windows: the next is read before this one is gathered" $w 'sem_init(&w->vacant, 0, MN_WINDOWS)' 'sem_init(&w->vacant, 0, MN_WINDOWS + 1)'
mutant "windows: gathered before it is read" $w '      wait_for(&w->ready);' '      (void)0;'
mutant "windows: all into the same memory" $w '&to->rows, &w->stop)' '&w->window[0].rows, &w->stop)'
mutant "windows: closing waits for all reads" $w '&to->rows, &w->stop)' '&to->rows, NULL)'
p=data/placement.c
mutant "places: chosen the other way round" $p '(double)p->bytes <= most ?' '(double)p->bytes > most ?'
mutant "places: y not counted" $p 'p->form.x_row + p->form.y_row + p->form.scaled' 'p->form.x_row + p->form.scaled'
mutant "places: any size chosen" $p ': 0.5 * left;' ': 1e300;'
mutant "places: two kinds of memory on the CPU" $p ' || (place == MN_PLACE_HOST && is_cpu(p))' ''
mutant "places: another for one that was asked for" $p 'if (asked && status == MN_NO_MEMORY)' 'if (0)'
mutant "places: a choice is final" $p 'if (asked && status == MN_NO_MEMORY)' 'if (status == MN_NO_MEMORY)'
mutant "places: every error taken for no room" $p 'if (status != MN_NO_MEMORY) return status;' ''
a=data/loader.c
mutant "loader: rows of a window by their place in the file" $a 'l->samples.window = window->begin;' 'l->samples.window = -1;'
mutant "loader: starts at the window's beginning" $w '  w->reading = w->received = w->number;' '  w->reading = w->received = w->number, w->at = 0;'
mutant "loader: one buffer" $a 'l->next = (buffer + 1) %' 'l->next = 0 %'
mutant "loader: each window to the buffer's first row" $a 'g.of[0].to = x + (size_t)begin * form->x_row;' 'g.of[0].to = x;'
mutant "loader: part of a batch with the first targets" $a 'part.y = (char *)part.y + (size_t)at * l->y_row;' ''
mutant "loader: both epochs of a filling alike" $a 'l->seed, epoch + i, l->shuffled' 'l->seed, epoch, l->shuffled'
mutant "loader: one factor for all batches of a filling" $a 'part.x.scale += number;' '(void)0;'
mutant "loader: planes of the filling's first batch" $a '(size_t)(at * part.x.cols) * l->device->plane' '0'
mutant "loader: the largest of all fillings" $a 'if (s->scales && first == 0)' 'if (0)'
mutant "loader: the largest of the last row" kernels/order.c 'mn_scale_larger(s->scales[batch].largest, s->largest[row])' 's->largest[row]'
mutant "loader: the largest of own rows" kernels/order.c '!s->scales && (within + count <= s->first' '(within + count <= s->first'
mutant "loader: planes under the first window's largest" $a 'apart = l->apart && window->count - w->at < samples;' 'apart = 0;'
mutant "loader: planes, though reals were asked for" $a 'form.scaled && !config->reals)' 'form.scaled)'
g=kernels/memory.c
mutant "gather: rows as they stand" $g '(size_t)(g->rows ? g->rows[i] : i) * apart' '(size_t)i * apart'
mutant "gather: one factor for all batches" $g '(g->scales[i / g->batch].largest' '(g->scales[0].largest'
mutant "gather: x alone" $g 'k < 2' 'k < 1'

# the training loop, evaluation
t=train/trainer.c
r=train/retry.c
mutant "trainer: the rate of the step after" $t '(&t->schedule, run->step + i)' '(&t->schedule, run->step + i + 1)'
mutant "trainer: losses pile up" $t 't->sum = 0;' ''
mutant "trainer: sum of losses, not mean" $t 't->sum / t->optimizer->config.accumulate' 't->sum'
mutant "trainer: the first batch without a mark" train/launch.h '+ (int)batch + 1;' '+ (int)batch;'
mutant "trainer: divergence not looked for" $r 'if (!t->model->device->scaled) return give_up(l, batch);' 'return MN_OK;'
mutant "trainer: an overflow is a divergence" $r 'if (!t->model->device->scaled) return give_up(l, batch);' 'return give_up(l, batch);'
mutant "retake: the flag stays" $r 'return mn_tape_clear_nonfinite(t->pass->tape);' 'return MN_OK;'
mutant "retake: weights under their old factors" $r 'MN_TRY(mn_model_measure(t->model));' ''
mutant "retake: dz under its old factor" $r '  tape->measure = 1;' ''
mutant "retake: never a divergence" $r 'if (raised) return give_up(l, batch);' ''
mutant "retake: the factors of a divergence stay" $r '  MN_TRY(forget_factors(t));
  mn_pass_explain' '  mn_pass_explain'
mutant "retake: not counted" $r 't->retaken++;' ''
mutant "trainer: a resumed run measures" $r 'measure = device->scaled && !known;' 'measure = device->scaled;'
mutant "trainer: a new run does not measure" $r 'measure = device->scaled && !known;' 'measure = 0;'
mutant "trainer: no factor is one too" $r 'known = dz.factor != 0;' ''
mutant "trainer: divergence found in the step before" $r '(long)t->progress.step + 1, mn' '(long)t->progress.step, mn'
mutant "trainer: goes on when told to stop" $t 'if (run->tell && run->tell(run->to, t)) run->stop = 1;' 'if (run->tell) run->tell(run->to, t);'
mutant "trainer: every batch counted as a step" $t 'if (!l->updates) continue;' ''
mutant "trainer: an update after every batch" $t 'l->updates = run->batch + 1 == t->optimizer->config.accumulate;' 'l->updates = 1;'
mutant "trainer: resumes at the first sample" $t '.position = t->progress.step * samples_a_step(t),' ''
mutant "skip: the sums of its first batches stay" $r '(lower_flag(t, run));
  MN_TRY(mn_optimizer_reset(t->optimizer));' '(lower_flag(t, run));'
mutant "skip: the factors of its last batches stay" $r '  MN_TRY(forget_factors(t));
  t->pass' '  t->pass'
mutant "skip: the next batch does not measure" $r 'measure = t->model->device->scaled;' 'measure = 0;'
mutant "skip: of each batch that is not finite" $t '== mn_launch_mark(l, i) && !t->skipping)' '== mn_launch_mark(l, i))'
mutant "skip: the flag stays" $t '    if (t->skipping) MN_TRY(mn_retry_skip(l, i, run));' ''
mutant "skip: one too many in a row" $r 'skipped < MN_SKIPPED_MOST - 1;' 'skipped < MN_SKIPPED_MOST;'
mutant "skip: all of the run count as in a row" $t 't->skipping ? p->skipped_running + 1 : 0;' 'p->skipped_running + t->skipping;'
mutant "skip: a parameter that is not finite is skipped for" $r '&& !t->fault.parameter &&' '&&'
mutant "skip: its norm is told" $t 't->skipping || !clips ?' '!clips ?'
e=train/evaluate.c
mutant "evaluation: the row of a value counts from its batch" $e 'e->fault.row += g->first;' ';'
mutant "evaluation: the last batch that is not finite is told of" $e 'e->faults++ == 0)' '++e->faults)'
mutant "evaluation: the loss of the finite rows alone" $e '*loss = e->faults ? NAN :' '*loss ='
mutant "prediction: outputs that are not finite are handed on" $e 'if (mn_find_outside(e->y' 'if (0 && mn_find_outside(e->y'
mutant "evaluation: the outputs of the batch after are scored" $e 'e->take ? 1 :' 'e->take ? 2 :'
mutant "auto: a run that began on a GPU" train/command/session.c '(!began || strcmp(began, "CPU") == 0)' '1'
mutant "auto: long runs, too" train/command/session.c 'cpu < 1 &&' 'cpu < 1e9 &&'
mutant "auto: wide runs, too" train/command/session.c 'parameters * 4e-11' '0 * parameters'
mutant "evaluation: a constant target has an R2" train/command/apply.c 's->spread[k] > 0 ?' '1 ?'
mutant "prediction: rows are counted within the part" train/command/apply.c 'rows[n] = mn_dataset_row(o->rows, first + n);' 'rows[n] = first + n;'
mutant "evaluation: the last batch weighs as the others" $e '(double)g->pass->batch;' '(double)e->batch;'
mutant "evaluation: one batch's result for both" $e 'results[g - e->given];' 'results[0];'
mutant "evaluation: the last full batch taken for the rest" $e 'e->first + e->batch <= e->dataset->rows' \
  'e->first + e->batch < e->dataset->rows'
mutant "evaluation: planes as training left them" $e 'training ? 0 : MN_MEASURE_TOGETHER' '0'
mutant "evaluation: training goes on under its factors" $e 'MN_TRY(mn_copy(device, to, from, sizeof *e->kept));' ''

# saving beside training, and when
s=train/runs/saver.c
mutant "saver: the copies not waited for" $s \
  'return saver->copy ? mn_branch_fork(saver->device, MN_BRANCH_SAVES) : MN_OK;' 'return MN_OK;'
mutant "saver: a failed save counts" $s 'saver->outcome.status == MN_OK && ' ''
mutant "saver: no room for a copy is an error" $s 'return status == MN_NO_MEMORY ? MN_OK : status;' 'return status;'
mutant "saver: moments without an optimizer" $s 'optimizer && k < MN_CHECKPOINT_ARRAYS' 'k < MN_CHECKPOINT_ARRAYS'
mutant "saver: copies over one another" $s 'saver->copy_bytes += (array' 'saver->copy_bytes = (array'
mutant "saver: no factors" $s '!saver->checkpoint->alone' '0'
mutant "saver: dz's factor before it is chosen" $s 'mn_scale_next(&scales[1])' 'scales[1].factor'
q=train/checkpoint/restore.c
mutant "restore: planes under a factor of their own" $q 'saved->factor == 0 ? MN_MEASURE_TOGETHER : 0' '1'
mutant "restore: no factor for dz" $q '{(float)saved->gradient_factor, 0}' '{0, 0}'

# weights from a file
w=train/checkpoint/read.c
mutant "file of weights: what is left over is no matter" train/checkpoint/misfits.c 'fprintf(t->misfits, "; %s is left over, %s", name, has);' ''
mutant "file of weights: rows are not compared" train/checkpoint/misfits.c 'memcmp(found->shape, fit.shape, shape)' 'memcmp(found->shape + fit.rank - 1, fit.shape + fit.rank - 1, sizeof fit.shape[0])'
mutant "file of weights: values that are not finite are taken" $w 'if (!reader->weights) return MN_OK;' 'return MN_OK;'
mutant "file of weights: the seed's weights all the same" train/command/session.c 'if (o->init) return mn_snapshot' 'if (0) return mn_snapshot'

# what a program hands in, and a model without its training
mutant "labels: one too many is taken" data/dataset.c 'labels[i] >= classes' 'labels[i] > classes'
mutant "labels: those of a program's own rows are taken" data/read_rows.c 'if (d->classes && y)' 'if (0 && d->classes && y)'
mutant "labels: looked up wherever they lead" kernels/loss.c 'labels[n] >= 0 && labels[n] < cols' '1'
mutant "model: saved over a training" train/checkpoint/model_file.c 'MN_OK && there->alone' 'MN_OK'
mutant "model: saved over what appeared" train/checkpoint/model_file.c 'mn_atomic_file_publish(&file, replace)' 'mn_atomic_file_publish(&file, 1)'
mutant "model: a limit on files ends the program" train/checkpoint/write.c '(SIG_BLOCK, &limit, &before)' '(SIG_UNBLOCK, &limit, &before)'
mutant "model: read as a checkpoint" train/checkpoint/read.c 'alone = count == 2;' 'alone = 0;'

h=engine/thread.c
mutant "threads: signals come to each" $h 'sigfillset(&others)' 'sigemptyset(&others)'
mutant "threads: the first thread stays blocked" $h 'pthread_sigmask(SIG_SETMASK, &before, NULL)' \
  'pthread_sigmask(SIG_SETMASK, &others, NULL)'
mutant "threads: stacks that no one keeps" $h 'pthread_create(out, &attributes, run, data)' 'pthread_create(out, NULL, run, data)'
mutant "threads: an error without its words" $h 'mn_fail(outcome->status, "%s", outcome->message)' 'outcome->status'
w=train/command/watchdog.c
mutant "signals: no crash in a thread" $h 'sigdelset(&others, crashes[i])' '(void)crashes'
mutant "signals: the second is noted too" $w 'signal(number, SIG_DFL);' ''
mutant "signals: nohup has no effect" $w 'before.sa_handler != SIG_IGN' '1'
mutant "signals: a step that never ends" $w 'if (!patient) end_by_signal(number);' ''
mutant "signals: a checkpoint unseen" $w '(now.checkpoint && access(now.checkpoint, R_OK) == 0);' '0;'
a=train/checkpoint/atomic_file.c
k=train/runs/keep.c
mutant "publish: the old one is moved, not linked" $k '(i == 0 ? link : mn_atomic_file_rename_new)(from, to)' 'mn_atomic_file_rename_new(from, to)'
mutant "publish: nothing is taken back" $k '    if (status != MN_OK && moves) undo(file.path);' ''
mutant "publish: one more is kept" $k 'last < keep - 1' 'last < keep'
mutant "publish: the folder is not synced" $a '== 0)
    return mn_atomic_file_sync_folder(file->path);' '== 0)
    return MN_OK;'
mutant "publish: over one that appeared" $a '(fresh ? mn_atomic_file_rename_new : rename)' '(rename)'
mutant "answers: one that broke off is printed" train/json.c 'if (status == MN_OK) fputs(json->text, out);' 'fputs(json->text, out);'
mutant "answers: plain texts as they are" train/json.c 'text += mn_escape_next(next, text);' 'text += snprintf(next, 2, "%c", *text);'
mutant "answers: a write that failed" train/json.c '(fflush(out) == 0 && !ferror(out))' '1'
mutant "answers: a key without its comma" train/json.c 'fputs(form == JSON ? "," : ", ", json->out);' 'fputs(form == JSON ? " " : ", ", json->out);'
mutant "answers: extremes left out" train/command/info.c 'i < SHOWN || i == least || i == largest' 'i < SHOWN'
mutant "plot: points of evaluations that break off" train/command/plot.c 'if (fseeko(tests, 0, SEEK_SET) != 0) return no_room();' 'rewind(tests);'
mutant "plot: a picture that breaks off" train/command/plot.c 'if (error) return mn_atomic_file_fail("write", path, error);' ''
c=train/command/train.c
v=train/command/saves.c
mutant "signals: no save is asked for" $v 'if (mn_watchdog_wants_save()) return 1;' ''
mutant "pauses: an epoch ends a step late" train/trainer.c '((step * each / rows + 1) * rows - 1) / each + 1;' \
  '(step * each / rows + 1) * rows / each + 1;'
mutant "pauses: evaluates at every pause" $c 'if (r->evaluator && (epoch_ended(t) ? !t->tests : last))' 'if (r->evaluator)'
mutant "pauses: a save that falls due meanwhile is lost" $v 'falls_due(s)) s->due = 1;' 'falls_due(s)) s->due = !mn_saver_busy(s->saver);'
mutant "pauses: a save that waits does not pause the run" $v 'return (s->due || (any_step' 'return ((any_step'
mutant "pauses: the end not saved" $v 'int saved = s->snapshot == s->progress->step;' 'int saved = 1;'
mutant "pauses: saves one step late" $c '(p->step / every + 1) * every :' '(p->step / every + 1) * every + 1 :'
mutant "saves: the last is not tried again" $v 'tries == 2' 'tries == 1'
mutant "saves: the newest is not looked for" train/command/saves.c 's->snapshot = there ? progress->step' 's->snapshot = session->from ? progress->step'
mutant "resumed: another place" train/command/options_list.h '"place", NULL, RUNS, KEPT' '"place", NULL, RUNS, 0'
mutant "options: no hint" train/command/options_parse.c 'if (slips < least && 2 * (size_t)slips < length) best = name, least = slips;' ''
mutant "saves: one that failed is forgotten" $c 'if (r->saves.failure.status == MN_OK) return drawn;' 'return drawn;'
mutant "disk: a full one is not refused" $c 'if (!(disk.checkpoint > disk.available))' 'if (1)'
mutant "saves: of an earlier process none is known" train/command/saves.c 'if (saved < s->told) saved = s->told;' ''
mutant "saves: of this process none is known" train/command/saves.c '(void)mn_saver_poll(s->saver, &saved);' 'saved = -1;'
mutant "disk: a limit on files is not asked for" $c 'disk.checkpoint > (double)size.rlim_cur' '0'
u=train/checkpoint/sums.c
mutant "sums: any digits are right" $u 'if (line && memcmp(line, digits, DIGITS) == 0)' 'if (line)'
mutant "sums: a list that is cut" $u ' && list.element < sizeof list.text' ''
mutant "sums: an empty list is none" $u 'if (list.kind == MN_VALUE_NONE ||' 'if (!sums->text[0] ||'
mutant "sums: what is gone is not missed" train/checkpoint/read.c 'if (sums->met == sums->lines) return MN_OK;' 'return MN_OK;'
mutant "newest: damaged when found so once" train/runs/newest.c 'if (status == MN_BAD_DATA && *damaged)' 'if (0)'
mutant "newest: not seen is not there" train/runs/newest.c 'MN_TRY(mn_atomic_file_exists(name, &there));' '(void)mn_atomic_file_exists(name, &there);'
mutant "shown: a step's loss for its epoch's" $c 'r->since.steps > 0 ?' 'r->since.steps < 0 ?'
mutant "shown: an epoch told before its test" $c 'if (!r->evaluator && epoch_ended(t) &&' 'if (epoch_ended(t) &&'
mutant "shown: every epoch of many" $c 'fmax(ceil(epochs / most), 1)' '1'
mutant "shown: a note wider than its terminal" train/command/announce.c '*line == '"' '"' && column + width > columns' '0'
mutant "shown: as many decimals for every number" train/command/announce.c 'digits - 1 > exponent ? digits - 1 - exponent : 0' 'digits - 1'
mutant "shown: a bar wider than its terminal" train/command/announce.c 'bar.terminal ? mn_show_columns(STDERR_FILENO) - 1' 'bar.terminal ? mn_show_columns(STDERR_FILENO) + 1'
mutant "shown: a line a second in a pipe" train/command/announce.c 'plain_interval = 10;' 'plain_interval = 1;'
mutant "plot: names in another order than the curves" train/command/plot.gp 'end[i] > end[top]' 'end[i] < end[top]'
mutant "advice: a chunk too many to a row" train/command/info.c '(o->shape[1] - 1) / o->chunk[1]' 'o->shape[1] / o->chunk[1]'
mutant "advice: doubles taken for floats" train/command/info.c 'o->native != sizeof(float)' 'o->native == 0'
mutant "advice: for small data too" train/command/info.c 'o->bytes < WORTH_IT)' '0)'
mutant "log: a resumed run keeps the end" train/command/log.c '&& !is_event(line, "end") &&' '&&'
mutant "log: changes of a run that is not gone on from" train/command/log.c '? step < resumed : step <= resumed' '? step <= resumed : step <= resumed'
mutant "log: lines go on after one is missing" train/command/log.c 'if (!log->file || log->error) return 0;' 'if (!log->file) return 0;'
mutant "log: an end behind the run stays" train/command/log.c 'if (log->ended) log->error = cut(log);' ''
mutant "log: a line half written stays" train/command/log.c '(void)cut(log);' ''
mutant "log: a finished run ends again" train/command/log.c 'if (log->ended || !begin_line(log, "end", t->progress.step)) return;' 'if (!begin_line(log, "end", t->progress.step)) return;'
u=train/command/resume.c
mutant "resumed: other rows unseen" $u '  if (then && !same && !named)' '  if (0)'
mutant "resumed: rows that were known are forgotten" $u 'if (same && strlen(then) > strlen(s->fingerprint))' 'if (0)'
mutant "resumed: another model's options" $u 'if (!(row->flags & MN_OPTION_COURSE))' 'if (0)'
mutant "resumed: no word of a change" $u 'return kept + s->changes;' 'return kept;'
mutant "resumed: the epochs of the rows before" train/command/session.c 'p->epoch = p->samples / p->rows;' ''
f=data/fingerprint.c
mutant "fingerprint: rows in any order" $f '{(uint64_t)first, hash_bytes' '{0, hash_bytes'
mutant "fingerprint: targets are no matter" $f 's->y ? hash_bytes' '0 ? hash_bytes'
mutant "fingerprint: names are no matter" $f '{d->x_name, d->y_name,' '{NULL, NULL,'
mutant "fingerprint: the first rows for a sample" $f 'i * (d->rows / count) + i * (d->rows % count) / count' 'i'
mutant "fingerprint: a sample is as good as all" $f 'f->rows = whole ? describe(d, f->rows) : 0;' 'f->rows = 0;'
mutant "files: too few to try a file out" data/hdf5/hdf5.c '  close(STDERR_FILENO);' ''
o=train/runs/folder.c
mutant "folder: links are followed" $o 'S_ISLNK(about.st_mode)' '0'
mutant "folder: another's files do not matter" $o '  if (*s.other)' '  if (0)'
mutant "folder: a new run takes an old one's" $o 'if (resume || (' 'if (1 || ('
mutant "folder: a command removes what is another's" $o 'is_plain(run) ? ": rm -r "' '1 ? ": rm -r "'
mutant "folder: a log that was not saved is in the way" $o '"log.unsaved-", 12) == 0' '"log.unsaved-", 12) == 1'
mutant "folder: two share it" train/runs/lock.c 'errno == EWOULDBLOCK' '0'
mutant "folder: its lock stays" train/runs/lock.c 'if (lock->empty) unlink(lock->path);' ''
mutant "folder: an older best stands elsewhere" $o '(int)(basename(path) - path)' '0'
mutant "log: of another program" train/command/log.c '!is_event(line, "start")' '0'
mutant "shown: controls as they are" kernels/status.c 'if (first < '"' '"' ||' 'if (0 ||'

# the rows that are held out, and the best
v=data/held_out.c
mutant "held out: both parts are one" $v 'held, part == MN_PART_TEST);' 'held, 1);'
mutant "held out: the last rows are in no part" $v 'row < rows; row++' 'row < rows - 1; row++'
mutant "held out: by the first epoch's order" $v 'INT64_MAX / whole->rows - 1, 1)' '0, 1)'
mutant "held out: a stretch is read from its start" $v 's->first + within, here' 's->first, here'
mutant "standardised: the mean stays" data/read_rows.c '(mn_real_at(from, had, c) - s->mean[c])' 'mn_real_at(from, had, c)'
mutant "standardised: pieces are taken around their own means alone" data/columns.c 'c->deviation[i] += apart * apart * had * ((double)count / all);' ''
mutant "standardised: an evaluation takes rows as they are" $e '.standard = e->model->standard' '.standard = NULL'
mutant "standardised: a checkpoint's numbers are not taken up" train/checkpoint/restore.c 'if (!s[0].value || (side' 'if (1 || (side'
mutant "standardised: outputs stay as they are" $e 'if (s->mean) undo(s, device->real, e->y,' 'if (0) undo(s, device->real, e->y,'
mutant "standardised: the loss is of standardised targets" $e '(unit > 0 ? unit : 1)' '1'
mutant "standardised: a single column of another scale is of one unit" data/columns.c '(low == c->cols || high == c->cols) &&' ''
mutant "held out: another seed than the run's" train/command/session.c 'mn_dataset_hold_out(&s->test, part, o->validation, s->from->progress.seed, 1)' \
  'mn_dataset_hold_out(&s->test, part, o->validation, 0, 1)'
mutant "held out: any file of as many rows" train/command/session.c '*same = mn_fingerprint_same(then, now);' '*same = 1;'
mutant "held out: a rare class is left to chance" data/held_out.c '    lend(strata, count);' ''
mutant "standardised: squares that vanish" data/columns.c 'ldexp(1, exponent < -1000 ? 1000 : -exponent)' '1'
mutant "spelled: blanks pad every text" data/hdf5/file.c 'if (padding == H5T_STR_NULLTERM) return strnlen(text, size);' "padding = H5T_STR_SPACEPAD;"
mutant "spelled: bools are no numbers" data/hdf5/dataset_file.c 'mn_class_find(names, words[i ^ 1]) : i / 2' '-1 : -1'
mutant "spelled: integers are indices of words" train/command/session.c '(!s->class_names.count && !(*out)->class_names)' '!(*out)->class_names'
mutant "best: of epochs' ends alone" $c '*better = metric > p->best;' '*better = epoch_ended(r->trainer) && metric > p->best;'
mutant "words: in the order in which they come" data/class_names.c 'return strcmp(a, b);' 'return strcmp(b, a);'
mutant "words: numbered anew in each file" train/command/session.c 'return mn_dataset_name_classes(*out, &s->class_names,' 'return MN_OK, mn_dataset_name_classes(NULL, &s->class_names,'
mutant "words: a text at the limit is cut" data/hdf5/words.c 'length >= MN_CLASS_NAME)' 'length > MN_CLASS_NAME)'
mutant "integers: any number of classes" train/command/session.c 'd->outputs <= d->rows / SHARE)' '1)'
mutant "held out: the remainders are lost" $v 'c < held; c++) strata[c].held++;' 'c < 0; c++) strata[c].held++;'
mutant "held out: an old run's rows as a new one's" train/command/session.c 'single ? MN_VALIDATION_DRAW : MN_ORDER_NAME' '"seed"'
mutant "order: an old run goes on within an epoch" train/checkpoint/restore.c 'old && progress->position > 0' '0'
mutant "best: as good is better" $c '*better = metric > p->best' '*better = metric >= p->best'
mutant "best: patience of one more epoch" $c 'p->best_epoch >= patience' 'p->best_epoch > patience'
mutant "best: never kept" $c 'better && r->session.options.best' '0'
h=engine/ranks/hosts.c
mutant "cores: who is bound elsewhere has a part" $h 'sharers += CPU_EQUAL(&sets[q], &sets[rank]) != 0' 'sharers++'
mutant "cores: no thread for one rank too many" $h 'cores < sharers ? 1 :' '0 ? 1 :'
mutant "cores: unknown ones are one" $h 'cores > 0 &&' ''

[ -n "${TEXTS:-}" ] || echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
