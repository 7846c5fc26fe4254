/* The product of a tile by one set of instructions. product.c includes this for each, with LEVEL(name),
 * TARGET, LANES, reals in a vector, and ROWS of the result that are in registers at a time. */

typedef real LEVEL(vec) __attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real)), may_alias));
typedef position LEVEL(order) __attribute__((vector_size(LANES * sizeof(real))));
#define VEC LEVEL(vec)
#define COLS (2 * LANES)
#define PANEL (DEPTH * COLS + 16) /* of b: [depth, COLS]; no power of 2: panels would share cache lines */
#define DOWN (DEPTH + 16)         /* and rows of a */
#define PANELS 4                  /* that a single row has in registers */
#define WIDTH(cols) (((cols) + COLS - 1) / COLS * COLS)

/* A vector of d = alpha·sum + beta·d. */
TARGET MN_INLINE void LEVEL(finish)(real *d, VEC sum, real alpha, real beta) {
  VEC all = alpha * sum, was;
  if (beta != 0) {
    was = beta * *(VEC *)d;
    ROUNDED(was); /* else either of the two products is fused, as the compiler likes */
    all += was;
  }
  *(VEC *)d = all;
}

/* d = alpha·Σ a·b + beta·d in rows ≤ high ≤ ROWS and cols ≤ vectors·LANES. An element of a is at i·down +
 * k·along; `high` rows of a are read. The edges of d take the same operations, by way of memory of their own,
 * and so the same bytes. */
TARGET MN_INLINE void LEVEL(registers)(const real *a, int down, int along, const real *b, int64_t depth,
                                       int high, int vectors, const struct mn_product *p, real *d, int rows,
                                       int cols, real beta) {
  const int whole = rows == high && cols == COLS;
  real edge[ROWS * COLS], *to = whole ? d : edge;
  const int64_t ld = whole ? p->cols : COLS;
  VEC sum[ROWS][2];
  for (int i = 0; i < rows; i++) {
    __builtin_prefetch(d + i * p->cols);
    __builtin_prefetch(d + i * p->cols + cols - 1);
  }
  UNROLL(int i = 0; i < high; i++) sum[i][0] = sum[i][1] = (VEC){0};
  for (int64_t k = 0; k < depth; k++, a += along, b += COLS) {
    UNROLL(int i = 0; i < high; i++) {
      const VEC at = a[i * down] - (VEC){0}; /* in all lanes */
      sum[i][0] += at * *(const VEC *)b;
      if (vectors > 1) sum[i][1] += at * *(const VEC *)(b + LANES);
    }
  }
  if (!whole && beta != 0) {
    memset(edge, 0, sizeof edge);
    for (int i = 0; i < rows; i++)
      for (int c = 0; c < cols; c++) edge[i * COLS + c] = d[i * p->cols + c];
  }
  UNROLL(int i = 0; i < 2 * high; i++)
    LEVEL(finish)(to + i / 2 * ld + i % 2 * LANES, sum[i / 2][i % 2], p->alpha, beta);
  for (int i = 0; !whole && i < rows; i++)
    for (int c = 0; c < cols; c++) d[i * p->cols + c] = edge[i * COLS + c];
}

/* The same of a single row, in up to `panels` panels of b, which are `apart`: so many sums at a time that
 * none waits for the one before. */
TARGET MN_INLINE void LEVEL(row)(const real *a, const real *b, int64_t apart, int64_t depth, int panels,
                                 const struct mn_product *p, real *d, int64_t cols, real beta) {
  VEC sum[2 * PANELS];
  UNROLL(int i = 0; i < 2 * panels; i++) sum[i] = (VEC){0};
  for (int64_t k = 0; k < depth; k++, b += COLS) {
    const VEC at = a[k] - (VEC){0};
    UNROLL(int i = 0; i < 2 * panels; i++) sum[i] += at * *(const VEC *)(b + i / 2 * apart + i % 2 * LANES);
  }
  UNROLL(int i = 0; i < 2 * panels; i++) {
    real edge[LANES] = {0};
    const int64_t here = cols - i * LANES;
    if (here >= LANES) {
      LEVEL(finish)(d + i * LANES, sum[i], p->alpha, beta);
    } else if (here > 0) {
      for (int64_t c = 0; beta != 0 && c < here; c++) edge[c] = d[i * LANES + c];
      LEVEL(finish)(edge, sum[i], p->alpha, beta);
      for (int64_t c = 0; c < here; c++) d[i * LANES + c] = edge[c];
    }
  }
}

/* Panels of b[depth, cols], rows of which are ld apart; the last one's columns from cols on are 0. */
TARGET MN_INLINE void LEVEL(pack)(real *to, const real *b, int64_t ld, int64_t depth, int64_t cols) {
  for (int64_t k = 0; k < depth; k++, b += ld, to += COLS) {
    int64_t c = 0;
    for (; c + COLS <= cols; c += COLS) {
      VEC *at = (VEC *)(to + c / COLS * PANEL);
      at[0] = *(const VEC *)(b + c);
      at[1] = *(const VEC *)(b + c + LANES);
    }
    for (int i = 0; c < cols && i < COLS; i++) to[c / COLS * PANEL + i] = c + i < cols ? b[c + i] : 0;
  }
}

/* A panel of b[cols, depth]: transposes squares of LANES × LANES. In each of log2(LANES) rounds vectors i and
 * i + LANES/2 are interleaved to 2i and 2i + 1; after the last v[i] is column k + i of b. */
TARGET MN_INLINE void LEVEL(pack_transposed)(real *to, const real *b, int64_t ld, int64_t depth, int cols) {
#define LOW(i) (i) % 2 * LANES + (i) / 2
#define HIGH(i) (i) % 2 * LANES + (i) / 2 + LANES / 2
  if (depth < LANES) {
    for (int64_t k = 0; k < depth; k++)
      for (int c = 0; c < COLS; c++) to[k * COLS + c] = c < cols ? b[c * ld + k] : 0;
    return;
  }
  for (int64_t next = 0; next < depth; next += LANES) {
    const int64_t k = next + LANES <= depth ? next : depth - LANES; /* the last may be packed twice */
    for (int half = 0; half < COLS; half += LANES) {
      VEC v[LANES], w[LANES];
      UNROLL(int i = 0; i < LANES; i++)
        v[i] = half + i < cols ? *(const VEC *)(b + (half + i) * ld + k) : (VEC){0};
      UNROLL(int bit = 1; bit < LANES; bit *= 2) {
        UNROLL(int i = 0; i < LANES / 2; i++) {
          w[2 * i] = SHUFFLE(LEVEL(order), v[i], v[i + LANES / 2], LIST(LOW));
          w[2 * i + 1] = SHUFFLE(LEVEL(order), v[i], v[i + LANES / 2], LIST(HIGH));
        }
        UNROLL(int i = 0; i < LANES; i++) v[i] = w[i];
      }
      UNROLL(int i = 0; i < LANES; i++) *(VEC *)(to + (k + i) * COLS + half) = v[i];
    }
  }
#undef LOW
#undef HIGH
}

/* ROWS rows at a time of a[rows, depth], each DOWN apart; those from `rows` on are 0. */
TARGET MN_INLINE void LEVEL(pack_rows)(real *to, const real *a, int64_t ld, int64_t rows, int64_t depth) {
  for (int64_t i = 0; i < (rows + ROWS - 1) / ROWS * ROWS; i++, a += ld, to += DOWN) {
    int64_t k = 0;
    for (; i < rows && k + LANES <= depth; k += LANES) *(VEC *)(to + k) = *(const VEC *)(a + k);
    for (; k < depth; k++) to[k] = i < rows ? a[k] : 0;
  }
}

/* The same of a[depth, rows]: [depth, ROWS] each time, at the same place. */
TARGET MN_INLINE void LEVEL(pack_across)(real *to, const real *a, int64_t ld, int64_t rows, int64_t depth) {
  for (int64_t k = 0; k < depth; k++, a += ld, to += ROWS)
    for (int64_t i = 0; i < rows; i += ROWS)
      if (rows - i >= ROWS)
        memcpy(to + i * DOWN, a + i, ROWS * sizeof(real));
      else
        for (int r = 0; r < ROWS; r++) to[i * DOWN + r] = i + r < rows ? a[i + r] : 0;
}

/* Where the panels of a block of the depth are: each one's first real, and how far apart they are. */
struct LEVEL(panels) {
  const real *first;
  int64_t apart;
};

/* A strip of a row: cols of d from `d` on. */
TARGET MN_INLINE void LEVEL(along_row)(const real *a, struct LEVEL(panels) b, int64_t depth,
                                       const struct mn_product *p, real *d, int64_t cols, real beta) {
  int64_t c = 0;
#define SOME(panels)                                                                                         \
  LEVEL(row)(a, b.first + c / COLS * b.apart, b.apart, depth, panels, p, d + c, cols - c, beta)
  for (; cols - c > 2 * COLS; c += PANELS * COLS) cols - c > 3 * COLS ? SOME(PANELS) : SOME(3);
  if (cols - c > COLS)
    SOME(2);
  else if (cols > c)
    SOME(1);
#undef SOME
}

/* The rows of d that `a` has packed, by a strip of columns. */
TARGET MN_INLINE void LEVEL(rows)(const real *a, struct LEVEL(panels) b, int64_t depth,
                                  const struct mn_product *p, real *d, int64_t rows, int64_t cols,
                                  real beta) {
  for (int64_t c = 0; c < cols; c += COLS)
    for (int64_t i = 0; i < rows; i += ROWS) {
      real *to = d + i * p->cols + c;
      const real *part = a + i * DOWN, *panel = b.first + c / COLS * b.apart;
      const int high = rows - i < ROWS ? (int)(rows - i) : ROWS;
      const int wide = cols - c < COLS ? (int)(cols - c) : COLS;
#define SOME(down, along, most, vectors)                                                                     \
  LEVEL(registers)(part, down, along, panel, depth, most, vectors, p, to, high, wide, beta)
      if (p->form == MN_TN && wide > LANES)
        SOME(1, ROWS, ROWS, 2);
      else if (p->form == MN_TN)
        SOME(1, ROWS, ROWS, 1);
      else if (high <= ROWS / 2 && wide > LANES)
        SOME(DOWN, 1, ROWS / 2, 2);
      else if (wide > LANES)
        SOME(DOWN, 1, ROWS, 2);
      else
        SOME(DOWN, 1, ROWS, 1);
#undef SOME
    }
}

TARGET static void LEVEL(tile)(const struct mn_product *p, struct mn_tile t, real *room) {
  real *const a = room, *const b = room + TALL * ROWS * DOWN;
  const int64_t last_row = t.row + t.rows, last_col = t.col + t.cols, length = block_length(p->depth);
  for (int64_t col = t.col; col < last_col; col += STRIP)
    for (int64_t k = 0; k < p->depth; k += length) {
      const int64_t depth = p->depth - k < length ? p->depth - k : length;
      const int64_t cols = last_col - col < STRIP ? last_col - col : STRIP;
      const real beta = k ? 1 : p->beta;
      struct LEVEL(panels) panels = {b, PANEL};
      if (p->packed)
        panels.first = p->packed + k * WIDTH(p->cols) + col * depth, panels.apart = depth * COLS;
      else if (p->form != MN_NT)
        LEVEL(pack)(b, p->b + k * p->cols + col, p->cols, depth, cols);
      for (int64_t c = 0; p->form == MN_NT && !p->packed && c < cols; c += COLS) LEVEL(pack_transposed)
      (b + c / COLS * PANEL, p->b + (col + c) * p->depth + k, p->depth, depth,
       cols - c < COLS ? (int)(cols - c) : COLS);
      if (t.rows == 1 && p->form != MN_TN) {
        LEVEL(along_row)
        (p->a + t.row * p->depth + k, panels, depth, p, p->d + t.row * p->cols + col, cols, beta);
        continue;
      }
      for (int64_t row = t.row; row < last_row; row += TALL * ROWS) {
        const int64_t rows = last_row - row < TALL * ROWS ? last_row - row : TALL * ROWS;
        if (p->form == MN_TN)
          LEVEL(pack_across)(a, p->a + k * p->rows + row, p->rows, rows, depth);
        else
          LEVEL(pack_rows)(a, p->a + row * p->depth + k, p->depth, rows, depth);
        LEVEL(rows)(a, panels, depth, p, p->d + row * p->cols + col, rows, cols, beta);
      }
    }
}

TARGET static void LEVEL(pack_all)(real *to, const real *b, int64_t cols, int64_t depth) {
  const int64_t length = block_length(depth);
  for (int64_t k = 0; k < depth; k += length) {
    const int64_t here = depth - k < length ? depth - k : length;
    for (int64_t c = 0; c < cols; c += COLS, to += here * COLS) LEVEL(pack_transposed)
    (to, b + c * depth + k, depth, here, cols - c < COLS ? (int)(cols - c) : COLS);
  }
}

#undef VEC
#undef COLS
#undef PANEL
#undef PANELS
#undef DOWN
#undef WIDTH
#undef LEVEL
#undef TARGET
#undef LANES
#undef ROWS
