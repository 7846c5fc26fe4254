/* NCCL by dlopen; the values below are of its stable interface, version 2. */
#include "kernels/ranks/ranks.h"

#include <dlfcn.h>

#include <cstdio>

namespace {

enum { INT8 = 0, INT32 = 2, FLOAT32 = 7, FLOAT64 = 8, SUM = 0, MAX = 2 }; /* ncclDataType_t, ncclRedOp_t */

struct nccl {
  int (*version)(int *version);
  int (*unique)(mn_ranks_id *id);
  int (*init)(mn_nccl_comm **comm, int size, mn_ranks_id id, int rank);
  int (*split)(mn_nccl_comm *comm, int color, int key, mn_nccl_comm **out, void *no_config);
  int (*abort)(mn_nccl_comm *comm);
  const char *(*error)(int code);
  int (*allgather)(const void *mine, void *all, size_t count, int type, mn_nccl_comm *comm,
                   cudaStream_t stream);
  int (*allreduce)(const void *from, void *to, size_t count, int type, int operation, mn_nccl_comm *comm,
                   cudaStream_t stream);
  int (*reduce_scatter)(const void *from, void *to, size_t count, int type, int operation, mn_nccl_comm *comm,
                        cudaStream_t stream);
  int (*send)(const void *from, size_t count, int type, int rank, mn_nccl_comm *comm, cudaStream_t stream);
  int (*receive)(void *to, size_t count, int type, int rank, mn_nccl_comm *comm, cudaStream_t stream);
  int (*group_begin)();
  int (*group_end)();
  bool there;
};

template <typename F> bool find(void *library, const char *name, F *&function) {
  function = reinterpret_cast<F *>(dlsym(library, name));
  return function != nullptr;
}

nccl load() {
  nccl n = {};
  void *library = dlopen("libnccl.so.2", RTLD_NOW);
  n.there = library && find(library, "ncclGetVersion", n.version) &&
            find(library, "ncclGetUniqueId", n.unique) && find(library, "ncclCommInitRank", n.init) &&
            find(library, "ncclCommAbort", n.abort) && find(library, "ncclGetErrorString", n.error) &&
            find(library, "ncclCommSplit", n.split) && find(library, "ncclAllGather", n.allgather) &&
            find(library, "ncclAllReduce", n.allreduce) &&
            find(library, "ncclReduceScatter", n.reduce_scatter) && find(library, "ncclSend", n.send) &&
            find(library, "ncclRecv", n.receive) && find(library, "ncclGroupStart", n.group_begin) &&
            find(library, "ncclGroupEnd", n.group_end);
  return n;
}

const nccl &the_library() {
  static const nccl library = load();
  return library;
}

mn_status check(const char *what, int code) {
  if (code == 0) return MN_OK;
  return mn_fail(MN_LIBRARY, "NCCL cannot %s: %s; NCCL_DEBUG=WARN says more", what,
                 the_library().error(code));
}

} // namespace

const char *mn_nccl_version(char *text, size_t size) {
  int v;
  if (!the_library().there || the_library().version(&v) != 0) return nullptr;
  snprintf(text, size, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  return text;
}

static mn_status find_library() {
  if (the_library().there) return MN_OK;
  return mn_fail(MN_LIBRARY, "no NCCL from 2.18 on is found (libnccl.so.2), which several GPUs need: install "
                             "libnccl2, or train on one");
}

mn_status mn_nccl_begin(struct mn_ranks_id *id) {
  MN_TRY(find_library());
  return id ? check("begin", the_library().unique(id)) : MN_OK;
}

mn_status mn_nccl_open(struct mn_ranks *ranks, const struct mn_ranks_id *id) {
  MN_TRY(find_library());
  const nccl &n = the_library();
  mn_team *all = &ranks->all, *shards = &ranks->shards, *replicas = &ranks->replicas;
  MN_TRY(check("connect the GPUs", n.init(&all->nccl, all->size, *id, all->rank)));
  if (replicas->size == 1) {
    shards->nccl = all->nccl;
    return MN_OK;
  }
  MN_TRY(
      check("connect the shards", n.split(all->nccl, replicas->rank, shards->rank, &shards->nccl, nullptr)));
  return check("connect the replicas",
               n.split(all->nccl, shards->rank, replicas->rank, &replicas->nccl, nullptr));
}

void mn_nccl_close(struct mn_ranks *ranks) {
  mn_team *const teams[] = {&ranks->replicas, &ranks->shards, &ranks->all};
  if (ranks->shards.nccl == ranks->all.nccl) ranks->shards.nccl = nullptr;
  for (mn_team *team : teams) {
    if (team->nccl) (void)the_library().abort(team->nccl); /* destroy would wait for the other ranks */
    team->nccl = nullptr;
  }
}

mn_status mn_nccl_group(int begins) {
  const nccl &n = the_library();
  return check("group", begins ? n.group_begin() : n.group_end());
}

mn_status mn_nccl_allgather(const struct mn_team *team, void *all, const void *mine, size_t bytes,
                            cudaStream_t stream) {
  return check("gather", the_library().allgather(mine, all, bytes, INT8, team->nccl, stream));
}

mn_status mn_nccl_alltoall(const struct mn_team *team, void *to_me, const void *of_mine, size_t bytes,
                           cudaStream_t stream) {
  const nccl &n = the_library();
  MN_TRY(check("exchange", n.group_begin()));
  int failed = 0;
  for (int q = 0; q < team->size && !failed; q++) {
    failed = n.send(static_cast<const char *>(of_mine) + q * bytes, bytes, INT8, q, team->nccl, stream);
    if (!failed)
      failed = n.receive(static_cast<char *>(to_me) + q * bytes, bytes, INT8, q, team->nccl, stream);
  }
  const int ended = n.group_end();
  return check("exchange", failed ? failed : ended);
}

static int type_of(size_t each) {
  return each == sizeof(double) ? FLOAT64 : FLOAT32;
}

mn_status mn_nccl_allreduce(const struct mn_team *team, void *to, const void *from, int64_t count,
                            size_t each, cudaStream_t stream) {
  return check("add up",
               the_library().allreduce(from, to, (size_t)count, type_of(each), SUM, team->nccl, stream));
}

mn_status mn_nccl_reduce_scatter(const struct mn_team *team, void *sum, const void *from, int64_t count,
                                 size_t each, cudaStream_t stream) {
  return check("add up", the_library().reduce_scatter(from, sum, (size_t)count, type_of(each), SUM,
                                                      team->nccl, stream));
}

mn_status mn_nccl_agree(const struct mn_team *team, int *flag, cudaStream_t stream) {
  return check("agree", the_library().allreduce(flag, flag, 1, INT32, MAX, team->nccl, stream));
}
