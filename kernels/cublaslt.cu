/* cuBLASLt by dlopen; see cublaslt.h. */
#include "kernels/cublaslt.h"

#include <dlfcn.h>

#include <cstdio>

namespace {

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
constexpr char LIBRARY[] = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR);

struct loading {
  struct mn_cublaslt functions;
  char error[160]; /* empty: all are there */
};

template <typename F> bool find(void *library, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

loading load() {
  loading l = {};
  void *library = dlopen(LIBRARY, RTLD_NOW);
  bool all = library != nullptr;
#define FIND(name) all = all && find(library, "cublasLt" #name, l.functions.name);
  MN_CUBLASLT(FIND)
  if (!all) snprintf(l.error, sizeof l.error, "%s", dlerror());
  return l;
}

const loading &loaded() {
  static const loading l = load();
  return l;
}

} // namespace

mn_status mn_cublaslt_load() {
  const char *error = loaded().error;
  if (!*error) return MN_OK;
  return mn_fail(MN_LIBRARY,
                 "cannot load cuBLASLt: %s: install cuBLAS %d, or name its folder in LD_LIBRARY_PATH; the "
                 "device cpu would do",
                 error, CUBLAS_VER_MAJOR);
}

const struct mn_cublaslt &mn_cublaslt() {
  return loaded().functions;
}
