/* What makes rows slow to read; see hdf5_file.h. */
#include "data/hdf5_file.h"

#include <stdio.h>

/* Smaller datasets are read fast in any form. */
#define WORTH_IT ((uint64_t)16 << 20)

/* Whether the object can be read as rows of reals; integers of rank 2 are read as reals. */
static int are_rows(const struct mn_hdf5_object *o) {
  if (o->kind != MN_HDF5_DATASET || o->layout == H5D_VIRTUAL || o->external || o->lacks ||
      o->bytes < WORTH_IT)
    return 0;
  return (o->class == H5T_FLOAT && (o->rank == 1 || o->rank == 2)) ||
         (o->class == H5T_INTEGER && o->rank == 2);
}

int mn_advice_find(char cause[MN_ADVICE], char remedy[MN_ADVICE], const struct mn_hdf5_object *o) {
  const int chunked = o->layout == H5D_CHUNKED, converted = o->native != sizeof(float);
  if (!are_rows(o) || (!chunked && !converted)) return 0;
  char chunks[64] = "";
  const char *packed = o->filters > o->checksum ? "compressed " : "";
  const hsize_t across = chunked && o->rank == 2 ? (o->shape[1] - 1) / o->chunk[1] + 1 : 1;
  if (across > 1)
    snprintf(chunks, sizeof chunks, ", in %schunks, %llu to a row", packed, (unsigned long long)across);
  else if (chunked)
    snprintf(chunks, sizeof chunks, ", in %schunks", packed);
  snprintf(cause, MN_ADVICE, "one thread reads it through HDF5%s%s%s%s", chunks,
           converted ? ", converting each " : "", converted && o->swapped ? "big-endian " : "",
           converted ? o->type : "");
  const char *name = o->name + (o->name[0] == '/');
  if (converted)
    snprintf(remedy, MN_ADVICE,
             "store it unchunked as float32, in h5py out[\"%.150s\"] = x.astype(\"<f4\")%s", name,
             o->class == H5T_INTEGER ? ", times scale_factor plus add_offset where it has them" : "");
  else
    snprintf(remedy, MN_ADVICE, "h5repack -l %.150s:CONTI -f %.150s:NONE in.h5 out.h5", name, name);
  return 1;
}
