/* How the sanitizers judge a program that reads damaged files: their options stand in sanitizers.c. */
#ifndef MN_TESTS_TORN_SANITIZERS_H
#define MN_TESTS_TORN_SANITIZERS_H

/* Has libhdf5 give back at once what it would keep on lists of its own, where AddressSanitizer does not see
 * that something is used, or given back, once more. */
void torn_sharpen(void);

#endif
