/* Lets a test that may not say `unsafe` fork: asking for the parent's number forks instead, and gives what fork gives. */
#define _GNU_SOURCE
#include <unistd.h>
pid_t getppid(void) { return fork(); }
