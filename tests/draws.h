/* Cases of operations, named or drawn from a seed, each tried on a device in a precision. A case that fails is
 * printed with its seed, and then a smaller one that fails too. MINNOW_SEED=n draws others. */
#ifndef MN_TESTS_DRAWS_H
#define MN_TESTS_DRAWS_H

#include "tests/check.h"

/* Sizes and choices; an operation reads those that it knows. Matrices have columns_of() columns. */
struct draw {
  int64_t rows, width, depth; /* depth: of a product */
  int64_t groups;             /* of `width` columns each; 0: one */
  int64_t kind;               /* of epilogue, or which operation */
  int64_t form;               /* of product; FROM_MEMORY: none */
  int64_t rule, ops, alias;
  int64_t shift;   /* how many elements memory starts behind a multiple of 16 bytes */
  int64_t library; /* products take the library's way */
  int64_t flag;    /* first with the flag of values that are not finite raised */
  int64_t offset;  /* of a bias */
  int64_t way;     /* a choice of the operation's own */
  int64_t fits;    /* the GEMM of our own takes it, unless told otherwise */
  int64_t repeats; /* runs after the first, which leave the same bytes */
  int64_t seed;    /* of the values */
};
enum { FROM_MEMORY = 3, SIZES = 4, FIELDS = sizeof(struct draw) / sizeof(int64_t) };

/* Sizes are at least `least`, choices below `below`. */
static const struct {
  const char *name;
  int64_t least, below;
} fields[FIELDS] = {{"rows", 1, 0},      {"width", 1, 0}, {"depth", 1, 0},   {"groups", 0, 0},
                    {"kind", 0, 6},      {"form", 0, 4},  {"rule", 0, 8},    {"ops", 0, 16},
                    {"alias", 0, 4},     {"shift", 0, 2}, {"library", 0, 2}, {"flag", 0, 2},
                    {"offset", 0, 3},    {"way", 0, 4},   {"fits", 0, 1},    {"repeats", 0, 2},
                    {"seed", 0, 1 << 20}};

static inline int64_t columns_of(const struct draw *d) {
  return d->width * (d->groups ? d->groups : 1);
}

static inline struct draw sized(const int64_t size[3]) {
  return (struct draw){.rows = size[0], .width = size[1], .depth = size[2]};
}

static inline int64_t below(uint64_t *dice, int64_t limit) {
  *dice = *dice * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((*dice >> 33) % (uint64_t)limit);
}

/* Draws what tiles, vectors and chunks are made of, or one less or more, or any small size. */
static inline int64_t some_size(uint64_t *dice) {
  static const int64_t edges[] = {4, 8, 16, 32, 64, 128, 256};
  const int64_t edge = edges[below(dice, COUNT(edges))];
  return below(dice, 2) ? edge - 1 + below(dice, 3) : 1 + below(dice, below(dice, 4) ? 40 : 300);
}

/* Draws a case that a CPU computes in a few milliseconds. Half of the cases have sizes that our own GEMM takes.
 * Results have 16 elements or more: the norm of fewer may be next to nothing. */
static inline struct draw drawn(uint64_t seed) {
  struct draw d;
  uint64_t dice = seed;
  for (int i = 0; i < 3; i++) below(&dice, 2);
  do {
    for (int f = 0; f < FIELDS; f++)
      ((int64_t *)&d)[f] = f < SIZES ? some_size(&dice) : below(&dice, fields[f].below);
    d.groups = below(&dice, 10);
    if (below(&dice, 2))
      d.rows = (d.rows + 7) & ~7, d.width = (d.width + 7) & ~7, d.depth = (d.depth + 7) & ~7;
  } while (d.rows * columns_of(&d) < 16 || d.rows * columns_of(&d) > 1 << 16 ||
           d.rows * columns_of(&d) * d.depth > 1 << 21);
  return d;
}

typedef void check_function(struct memory *m, const struct draw *draw);

static inline int goes_wrong(struct memory *m, check_function *check, const struct draw *d) {
  trial.on = 1, *trial.wrong = 0;
  check(m, d);
  if (flag_of(m->device)) WRONG("the flag is left raised");
  trial.on = 0;
  m->device->force_cublas = 0, m->device->mark = 1;
  release_all(m);
  return *trial.wrong != 0;
}

/* Makes sizes and choices smaller while the case still goes wrong. */
static inline void shrink(struct memory *m, check_function *check, struct draw *d) {
  for (int again = 1; again;) {
    again = 0;
    for (int i = 0; i < 3 * (FIELDS - 1); i++) {
      struct draw smaller = *d;
      int64_t *of = (int64_t *)&smaller + i / 3, least = fields[i / 3].least, was = *of;
      *of = i % 3 == 0 ? least : i % 3 == 1 ? (was + least) / 2 : was - 1;
      if (*of < least || *of >= was || smaller.rows * columns_of(&smaller) < 16) continue;
      if (goes_wrong(m, check, &smaller)) *d = smaller, again = 1;
    }
  }
}

/* Prints the case as it would be written among the named ones. */
static inline void print_draw(const struct memory *m, const char *what, const struct draw *d) {
  print_message("%s, %s: {", what, mn_precision_name(m->device->precision));
  for (int f = 0; f < FIELDS; f++)
    if (((const int64_t *)d)[f]) print_message(".%s = %ld, ", fields[f].name, (long)((const int64_t *)d)[f]);
  print_message("}: %s\n", trial.wrong);
}

static inline void try_case(struct memory *m, check_function *check, const struct draw *d, const char *what) {
  struct draw smaller = *d;
  if (!goes_wrong(m, check, d)) return;
  print_draw(m, what, d);
  shrink(m, check, &smaller);
  if (!goes_wrong(m, check, &smaller)) fail_msg("not again");
  print_draw(m, "a smaller one", &smaller);
  fail_msg("%s", trial.wrong);
}

static inline void try_drawn(struct memory *m, check_function *check, int count) {
  const char *given = getenv("MINNOW_SEED");
  const uint64_t first = given ? strtoull(given, NULL, 10) : 1;
  for (uint64_t seed = first; seed < first + (uint64_t)(quick() ? count / 8 : count); seed++) {
    char what[64];
    snprintf(what, sizeof what, "MINNOW_SEED=%llu", (unsigned long long)seed);
    const struct draw d = drawn(seed);
    try_case(m, check, &d, what);
  }
}

static inline void try_named(struct memory *m, check_function *check, const struct draw *cases,
                             size_t count) {
  for (size_t i = 0; i < count; i++) try_case(m, check, &cases[i], "a named case");
}

#endif
