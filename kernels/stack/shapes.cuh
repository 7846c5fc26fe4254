/* The shapes of tiles that the kernel is compiled for, and the choice among them. */
#ifndef MN_KERNELS_STACK_SHAPES_CUH
#define MN_KERNELS_STACK_SHAPES_CUH

#include "kernels/stack/step.cuh"

/* A compiled kernel that can run a stack, or kernel NULL. */
struct mn_stack_plan {
  void (*kernel)(const mn_stack_args);
  int threads, lane_channels; /* T (tile.cuh) */
  int shared, tiles;          /* bytes; how many tiles the rows are */
  bool reloads;
};

template <enum mn_plane_kind Kind> struct mn_stack_shapes {
  /* For a device that gives a CTA so many bytes of shared memory. */
  static mn_stack_plan choose(const struct mn_stack *stack, int shared);
};

/* Takes the shape if it fits; returns whether the search goes on. */
template <class S> static bool mn_stack_try(mn_stack_plan &plan, const struct mn_stack *s, int shared) {
  const int64_t group = s->channels / s->groups;
  if (s->channels != S::W || group < S::T || group > 8 * S::T) return true;
  /* Small tiles of wide blocks, of which each CTA has more than two, are slower than single blocks
   * (NOTES.md). */
  if (S::W > 64 && S::Rows < 64 && s->rows > 2 * S::Rows * MN_STACK_PARTS) return true;
  for (int reloads = 0; reloads <= (S::Trains && s->depth >= 3); reloads++) {
    const int bytes = mn_stack_room<S>(s->depth, s->outputs > 0, reloads).end;
    if (bytes > shared) continue;
    plan = {mn_stack_kernel<S>, S::Threads, S::T, bytes, (int)((s->rows + S::Rows - 1) / S::Rows),
            reloads > 0};
    return s->rows > S::Rows * MN_STACK_PARTS;
  }
  return true;
}

/* The smallest tiles first, until each CTA has one; of more rows, the largest tiles that fit. */
template <enum mn_plane_kind Kind, bool Trains>
static mn_stack_plan mn_stack_search(const struct mn_stack *s, int shared) {
  mn_stack_plan plan = {};
  (void)(mn_stack_try<mn_stack_shape<Kind, 64, 2, 1, 4, Trains>>(plan, s, shared) &&
         mn_stack_try<mn_stack_shape<Kind, 64, 2, 2, 2, Trains>>(plan, s, shared) &&
         mn_stack_try<mn_stack_shape<Kind, 64, 4, 2, 2, Trains>>(plan, s, shared) &&
         mn_stack_try<mn_stack_shape<Kind, 64, 4, 4, 1, Trains>>(plan, s, shared) &&
         mn_stack_try<mn_stack_shape<Kind, 64, 4, 8, 1, Trains>>(plan, s, shared) &&
         mn_stack_try<mn_stack_shape<Kind, 128, 2, 1, 4, Trains>>(plan, s, shared) &&
         mn_stack_try<mn_stack_shape<Kind, 128, 2, 2, 4, Trains>>(plan, s, shared) &&
         mn_stack_try<mn_stack_shape<Kind, 128, 4, 2, 4, Trains>>(plan, s, shared));
  return plan;
}

template <enum mn_plane_kind Kind>
mn_stack_plan mn_stack_shapes<Kind>::choose(const struct mn_stack *stack, int shared) {
  return stack->y ? mn_stack_search<Kind, false>(stack, shared) : mn_stack_search<Kind, true>(stack, shared);
}

#endif
