/* The command verify: whether everything in a file is whole. */
#include <stdlib.h>

#include "data/hdf5/hdf5.h"
#include "kernels/clock.h"
#include "train/command/commands.h"

/* What has been read so far, and the first thing that was not whole. */
struct verdict {
  int checkpoint, sums; /* a checkpoint's checksums of its content */
  int datasets, checksums, unwritten, links;
  uint64_t bytes;
  mn_status status;
  char reason[1024];
};

/* Reads all of a dataset, which compares its checksums and finds missing parts. */
static mn_status read_all(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset) {
  struct mn_hdf5_slab slab;
  MN_TRY(mn_hdf5_check(file, dataset));
  mn_hdf5_slab_rows(&slab, dataset->rank, dataset->shape, 0, dataset->element);
  void *buffer = malloc(slab.elements * dataset->element); /* the first slab is the largest */
  if (!buffer)
    return mn_fail(MN_NO_MEMORY, "no memory for %llu elements of %s", (unsigned long long)slab.elements,
                   dataset->name);
  mn_status status = MN_OK;
  for (; status == MN_OK && slab.elements; mn_hdf5_slab_next(&slab))
    if ((status = mn_hdf5_read(file, dataset, MN_HDF5_STORED, &slab, buffer)) == MN_OK && slab.rank > 0)
      mn_heartbeat_of("rows of a dataset", (int64_t)slab.start[0], (int64_t)dataset->shape[0]);
  free(buffer);
  return status;
}

static mn_status verify_object(void *data, struct mn_hdf5_file *file, const struct mn_hdf5_object *object) {
  struct verdict *verdict = data;
  verdict->links += object->kind == MN_HDF5_LINK;
  if (object->kind == MN_HDF5_UNREADABLE) return MN_BAD_DATA;
  if (object->id < 0) return MN_OK;
  MN_TRY(mn_hdf5_attributes(file, object, H5_INDEX_NAME, 1, NULL, NULL));
  if (object->kind != MN_HDF5_DATASET) return MN_OK;
  int outside = object->external || object->layout == H5D_VIRTUAL;
  int unwritten = object->stored == 0 && !outside;
  if (outside || (!unwritten && object->bytes > 0)) MN_TRY(read_all(file, object));
  verdict->datasets++;
  verdict->checksums += object->checksum;
  verdict->unwritten += unwritten && object->bytes > 0;
  verdict->bytes += unwritten ? 0 : object->bytes;
  return MN_OK;
}

/* A checkpoint is loaded first, which checks the rules of its format. Then every object of the file is read.
 */
static mn_status verify_open(struct verdict *verdict, struct mn_hdf5_file *file) {
  MN_TRY(mn_checkpoint_format(file, &verdict->checkpoint));
  if (verdict->checkpoint) {
    struct mn_checkpoint *checkpoint;
    MN_TRY(mn_checkpoint_load(&checkpoint, file->path));
    verdict->sums = checkpoint->checksums;
    mn_checkpoint_free(checkpoint);
  }
  return mn_hdf5_walk(file, verify_object, verdict);
}

static void show_verdict(struct mn_json *json, const char *path, const struct verdict *verdict) {
  mn_json_open(json, NULL);
  mn_json_string(json, "file", path);
  mn_json_string(json, "kind", verdict->checkpoint ? "checkpoint" : "hdf5");
  mn_json_boolean(json, "whole", verdict->status == MN_OK);
  mn_json_string(json, "reason", verdict->status == MN_OK ? NULL : verdict->reason);
  mn_json_integer(json, "datasets", verdict->datasets);
  mn_json_integer(json, "checksums", verdict->checksums);
  mn_json_integer(json, "unwritten", verdict->unwritten);
  mn_json_integer(json, "links", verdict->links);
  mn_json_bytes(json, "bytes", (double)verdict->bytes);
  mn_json_integer(json, "content_checksums", verdict->sums);
  mn_json_close(json);
}

mn_status mn_verify(FILE *out, const char *path, int as_json) {
  struct verdict verdict = {0};
  struct mn_hdf5_file file;
  struct mn_json json;
  verdict.status = mn_hdf5_open(&file, path, "take a copy or make it anew", 0);
  if (verdict.status == MN_OK) {
    verdict.status = verify_open(&verdict, &file);
    mn_hdf5_close(&file);
  }
  if (verdict.status != MN_OK && verdict.status != MN_BAD_DATA) return verdict.status;
  snprintf(verdict.reason, sizeof verdict.reason, "%s", mn_message());
  MN_TRY(mn_json_begin_answer(&json, !as_json));
  if (as_json || verdict.status == MN_OK) show_verdict(&json, path, &verdict);
  MN_TRY(mn_json_end_answer(&json, out, MN_OK));
  return verdict.status;
}
