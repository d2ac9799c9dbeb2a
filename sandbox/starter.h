/*
 * The starter: the process that was confined and tested first, and forks every
 * program of the sandbox, the command included. A Landlock domain is passed on
 * by fork only, so this is the one way to start something later in the same
 * domain, where all may signal each other, under the same filter, limits and
 * guard. What it forks is a child of init's (CLONE_PARENT), which waits for it.
 *
 * It is one thread of C, not dumpable (its memory and descriptors, and those of
 * a child before execve(2), are closed to the agent), and takes orders from the
 * other end of one socket only, which init holds.
 */
#ifndef HW_STARTER_H
#define HW_STARTER_H

#include <stdint.h>

/* An order is one packet with four descriptors: a sealed memfd, and the
 * standard streams. The memfd begins with four offsets: of the list of programs
 * to try in turn, of the arguments, of the environment, of the working
 * directory. A list is offsets of strings, ended by 0. */
struct hw_order {
	uint32_t id;      /* repeated in the first answer */
	uint32_t flags;
	int32_t tty;      /* the standard stream that is its terminal, or -1 */
	uint32_t unused;
	uint64_t size;    /* of the memfd */
};

enum {
	HW_ORDER_SESSION = 1, /* a session of its own, with the terminal as the controlling one */
	/* else a process group in init's session, in the terminal's foreground */
};

/* What the starter says to each order, in one packet. */
enum hw_word_kind {
	HW_WORD_STARTED = 1,
	HW_WORD_FAILED,
};

struct hw_word {
	uint32_t kind;
	uint32_t id;
	int32_t pid;  /* of what was started */
	int32_t step; /* enum hw_step, of what failed */
	int32_t err;
};

/* hw_starter_hide closes the calling process to others of its user, before it
 * serves. It gives 0 or -errno. */
int hw_starter_hide(void);

/* hw_starter_serve carries out orders from descriptor 0 until its other end is
 * closed. Every signal must be blocked; the programs get sig_blocked. */
_Noreturn void hw_starter_serve(uint64_t sig_blocked);

#endif
