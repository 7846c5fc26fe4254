/* Weights from a file: `train --init`, eval and predict on weights alone, and the library's call. The files
 * are as h5py makes them: contiguous or compressed datasets without checksums, strings of variable length. */
#include "tests/files_same.h"
#include "tests/saving.h"

#include "train/checkpoint/checkpoint.h"

/* ---- files of weights ---- */

static void put_text(hid_t file, const char *object, const char *name, const char *words) {
  hid_t text = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  H5Tset_size(text, H5T_VARIABLE);
  hid_t attribute = H5Acreate_by_name(file, object, name, text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, text, &words) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(text);
}

struct copy {
  hid_t file, type;
  int packed; /* in compressed chunks */
};

/* One dataset of /model, stored as `type`. */
static herr_t copy_one(hid_t model, const char *name, const H5L_info_t *info, void *data) {
  const struct copy *copy = data;
  char path[128];
  hsize_t shape[2], chunk[2] = {3, 3};
  hid_t from = H5Dopen2(model, name, H5P_DEFAULT), space = H5Dget_space(from);
  hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  int rank = H5Sget_simple_extent_dims(space, shape, NULL);
  if (copy->packed) assert_true(H5Pset_chunk(creation, rank, chunk) >= 0 && H5Pset_deflate(creation, 4) >= 0);
  double *values = malloc((size_t)H5Sget_simple_extent_npoints(space) * sizeof *values);
  assert_true(values && H5Dread(from, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  snprintf(path, sizeof path, "model/%s", name);
  hid_t to = H5Dcreate2(copy->file, path, copy->type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(H5Dwrite(to, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  free(values);
  H5Dclose(to);
  H5Pclose(creation);
  H5Sclose(space);
  H5Dclose(from);
  return 0;
}

/* Makes a file of the weights in another, and of nothing else that minnow knows. */
static void copy_weights(const char *name, const char *from, hid_t type, int packed) {
  hid_t source = H5Fopen(from, H5F_ACC_RDONLY, H5P_DEFAULT);
  struct copy copy = {create_file(name), type, packed};
  assert_true(source >= 0 && copy.file >= 0);
  H5Gclose(H5Gcreate2(copy.file, "model", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  assert_true(H5Literate_by_name(source, "model", H5_INDEX_NAME, H5_ITER_INC, NULL, copy_one, &copy,
                                 H5P_DEFAULT) >= 0);
  put_text(copy.file, "/", "format", "minnow checkpoint");
  put_text(copy.file, "model", "loss", "none of yours");
  H5Fclose(source);
  assert_true(H5Fclose(copy.file) >= 0);
}

/* Weights alone have no numbers to standardise by. */
#define RAW LABELS "--standardize no "

/* Of half precision, which HDF5 has no name for. */
static hid_t float16(void) {
  hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  assert_true(H5Tset_fields(type, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(type, 2) >= 0 &&
              H5Tset_ebias(type, 15) >= 0);
  return type;
}

static void set_value(const char *name, const char *dataset, hsize_t at, double value) {
  hid_t file = H5Fopen(name, H5F_ACC_RDWR, H5P_DEFAULT), set = H5Dopen2(file, dataset, H5P_DEFAULT);
  double values[256];
  assert_true(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  values[at] = value;
  assert_true(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(set);
  assert_true(H5Fclose(file) >= 0);
}

/* A run on good.h5, from `rest` on; what it says on stderr. */
static const char *train(const char *rest) {
  char line[1024];
  assert_true(snprintf(line, sizeof line, RAW "%s", rest) < (int)sizeof line);
  const struct result *r = run(line);
  assert_succeeds(line, r);
  return r->err;
}

/* ---- the start of a run ---- */

static struct mn_model_config config(int depth) {
  return (struct mn_model_config){.inputs = I,
                                  .depth = depth,
                                  .hidden = {8, 8},
                                  .groups = 2,
                                  .head = 3,
                                  .eps = 1e-5,
                                  .slope = 0.01,
                                  .loss = MN_LOSS_CROSS_ENTROPY};
}

/* What a run of seed 7 starts from, as a checkpoint. 0: the device or its precision is not to be had. */
static int save_initial(const char *name, const char *where, const char *precision) {
  struct mn_device *device;
  struct mn_model *model;
  const struct mn_progress progress = {.rows = N};
  const struct mn_model_config sizes = config(2);
  mn_status status = mn_device_open(&device, where, precision, 0);
  if (status == MN_NO_DEVICE) return 0;
  assert_int_equal(status, MN_OK);
  assert_int_equal(mn_model_open(&model, device, &sizes), MN_OK);
  assert_int_equal(mn_model_initialise(model, 7), MN_OK);
  assert_int_equal(save_and_wait(name, model, NULL, &progress, NULL, 0), MN_OK);
  mn_model_close(model);
  mn_device_close(device);
  return 1;
}

static void check_start(const char *device, const char *precision) {
  static const char *const starts[] = {"", "--init initial.h5", "--init weights.h5"};
  unlink("initial.h5");
  if (!save_initial("initial.h5", device, precision)) return;
  copy_weights("weights.h5", "initial.h5", H5T_IEEE_F64LE, 0);
  for (int start = 0; start < 3; start++) {
    char rest[256], name[32];
    snprintf(name, sizeof name, "start-%d", start);
    forget(name);
    snprintf(rest, sizeof rest, "--device %s --precision %s --hidden 8,8 --seed 7 --run %s %s", device,
             precision, name, starts[start]);
    train(rest);
    snprintf(name, sizeof name, "start-%d/checkpoint.h5", start);
    if (start > 0) assert_same("start-0/checkpoint.h5", name);
  }
}

static void the_weights_of_a_new_run_make_the_same_run(void **state) {
  static const char *const precisions[] = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp16x3"};
  for (int i = 0; i < 6; i++) {
    check_start("cpu", precisions[i]);
    check_start("cuda", precisions[i]);
  }
}

/* Of a checkpoint its weights alone: not its factors, momentum, step, or order of samples. */
static void a_checkpoint_is_a_file_of_weights(void **state) {
  train("--precision fp16 --seed 3 --run half");
  copy_weights("weights.h5", "half/checkpoint.h5", H5T_IEEE_F32LE, 0);
  train("--precision fp16 --init half/checkpoint.h5 --run from-checkpoint");
  train("--precision fp16 --init weights.h5 --run from-weights");
  assert_same("from-checkpoint/checkpoint.h5", "from-weights/checkpoint.h5");
  assert_int_equal(run("diff half/checkpoint.h5 from-weights/checkpoint.h5")->status, 1);
}

static void any_floats_will_do(void **state) {
  hid_t half = float16();
  copy_weights("half.h5", "run/checkpoint.h5", half, 1);
  H5Tclose(half);
  copy_weights("single.h5", "half.h5", H5T_IEEE_F32BE, 0);
  copy_weights("double.h5", "half.h5", H5T_IEEE_F64LE, 1);
  static const char *const names[] = {"half", "single", "double"};
  for (int i = 0; i < 3; i++) {
    char rest[128], name[32];
    snprintf(rest, sizeof rest, "--init %s.h5 --run from-%s", names[i], names[i]);
    train(rest);
    snprintf(name, sizeof name, "from-%s/checkpoint.h5", names[i]);
    assert_same("from-half/checkpoint.h5", name);
  }
  assert_int_equal(run("diff from-half run")->status, 1);
}

/* ---- what is refused ---- */

/* The command fails so, in one line, and leaves every file as it was. */
static void assert_refused(const char *line, int status, const char *words) {
  uint64_t before = snapshot();
  assert_complains(line, run(line), status, words);
  if (snapshot() != before) fail_msg("'%s' changed a file", line);
}

#define INIT(file) RAW "--run new --init " file

static void all_that_does_not_fit_is_told_at_once(void **state) {
  const float zeros[64] = {0};
  const int whole[8] = {0};
  const hsize_t tall[] = {9, 4}, wide[] = {3, 9}, eight = 8;
  char words[8][4] = {"a"};
  copy_weights("misfit.h5", "run/checkpoint.h5", H5T_IEEE_F32LE, 0);
  hid_t file = H5Fopen("misfit.h5", H5F_ACC_RDWR, H5P_DEFAULT), text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 4);
  static const char *const gone[] = {"blocks.0.fc.weight", "blocks.0.fc.bias", "blocks.0.gn.weight",
                                     "blocks.0.gn.bias",   "head.weight",      "head.bias"};
  for (int i = 0; i < 6; i++) {
    char path[64];
    snprintf(path, sizeof path, "model/%s", gone[i]);
    assert_true(H5Ldelete(file, path, H5P_DEFAULT) >= 0);
  }
  put(file, "model/blocks.0.fc.weight", H5T_NATIVE_FLOAT, 2, tall, zeros);
  put(file, "model/blocks.0.fc.bias", H5T_NATIVE_INT, 1, &eight, whole);
  put(file, "model/blocks.0.gn.weight", text, 1, &eight, words);
  H5Gclose(H5Gcreate2(file, "model/blocks.0.gn.bias", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  put(file, "model/head.weight", H5T_NATIVE_DOUBLE, 2, wide, (double[27]){0});
  put(file, "model/more\nand more", H5T_NATIVE_FLOAT, 1, &eight, zeros);
  H5Tclose(text);
  assert_true(H5Fclose(file) >= 0);
  assert_refused(INIT("misfit.h5"), 65,
                 "misfit.h5|blocks.0.fc.weight is float32 [9, 4], wanted [8, 4]|"
                 "blocks.0.fc.bias is int32 [8], wanted floats [8]|"
                 "blocks.0.gn.weight is string [8], wanted floats [8]|"
                 "blocks.0.gn.bias is a group, wanted floats [8]|"
                 "head.weight is float64 [3, 9], wanted [3, 8]|head.bias is missing, wanted [3]|"
                 "more\\x0Aand more is left over, float32 [8]");
}

/* A vector is no matrix of one row. */
static void a_rank_has_to_fit(void **state) {
  copy_weights("misfit.h5", "run/checkpoint.h5", H5T_IEEE_F32LE, 0);
  hid_t file = H5Fopen("misfit.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(H5Ldelete(file, "model/head.bias", H5P_DEFAULT) >= 0);
  put(file, "model/head.bias", H5T_NATIVE_FLOAT, 2, (hsize_t[]){1, 3}, (float[3]){0});
  assert_true(H5Fclose(file) >= 0);
  assert_refused(INIT("misfit.h5"), 65, "fit the model: head.bias is float32 [1, 3], wanted [3]: ");
}

/* Of 64 blocks 63 are missing: the list is cut short, the remedy stays. */
static void a_long_list_is_cut_short(void **state) {
  char line[1024] =
      "train --device cpu --data good.h5 --groups 2 --batch 6 --init run/checkpoint.h5 --hidden 8";
  for (int i = 1; i < 64; i++) strcat(line, ",8");
  assert_refused(line, 65, "blocks.1.fc.weight is missing, wanted [8, 8]| …: give the model these sizes");
}

static void values_have_to_be_finite(void **state) {
  copy_weights("odd.h5", "run/checkpoint.h5", H5T_IEEE_F64LE, 0);
  set_value("odd.h5", "model/head.bias", 1, -INFINITY);
  assert_refused(INIT("odd.h5"), 65, "odd.h5|head.bias, row 0, column 1|-inf");
  set_value("odd.h5", "model/blocks.0.fc.weight", 4 * 3 + 2, NAN);
  set_value("odd.h5", "model/blocks.0.fc.weight", 4 * 5 + 1, NAN);
  assert_refused(INIT("odd.h5"), 65, "blocks.0.fc.weight, row 3, column 2|nan");
  /* Finite in fp64 alone. */
  copy_weights("odd.h5", "run/checkpoint.h5", H5T_IEEE_F64LE, 0);
  set_value("odd.h5", "model/blocks.0.gn.weight", 7, 1e39);
  assert_refused(INIT("odd.h5"), 65, "blocks.0.gn.weight, row 0, column 7|as a float");
  train("--precision fp64 --init odd.h5");
}

static void files_without_weights_are_refused(void **state) {
  write_text("text.h5", "no HDF5");
  hid_t file = create_file("link.h5");
  assert_true(H5Lcreate_external("run/checkpoint.h5", "/model", file, "model", H5P_DEFAULT, H5P_DEFAULT) >=
              0);
  assert_true(H5Fclose(file) >= 0);
  assert_refused(INIT("missing.h5"), 66, "missing.h5");
  assert_refused(INIT("text.h5"), 65, "text.h5|HDF5");
  assert_refused(INIT("cut-run.h5"), 65, "cut-run.h5");
  assert_refused(INIT("good.h5"), 65, "good.h5|/model|blocks.0.fc.weight");
  assert_refused(INIT("link.h5"), 65, "link.h5|model|soft or external link");
}

/* Weights that a lost write left as zeros, whatever the model's reals are. An
 * attribute of the same name in another program's file says nothing. */
static void lost_weights_are_refused(void **state) {
  float values[4096] = {0};
  train("--run torn");
  hid_t file = H5Fopen("torn/checkpoint.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  hid_t dataset = H5Dopen2(file, "/model/blocks.0.fc.weight", H5P_DEFAULT);
  assert_true(H5Dget_storage_size(dataset) <= sizeof values);
  assert_true(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(dataset);
  assert_true(H5Fclose(file) >= 0);
  assert_refused(RAW "--init torn/checkpoint.h5", 65,
                 "torn/checkpoint.h5|model/blocks.0.fc.weight|by its checksum");
  assert_refused(RAW "--precision fp64 --init torn/checkpoint.h5", 65,
                 "model/blocks.0.fc.weight|by its checksum");
  file = H5Fopen("weights.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  put_text(file, "/", "checksums", "of another program");
  assert_true(H5Fclose(file) >= 0);
  train("--init weights.h5");
}

static void init_begins_a_new_run(void **state) {
  assert_refused("train --run run --resume --init run/checkpoint.h5", 64, "--init|--resume|leave one out");
  assert_refused(RAW "--init run --run run", 73, "--run run holds checkpoint.h5");
}

/* After its start it is a run as any other. */
static void a_run_from_weights_is_resumed(void **state) {
  train("--init other/checkpoint.h5 --run whole");
  train("--init other/checkpoint.h5 --run part --stop-at 3");
  assert_int_equal(run("diff whole/checkpoint.h5 part/checkpoint.h5")->status, 1);
  assert_succeeds("resume", run("train --quiet --device cpu --run part --resume"));
  assert_same("whole/checkpoint.h5", "part/checkpoint.h5");
}

/* A checkpoint of another configuration is told of in one line, and its weights are taken. */
static void another_configuration_is_told(void **state) {
  static const char line[] = "train --device cpu --data good.h5 --hidden 8 --epochs 1 --batch 6 ";
  char text[512];
  snprintf(text, sizeof text, "%s--groups 4 --eps 0.001 --slope 0.5 --plan tail --init run/checkpoint.h5",
           line);
  const struct result *r = run(text);
  assert_succeeds(text, r);
  assert_non_null(
      strstr(r->err, "note: run/checkpoint.h5 was trained with groups 2 (here 4), eps 1e-05 (here 0.001), "
                     "slope 0.01 (here 0.5), plan stack (here tail)\n"));
  snprintf(text, sizeof text, "%s--groups 2 --init run/checkpoint.h5", line);
  r = run(text);
  assert_non_null(strstr(r->err, "weights: from run/checkpoint.h5\n"));
  assert_null(strstr(r->err, "was trained with"));
  copy_weights("weights.h5", "run/checkpoint.h5", H5T_IEEE_F32LE, 0);
  snprintf(text, sizeof text, "%s--groups 4 --init weights.h5", line);
  r = run(text);
  assert_succeeds(text, r);
  assert_null(strstr(r->err, "was trained with"));
}

/* ---- eval and predict ---- */

static void weights_alone_are_evaluated(void **state) {
#define EVAL "eval --quiet --json --device cpu --data good.h5 --run "
  char expected[TEXT];
  train("--eps 0.1 --slope 0.3 --run steep");
  copy_weights("weights.h5", "steep/checkpoint.h5", H5T_IEEE_F32LE, 0);
  strcpy(expected, run(EVAL "steep/checkpoint.h5")->out);
  assert_non_null(strstr(expected, "\"accuracy\""));
  assert_non_null(strstr(run("info weights.h5")->out, "weights:\n  inputs: "));
  const struct result *r = run(EVAL "weights.h5 --groups 2 --eps 0.1 --slope 0.3");
  assert_succeeds("eval", r);
  assert_string_equal(r->out, expected);
  static const char *const others[] = {EVAL "weights.h5 --groups 2 --slope 0.3",
                                       EVAL "weights.h5 --groups 2 --eps 0.1",
                                       EVAL "weights.h5 --groups 4 --eps 0.1 --slope 0.3"};
  for (int i = 0; i < 3; i++) {
    r = run(others[i]);
    assert_succeeds(others[i], r);
    assert_string_not_equal(r->out, expected);
  }
  assert_refused(EVAL "weights.h5", 64, "weights.h5|--groups G");
  assert_refused(EVAL "weights.h5 --groups 3", 64, "3 groups|8");
  assert_refused(EVAL "weights.h5 --groups 2 --loss mse", 65, "weights.h5|3 numbers|1 numbers");
  assert_refused(EVAL "steep/checkpoint.h5 --groups 2", 64, "--groups|steep/checkpoint.h5|leave it out");
  assert_refused(EVAL "good.h5 --groups 2", 65, "good.h5|/model");
}

static void weights_alone_predict(void **state) {
#define PREDICT "predict --quiet --device cpu --data good.h5 "
  train("--run plain");
  copy_weights("weights.h5", "plain/checkpoint.h5", H5T_IEEE_F64LE, 0);
  assert_succeeds("predict", run(PREDICT "--run plain --out a.h5"));
  assert_succeeds("predict", run(PREDICT "--run weights.h5 --groups 2 --out b.h5"));
  assert_same_file("a.h5", "b.h5");
  assert_succeeds("predict", run(PREDICT "--run weights.h5 --groups 2 --loss mse --out c.h5"));
  hid_t file = H5Fopen("c.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  assert_true(H5Lexists(file, "y", H5P_DEFAULT) > 0 && H5Lexists(file, "label", H5P_DEFAULT) == 0);
  H5Fclose(file);
  assert_refused(PREDICT "--run weights.h5 --out d.h5", 64, "predict needs --groups G");
}

/* A label that the model has no output for is named with its row; so is one of the test part alone. */
static void labels_have_to_be_the_models(void **state) {
  const float x[6 * 4] = {0};
  const int y[6] = {0, 1, 2, 0, 5, 3};
  static const char *const groups[] = {"", "train/", "test/"};
  hid_t file = create_file("labels.h5");
  for (int part = 0; part < 3; part++) {
    const hsize_t shape[] = {part == 1 ? 3 : 6, 4}; /* labels 0 to 2 to train with */
    char name[16];
    snprintf(name, sizeof name, "%sx", groups[part]);
    put(file, name, H5T_NATIVE_FLOAT, 2, shape, x);
    snprintf(name, sizeof name, "%sy", groups[part]);
    put(file, name, H5T_NATIVE_INT, 1, shape, y);
  }
  assert_true(H5Fclose(file) >= 0);
  assert_refused("eval --quiet --device cpu --data labels.h5 --run run", 65,
                 "row 4 (from 0) of labels.h5 has the label 5, but run/checkpoint.h5 has 3 classes, 0 to 2");
  assert_refused("train --device cpu --data labels.h5 --hidden 8 --groups 2 --batch 3 --steps 1", 65,
                 "row 4 (from 0) of the test part of labels.h5 has the label 5, but the model of its "
                 "training part has 3");
}

/* Sizes come from the weights of the blocks in turn, and of the head; the rest has to fit them. */
static void shapes_say_the_sizes(void **state) {
  const float zeros[64] = {0};
  const char *line = EVAL "deep.h5 --groups 2";
  char expected[TEXT];
  assert_succeeds(
      "train",
      run("train --quiet --device cpu --data good.h5 --hidden 8,6,4 --groups 2 --standardize no --batch "
          "6 --epochs 1 --run three"));
  strcpy(expected, run(EVAL "three/checkpoint.h5")->out);
  copy_weights("deep.h5", "three/checkpoint.h5", H5T_IEEE_F32LE, 0);
  const struct result *r = run(line);
  assert_succeeds(line, r);
  assert_string_equal(r->out, expected);
  hid_t file = H5Fopen("deep.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(H5Ldelete(file, "model/blocks.1.fc.weight", H5P_DEFAULT) >= 0);
  assert_true(H5Fclose(file) >= 0);
  assert_refused(line, 65,
                 "head.weight is float32 [3, 4], wanted [3, 8]|blocks.1.fc.bias is left over|"
                 "blocks.2.fc.weight is left over, float32 [4, 6]");
  file = H5Fopen("deep.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  put(file, "model/blocks.1.fc.weight", H5T_NATIVE_FLOAT, 1, &(hsize_t){48}, zeros);
  assert_true(H5Fclose(file) >= 0);
  assert_refused(line, 65, "blocks.1.fc.weight is left over, float32 [48]");
  file = H5Fopen("deep.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(H5Ldelete(file, "model/blocks.0.fc.weight", H5P_DEFAULT) >= 0);
  assert_true(H5Fclose(file) >= 0);
  assert_refused(line, 65, "deep.h5 has no matrix blocks.0.fc.weight");
}

/* ---- the library ---- */

static void assert_holds(struct mn_model *model, const char *from) {
  struct mn_checkpoint *saved;
  double values[64];
  assert_int_equal(mn_checkpoint_load(&saved, from), MN_OK);
  assert_int_equal(saved->tensor_count, model->count);
  for (int i = 0; i < model->count; i++) {
    assert_int_equal(mn_tensor_read(model->device, model->parameters[i], values), MN_OK);
    for (int64_t j = 0; j < mn_tensor_count(model->parameters[i]); j++)
      assert_true(values[j] == (double)((const float *)saved->tensors[i].value)[j]);
  }
  mn_checkpoint_free(saved);
}

static void a_model_that_is_refused_stays_as_it_was(void **state) {
  struct mn_device *device;
  struct mn_model *model;
  const struct mn_model_config sizes = config(1);
  assert_int_equal(mn_device_open(&device, "cpu", "fp32", 0), MN_OK);
  assert_int_equal(mn_model_open(&model, device, &sizes), MN_OK);
  copy_weights("weights.h5", "run/checkpoint.h5", H5T_IEEE_F64LE, 0);
  assert_int_equal(mn_snapshot_load_weights("weights.h5", model), MN_OK);
  assert_holds(model, "run/checkpoint.h5");
  copy_weights("odd.h5", "other/checkpoint.h5", H5T_IEEE_F32LE, 0);
  set_value("odd.h5", "model/head.bias", 2, NAN); /* the last value of all */
  assert_int_equal(mn_snapshot_load_weights("odd.h5", model), MN_BAD_DATA);
  assert_holds(model, "run/checkpoint.h5");
  assert_int_equal(mn_snapshot_load_weights("other/checkpoint.h5", model), MN_OK);
  assert_holds(model, "other/checkpoint.h5");
  assert_int_equal(mn_snapshot_load_weights("missing.h5", model), MN_NO_INPUT);
  /* Nothing stays open, after errors either. */
  assert_int_equal(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
  mn_model_close(model);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_weights_of_a_new_run_make_the_same_run),
      cmocka_unit_test(a_checkpoint_is_a_file_of_weights),
      cmocka_unit_test(any_floats_will_do),
      cmocka_unit_test(all_that_does_not_fit_is_told_at_once),
      cmocka_unit_test(a_rank_has_to_fit),
      cmocka_unit_test(a_long_list_is_cut_short),
      cmocka_unit_test(values_have_to_be_finite),
      cmocka_unit_test(files_without_weights_are_refused),
      cmocka_unit_test(lost_weights_are_refused),
      cmocka_unit_test(init_begins_a_new_run),
      cmocka_unit_test(a_run_from_weights_is_resumed),
      cmocka_unit_test(another_configuration_is_told),
      cmocka_unit_test(weights_alone_are_evaluated),
      cmocka_unit_test(weights_alone_predict),
      cmocka_unit_test(labels_have_to_be_the_models),
      cmocka_unit_test(shapes_say_the_sizes),
      cmocka_unit_test(a_model_that_is_refused_stays_as_it_was),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
