#ifndef HW_SPAWN_H
#define HW_SPAWN_H

#include <linux/filter.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "guard.h"

/* The named steps of starting the agent; the numbers travel over the report
 * pipe and are turned into words by spawn_linux.go. */
enum hw_step {
	HW_STEP_NONE = 0,
	HW_STEP_MAP,
	HW_STEP_GROUP,
	HW_STEP_TERMINAL,
	HW_STEP_STDIO,
	HW_STEP_CLOSE,
	HW_STEP_RLIMIT,
	HW_STEP_CHDIR,
	HW_STEP_CAPS,
	HW_STEP_NNP,
	HW_STEP_LANDLOCK,
	HW_STEP_GUARD,
	HW_STEP_SIGNALS,
	HW_STEP_SECCOMP,
	HW_STEP_SELFTEST,
	HW_STEP_EXEC,
	HW_STEP_FORK,
	HW_STEP_ORDER,
	HW_STEP_STARTER,
};

/* What must fail once the process is confined. */
enum hw_probe_kind {
	HW_PROBE_OPEN_READ = 1,  /* path: open(O_RDONLY) must fail */
	HW_PROBE_OPEN_WRITE,     /* path: open(O_WRONLY) must fail */
	HW_PROBE_SYSCALL,        /* unshare(CLONE_NEWUSER) must give EPERM */
	HW_PROBE_CONNECT,        /* connect to 127.0.0.1:port must fail */
	HW_PROBE_IOURING,        /* io_uring_setup must give ENOSYS */
	HW_PROBE_CAPS,           /* the effective capability set must be empty */
};

struct hw_probe {
	int kind;
	const char *path;
	int port;
};

struct hw_rlimit {
	int resource;
	uint64_t soft, hard;
};

/* What our caller passed on to us, and the command gets. */
struct hw_inherited {
	uint64_t ignored;     /* bit n-1: signal n is ignored */
	uint64_t blocked;
	uint64_t timer_slack; /* PR_SET_TIMERSLACK(2const), in nanoseconds; 0: as it is */
};

struct hw_spawn {
	int new_userns;              /* clone into a user namespace of its own */
	int ruleset_fd;              /* Landlock ruleset, or -1 */
	unsigned int ruleset_flags;
	const struct sock_filter *filter;
	unsigned short filter_len;   /* 0: no filter */
	const struct hw_guard *guard;/* may be NULL */
	const char *path;
	char *const *argv;
	char *const *envp;
	const char *cwd;
	int stdio[3];
	int tty;                     /* terminal to put the group in the foreground of, or -1 */
	int umask;                   /* or -1 */
	struct hw_inherited inherited;
	const struct hw_rlimit *rlimits;
	int rlimits_len;
	const struct hw_probe *probes;
	int probes_len;
	int go_fd;                   /* a byte arrives here when the id maps are written */
	int go_write_fd;             /* its other end, which the child must not hold: it waits for the byte or the end */
	int report_fd;               /* struct hw_report on failure, end of file on success */
	int starter;                 /* become the starter (starter.h) and execute nothing; stdio is its socket */
};

struct hw_report {
	int32_t step;
	int32_t err;
	int32_t detail;
};

/* hw_spawn starts a confined process and gives its pid, or -errno. The caller then
 * writes the id maps and a byte to go_fd's other end. */
pid_t hw_spawn(const struct hw_spawn *s);

/* What this process was started with, read before the Go runtime changes it. */
struct hw_inherited hw_inherited(void);

/* What the proxy is called in its argument vector. */
#define HW_PROXY_ARG0 "hermes-wrap: proxy"

#endif
