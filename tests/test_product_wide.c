/* The same of doubles. */
#define MN_DOUBLE
#include "tests/test_product.c"
