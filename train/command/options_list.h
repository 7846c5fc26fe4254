/* Every option, once: its field in struct mn_options, its name, the commands that take it, its bounds, its
 * default as the user would write it, and its help. A new option needs a line here, and one in the manual.
 *
 * OPTION(kind, field, name, argument, commands, flags, low, high, initial, help, more…): of kind MN_KIND_…;
 * the rest as in struct mn_option_row. HEADING(help, argument): of a section of --help. options.h and
 * options_table.c include this list, each with macros of its own. */
HEADING("Rows", "--data rows.h5 --validation 0.1")
OPTION(TEXT, data, "data", "F", RUNS, COURSE, 0, 0, NULL,
       "CSV file with a line of names; or HDF5 with x [n, I] and y, or train/ and test/ of them",
       .required = READS, .excludes = "synthetic")
OPTION(TEXT, x_name, "x", "NAME", RUNS, COURSE, 0, 0, "x", "dataset of the inputs", .needs = "data")
OPTION(TEXT, y_name, "y", "NAME,...", RUNS, COURSE, 0, 0, "y",
       "dataset of the targets or labels, or several of targets", .needs = "data")
OPTION(
    TEXT, weights, "weights", "NAME", TRAIN | EVAL, COURSE, 0, 0, NULL,
    "dataset of a number from 0 on for each row, or of a CSV a column: by it the row's loss is multiplied, "
    "and its part in the scores",
    .needs = "data")
OPTION(
    TEXT, class_weight, "class-weight", "balanced|W,W...", TRAIN, COURSE, 0, 0, NULL,
    "factors of the losses of rows to train on by their classes, in the classes' order; balanced: by which "
    "each class counts the same",
    .needs = "data")
OPTION(TEXT, target, "target", "NAME,...", TRAIN, KEPT, 0, 0, NULL,
       "of a CSV: the column of the targets, or several of numbers; by default the last", .needs = "data")
OPTION(TEXT, drop, "drop", "NAME,...", TRAIN, KEPT, 0, 0, NULL, "of a CSV: columns to leave out",
       .needs = "data")
OPTION(TEXT, use, "use", "NAME,...", TRAIN, KEPT, 0, 0, NULL,
       "of a CSV: columns to take that would be left out, as those of more than 100 words are",
       .needs = "data")
OPTION(INTEGER, header, "header", NULL, RUNS, KEPT, 0, 0, "auto",
       "of a CSV: whether its first line has the names of columns; auto: as it looks", .automatic = RUNS,
       .auto_value = -1, .words = no_or_yes)
OPTION(
    REAL, validation, "validation", "F", TRAIN, CONFIG | BELOW, 0, 1, "0",
    "of --data without a test part, the share of rows, of each class alike, that is held out for evaluation",
    .needs = "data")
OPTION(INTEGER, standardize, "standardize", NULL, TRAIN, CONFIG, 0, 0, "auto",
       "from x subtract its mean over the rows to train on, and divide by " TEXT_OF(
           MN_X_DEVIATIONS) " deviations: of each column, or one of all; real targets too, and outputs are "
                            "in their own units again; auto: with --data, by column "
                            "or, where all columns have one unit, by one; alone: columns",
       .automatic = TRAIN, .auto_value = -1, .words = standards, .alone = "columns")
OPTION(
    INTEGER, y_scale, "y-scale", NULL, TRAIN, CONFIG, 0, 0, "linear",
    "log: learn the logarithm of targets above 0 that span powers of ten; outputs are in their units again",
    .words = linear_or_log, .needs = "data")
OPTION(INTEGER, part, "part", NULL, READS, 0, 0, 0, "auto",
       "which rows: the test part's, the train part's, or all of --x, a name from the file's root on; a run "
       "with --validation has parts of its own; auto: the test part's if there is one, else all",
       .words = parts)
OPTION(INTEGER, place, "place", NULL, TRAIN | EVAL, KEPT, 0, 0, "auto",
       "where the rows wait: in the device's memory, in host memory, or in the file; auto: the first that "
       "has room",
       .words = mn_place_words)
HEADING("Random rows", "--synthetic 4096 --in 64 --hidden 64")
OPTION(INTEGER, synthetic, "synthetic", "n", TRAIN, CONFIG, 1, LARGEST, NULL,
       "n rows of a random teacher instead of --data", .excludes = "data", .needs = "in")
OPTION(REAL, noise, "noise", "S", TRAIN, CONFIG, 0, 0, "0.1",
       "standard deviation of the synthetic targets' noise", .needs = "synthetic")
OPTION(INTEGER, test_rows, "test-rows", "n", TRAIN, CONFIG, 0, LARGEST, "auto",
       "synthetic rows held out for evaluation, 0: none; auto: a tenth of --synthetic", .automatic = TRAIN,
       .auto_value = -1, .needs = "synthetic")
HEADING("Model", "--hidden 256,128 --groups 16")
OPTION(INTEGER, in, "in", "I", TRAIN | GRADCHECK | BENCH, CONFIG, 1, WIDEST, "auto",
       "inputs, with --synthetic", .automatic = TRAIN | BENCH, .needs = "synthetic")
OPTION(LIST, hidden, "hidden", "C,C...", TRAIN | GRADCHECK | BENCH, CONFIG, 1, WIDEST, "128",
       "channels of each block, such as 128,128", .automatic = BENCH)
OPTION(INTEGER, groups, "groups", "G", RUNS | GRADCHECK | BENCH, CONFIG, 1, WIDEST, "auto",
       "groups of each block; has to divide every --hidden; auto: at most 8, of at least 4 channels each",
       .automatic = TRAIN | READS | BENCH)
OPTION(INTEGER, head, "head", "K", TRAIN | GRADCHECK | BENCH, CONFIG, 0, WIDEST, "auto",
       "outputs of a linear head, 0: none; auto: the largest label + 1, or the targets' width where the last "
       "block has another",
       .automatic = TRAIN, .auto_value = -1)
OPTION(REAL, eps, "eps", "E", RUNS | GRADCHECK, CONFIG | ABOVE, 0, 0, "1e-5", "added to the variance")
OPTION(REAL, slope, "slope", "S", RUNS | GRADCHECK, CONFIG, 0, 0, "0.01", "of the leaky ReLU below 0")
OPTION(INTEGER, loss, "loss", NULL, RUNS | GRADCHECK | BENCH, COURSE, 0, 0, "auto",
       "loss; auto: what the targets are for, reals mse and labels cross-entropy",
       .automatic = RUNS | GRADCHECK, .auto_value = -1, .words = mn_loss_words)
OPTION(INTEGER, plan, "plan", NULL, TRAIN | GRADCHECK, CONFIG, 0, 0, "stack", "which operations are fused",
       .words = mn_plan_words)
HEADING("How long", "--epochs 30 --patience 5")
OPTION(INTEGER, epochs, "epochs", "N", TRAIN, COURSE, 1, LARGEST, "auto",
       "passes over the rows: the horizon of the schedule; auto: " TEXT_OF(
           MN_EPOCHS) ", and as many more as "
                      "make " TEXT_OF(MN_LEAST_STEPS) " steps",
       .automatic = TRAIN, .auto_value = -1, .excludes = "steps")
OPTION(INTEGER, steps, "steps", "N", TRAIN, COURSE, 1, LARGEST, NULL, "optimizer steps, instead of --epochs",
       .excludes = "epochs")
OPTION(INTEGER, stop_at, "stop-at", "S", TRAIN, 0, 1, LARGEST, NULL,
       "end early, after step S, to be resumed; the horizon stays")
OPTION(INTEGER, patience, "patience", "N", TRAIN, COURSE, 0, LARGEST, "0",
       "end after N epochs in a row without a better test metric, 0: never")
OPTION(INTEGER, metric, "metric", NULL, TRAIN, COURSE, 0, 0, "auto",
       "of the test rows, told for each epoch, for --best and --patience; auto: the accuracy of classes, the "
       "loss of numbers",
       .automatic = TRAIN, .auto_value = -1, .words = mn_metric_words)
OPTION(FLAG, tune, "tune", NULL, TRAIN, CONFIG, 0, 0, NULL,
       "choose the steps, --clip and --weight-decay that no option names by their loss on held-out folds of "
       "the rows to train on; then train on all of these")
OPTION(INTEGER, folds, "folds", "K", TRAIN, CONFIG, 2, MN_FOLDS_MOST, "auto",
       "say how well K trainings do, each on all rows to train on but a K-th, by which it is tested; auto: 3 "
       "with --tune, else none",
       .automatic = TRAIN)
OPTION(FLAG, dry_run, "dry-run", NULL, TRAIN, 0, 0, 0, NULL,
       "open all that the run needs, say what it takes, and train nothing")
HEADING("Training", "--batch 256 --lr 0.003 --weight-decay 0.01")
OPTION(INTEGER, batch, "batch", "N", TRAIN | GRADCHECK | BENCH, CONFIG, 1, LARGEST, TEXT_OF(MN_BATCH),
       "rows a batch; by default " TEXT_OF(MN_BATCH_SMALL) " if a file has less than " TEXT_OF(
           MN_SMALL_ROWS) " to train on, and all of fewer")
OPTION(INTEGER, optimizer, "optimizer", NULL, TRAIN | BENCH, CONFIG, 0, 0, "adamw",
       "update rule of every parameter, PyTorch's; adamw with --weight-decay 0 is Adam",
       .words = mn_optimizer_words)
OPTION(REAL, lr, "lr", "RATE", TRAIN, COURSE | ABOVE, 0, 0, TEXT_OF(MN_RATE_ADAMW),
       "learning rate; of sgd by default " TEXT_OF(MN_RATE_SGD))
OPTION(REAL, momentum, "momentum", "M", TRAIN | BENCH, COURSE | BELOW, 0, 1, "0.9",
       "of sgd, which it implies")
OPTION(REAL, weight_decay, "weight-decay", "D", TRAIN | BENCH, COURSE, 0, 0, "auto",
       "on every parameter; decoupled from the gradient with adamw; auto: with adamw " TEXT_OF(
           MN_DECAY_STEPS) " / steps, at most that of " TEXT_OF(MN_LEAST_STEPS) " steps, else 0",
       .automatic = TRAIN, .auto_value = -1)
OPTION(FLAG, nesterov, "nesterov", NULL, TRAIN, COURSE, 0, 0, NULL,
       "Nesterov's momentum, of sgd, which it implies")
OPTION(REAL, beta1, "beta1", "B", TRAIN, COURSE | BELOW, 0, 1, "0.9",
       "of adamw: decay of the mean of gradients")
OPTION(REAL, beta2, "beta2", "B", TRAIN, COURSE | BELOW, 0, 1, "0.98",
       "of adamw: decay of the mean of squared gradients")
OPTION(REAL, adam_eps, "adam-eps", "E", TRAIN, COURSE | ABOVE, 0, 0, "1e-8",
       "of adamw: added to the root of the mean of squares")
OPTION(REAL, clip, "clip", "NORM", TRAIN, COURSE, 0, 0, "auto",
       "largest norm of the whole gradient, 0: no clipping; auto: 0, or what --tune chooses",
       .automatic = TRAIN, .auto_value = -1)
OPTION(INTEGER, accumulate, "accumulate", "N", TRAIN, CONFIG, 1, 1e6, "1", "batches an optimizer step")
OPTION(INTEGER, on_nonfinite, "on-nonfinite", NULL, TRAIN, COURSE, 0, 0, "stop",
       "end at a step in which a value is not finite, or skip that step: it updates nothing; the tenth such "
       "step in a row ends the run in any case",
       .words = mn_nonfinite_words)
OPTION(SEED, seed, "seed", "N", TRAIN | GRADCHECK | BENCH, CONFIG, 0, 0, "0", "of everything random")
HEADING("Schedule of the learning rate", "--schedule step --step-every 1000")
OPTION(INTEGER, schedule, "schedule", NULL, TRAIN, COURSE, 0, 0, "cosine",
       "of the learning rate; that of sgd is constant by default", .words = mn_schedule_words)
OPTION(INTEGER, step_every, "step-every", "N", TRAIN, COURSE, 1, LARGEST, "auto",
       "steps between the drops of --schedule step; auto: a third of the horizon", .automatic = TRAIN)
OPTION(REAL, step_factor, "step-factor", "F", TRAIN, COURSE | ABOVE, 0, 1, "0.1",
       "what each drop multiplies the rate by")
OPTION(INTEGER, warmup, "warmup", "N", TRAIN, COURSE, 0, LARGEST, "auto",
       "steps of linear warm-up; auto: 100, but at most a tenth of all", .automatic = TRAIN, .auto_value = -1)
HEADING("Device", "--device cuda:1 --precision bf16")
OPTION(TEXT, device, "device", "auto|cpu|cuda|cuda:N", RUNS | CHECKS, 0, 0, 0, "auto",
       "auto: the GPU where there is one; for short runs of train, eval and predict the CPU")
OPTION(INTEGER, threads, "threads", "N", RUNS | CHECKS, KEPT, 1, 1024, "auto",
       "that the CPU computes with; auto: OMP_NUM_THREADS, or all cores; of these a quarter, or one, for "
       "small products",
       .automatic = RUNS | CHECKS)
OPTION(INTEGER, precision, "precision", NULL, RUNS | PARITY | BENCH, CONFIG, 0, 0, "fp32",
       "of the matrix products' inputs; on the CPU tf32 and fp16x3 run as fp32, fp16x3 also on GPUs other "
       "than Hopper",
       .automatic = EVAL | PREDICT, .auto_value = -1, .words = mn_precision_words)
HEADING("Several GPUs or hosts", "--ranks 4x2")
OPTION(TEXT, ranks, "ranks", "PxD", TRAIN, 0, 0, 0, "auto",
       "of the processes that mpirun or srun started, P shards divide the groups of every block, and D "
       "replicas of these the rows of a batch; auto: as many shards as a host has ranks, if their number "
       "divides the groups; 1: the process trains alone, whatever started it")
OPTION(INTEGER, rank_timeout, "rank-timeout", "SECONDS", TRAIN, 0, 0, 1e6, "30",
       "among ranks: end the run when one does not come, or does not get on, for so long; 0: wait for ever")
HEADING("Checkpoints", "--run digits --save-every 60s --best")
OPTION(TEXT, run, "run", "DIR", RUNS, 0, 0, 0, NULL,
       "folder that train makes for checkpoint.h5, which has all that resuming needs, and log.jsonl",
       .required = READS)
OPTION(EVERY, save_every, "save-every", "N|30s", TRAIN, KEPT, 1, 1e9, NULL,
       "save each N steps or so many seconds, beside the training, not at the end alone; one that falls due "
       "while another is being written follows it",
       .needs = "run")
OPTION(INTEGER, keep, "keep", "K", TRAIN, KEPT, 1, MN_CHECKPOINT_KEEP, "1",
       "checkpoints to keep: checkpoint.h5, checkpoint.1.h5 and so on", .needs = "run")
OPTION(FLAG, best, "best", NULL, TRAIN, COURSE, 0, 0, NULL,
       "keep the checkpoint of the best test metric too, as best.h5", .needs = "run")
OPTION(FLAG, resume, "resume", NULL, TRAIN, 0, 0, 0, NULL,
       "go on from --run, with its options; data, loss and the course of training (--epochs, --lr, "
       "--schedule and so on) may be named anew: the rate is then what that schedule has at this step",
       .excludes = "init", .needs = "run")
OPTION(TEXT, init, "init", "F", TRAIN, 0, 0, 0, NULL,
       "start a new run from the weights in group /model of an HDF5 file, not from random ones",
       .excludes = "resume")
HEADING("Log and picture", "--run digits --log-every 10 --plot")
OPTION(INTEGER, log_every, "log-every", "N", TRAIN, KEPT, 1, LARGEST, "auto",
       "steps a line of log.jsonl; auto: about 1000 lines a run", .automatic = TRAIN, .needs = "run")
OPTION(FLAG, plot, "plot", NULL, TRAIN, 0, 0, 0, NULL, "draw the log at the end, as plot.svg", .needs = "run")
HEADING("Output", NULL)
OPTION(TEXT, out, "out", "F", PREDICT | PLOT, 0, 0, 0, NULL, "file to write", .required = PREDICT | PLOT)
OPTION(TEXT, c, "c", "F.h", EXPORT, 0, 0, 0, NULL,
       "header of C to write, which needs the math library alone: void F_predict(const float *x, float *y)",
       .excludes = "numpy")
OPTION(TEXT, numpy, "numpy", "F.py", EXPORT, 0, 0, 0, NULL,
       "Python to write, which needs numpy alone: predict(x)", .excludes = "c")
OPTION(FLAG, probabilities, "probabilities", NULL, PREDICT, 0, 0, 0, NULL,
       "write the softmax of the outputs as y, of a CSV a column for each class, for a model of classes")
OPTION(FLAG, outside, "outside", NULL, PREDICT, 0, 0, 0, NULL,
       "write for each row whether it lies " TEXT_OF(
           MN_X_DEVIATIONS) " deviations or more from the mean of a column of the rows to train on: 0 or 1")
OPTION(TEXT, id, "id", "NAME", PREDICT, 0, 0, 0, NULL,
       "of two CSVs: the column of --data that --out has in place of the rows' numbers", .needs = "data")
OPTION(FLAG, force, "force", NULL, PREDICT | PLOT | EXPORT, 0, 0, 0, NULL, "replace the file if it exists")
OPTION(REAL, tolerance, "tolerance", "T", GRADCHECK | PARITY, ABOVE, 0, 0, "auto",
       "largest relative error; auto: the precision's own", .automatic = PARITY)
OPTION(FLAG, plans, "plans", NULL, BENCH, 0, 0, 0, NULL, "the fusion plans beside each other")
OPTION(FLAG, json, "json", NULL, TRAIN | EVAL | CHECKS | FILES, 0, 0, 0, NULL, "one JSON object on stdout")
OPTION(FLAG, verbose, "verbose", NULL, TRAIN, 0, 0, 0, NULL, "say what is fused, and more",
       .excludes = "quiet")
OPTION(FLAG, quiet, "quiet", NULL, RUNS | CHECKS, 0, 0, 0, NULL, "no progress and no notes on stderr",
       .excludes = "verbose")
