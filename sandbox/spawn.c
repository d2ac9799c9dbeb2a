/* The last steps before the agent runs. They are C and not Go for two reasons:
 * each is bound to one thread, and a second start of the Go runtime would cost
 * five milliseconds. Everything between clone and execve is a raw system call:
 * the child of a threaded process may not take a lock. */
#define _GNU_SOURCE
#include "spawn.h"
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* Where the two descriptors lie that outlive the sweep; both close on exec. */
#define REPORT_FD 3
#define RULESET_FD 4

struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

static struct hw_inherited inherited;

/* The Go runtime's watching thread looks round every 20 microseconds while a
 * launch is at work, which is dear: each look is a timer and two switches. With
 * this slack (nanoseconds, prctl(2)) it looks far less often. Threads and
 * children inherit it; the command gets back what we were started with. */
#define DROWSY 1000000UL

/* Runs before the Go runtime installs handlers for every signal and starts its
 * first thread. The proxy serves for long, and stays awake. */
__attribute__((constructor)) static void remember(int argc, char **argv)
{
	struct kernel_sigaction sa;
	int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	if (slack > 0) {
		inherited.timer_slack = (uint64_t)slack;
		if (argc < 1 || strcmp(argv[0], HW_PROXY_ARG0) != 0)
			prctl(PR_SET_TIMERSLACK, DROWSY, 0, 0, 0);
	}
	for (int sig = 1; sig <= 64; sig++) {
		if (sig == SIGKILL || sig == SIGSTOP)
			continue;
		if (syscall(SYS_rt_sigaction, sig, NULL, &sa, 8) == 0 && sa.handler == SIG_IGN)
			inherited.ignored |= 1ULL << (sig - 1);
	}
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &inherited.blocked, 8);
}

struct hw_inherited hw_inherited(void)
{
	return inherited;
}

/* Written by the child only, before it has threads. */
static int report_fd;

static void fail(int step, int err, int detail)
{
	struct hw_report r = {step, err, detail};
	ssize_t n = write(report_fd, &r, sizeof r);
	(void)n;
	syscall(SYS_exit_group, 125);
	__builtin_unreachable();
}

/* lift copies a descriptor out of the range that is about to be laid out. */
static int lift(int fd, int step)
{
	long up = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 64);
	if (up < 0)
		fail(step, errno, fd);
	return (int)up;
}

static void lay(int from, int to, int flags, int step)
{
	if (syscall(SYS_dup3, from, to, flags) < 0)
		fail(step, errno, to);
}

/* Leaves 0, 1, 2, the report and the ruleset open, and nothing else
 * (CVE-2024-21626 was one descriptor too many). */
static void lay_descriptors(const struct hw_spawn *s)
{
	int std[3], report, ruleset = -1;
	for (int i = 0; i < 3; i++)
		std[i] = lift(s->stdio[i], HW_STEP_STDIO);
	report = lift(s->report_fd, HW_STEP_CLOSE);
	if (s->ruleset_fd >= 0)
		ruleset = lift(s->ruleset_fd, HW_STEP_CLOSE);
	report_fd = report;
	for (int i = 0; i < 3; i++)
		lay(std[i], i, 0, HW_STEP_STDIO);
	lay(report, REPORT_FD, O_CLOEXEC, HW_STEP_CLOSE);
	report_fd = REPORT_FD;
	if (ruleset >= 0)
		lay(ruleset, RULESET_FD, O_CLOEXEC, HW_STEP_CLOSE);
	if (syscall(SYS_close_range, ruleset >= 0 ? RULESET_FD + 1 : REPORT_FD + 1, ~0U, 0) < 0)
		fail(HW_STEP_CLOSE, errno, 0);
}

/* may_set_caps tells whether CAP_SETPCAP is there; where that cannot be seen, it is. */
static int may_set_caps(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct have[2];
	memset(have, 0, sizeof have);
	return syscall(SYS_capget, &head, have) < 0 || (have[0].effective & 1U << CAP_SETPCAP);
}

/* An execve by user id 0 would fill the permitted set again from the bounding
 * set; an empty bounding set leaves nothing to regain. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2];
	memset(none, 0, sizeof none);
	for (int c = 0; c < 64; c++) {
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0) {
			int err = errno;
			if (err == EINVAL)
				break; /* past the last capability of this kernel */
			/* Without CAP_SETPCAP (weaker tier) the set cannot be
			 * changed, and no_new_privs keeps it from being used.
			 * With it, a refusal would leave the rest of the set. */
			if (err == EPERM && !may_set_caps())
				break;
			fail(HW_STEP_CAPS, err, c);
		}
	}
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, none) < 0)
		fail(HW_STEP_CAPS, errno, -1);
}

static void reset_signals(const struct hw_spawn *s)
{
	struct kernel_sigaction sa;
	for (int sig = 1; sig <= 64; sig++) {
		if (sig == SIGKILL || sig == SIGSTOP)
			continue;
		memset(&sa, 0, sizeof sa);
		sa.handler = (s->inherited.ignored >> (sig - 1)) & 1 ? SIG_IGN : SIG_DFL;
		if (syscall(SYS_rt_sigaction, sig, &sa, NULL, 8) < 0 && errno != EINVAL)
			fail(HW_STEP_SIGNALS, errno, sig);
	}
	/* The starter leaves them all blocked. */
	if (!s->starter && syscall(SYS_rt_sigprocmask, SIG_SETMASK, &s->inherited.blocked, NULL, 8) < 0)
		fail(HW_STEP_SIGNALS, errno, 0);
}

static int probe_connect(int port)
{
	struct sockaddr_in to;
	int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 1;
	memset(&to, 0, sizeof to);
	to.sin_family = AF_INET;
	to.sin_port = htons((uint16_t)port);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	long r = syscall(SYS_connect, fd, &to, sizeof to);
	syscall(SYS_close, fd);
	return r < 0;
}

static int probe_caps(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct have[2];
	memset(have, 0, sizeof have);
	if (syscall(SYS_capget, &head, have) < 0)
		return 0;
	return !(have[0].effective | have[1].effective | have[0].permitted | have[1].permitted);
}

/* held tells whether the protection that the probe attacks held. */
static int held(const struct hw_probe *p)
{
	long r;
	switch (p->kind) {
	case HW_PROBE_OPEN_READ:
	case HW_PROBE_OPEN_WRITE:
		r = syscall(SYS_openat, AT_FDCWD, p->path,
			    (p->kind == HW_PROBE_OPEN_READ ? O_RDONLY : O_WRONLY) | O_CLOEXEC | O_NONBLOCK, 0);
		if (r >= 0)
			syscall(SYS_close, r);
		return r < 0;
	case HW_PROBE_SYSCALL:
		return syscall(SYS_unshare, CLONE_NEWUSER) < 0 && errno == EPERM;
	case HW_PROBE_CONNECT:
		return probe_connect(p->port);
	case HW_PROBE_IOURING:
		return syscall(425, 1, NULL) < 0 && errno == ENOSYS;
	case HW_PROBE_CAPS:
		return probe_caps();
	}
	return 0;
}

static void child(const struct hw_spawn *s)
{
	char go;
	report_fd = s->report_fd;
	/* A parent that is killed before it says "go" must not leave us waiting. */
	syscall(SYS_close, s->go_write_fd);
	ssize_t n = read(s->go_fd, &go, 1);
	if (n != 1)
		fail(HW_STEP_MAP, n < 0 ? errno : EPIPE, 0);
	if (s->inherited.timer_slack)
		prctl(PR_SET_TIMERSLACK, (unsigned long)s->inherited.timer_slack, 0, 0, 0);

	if (syscall(SYS_setpgid, 0, 0) < 0)
		fail(HW_STEP_GROUP, errno, 0);
	if (s->tty >= 0) {
		/* SIGTTOU is blocked here like every other signal. */
		pid_t self = (pid_t)syscall(SYS_getpid);
		if (syscall(SYS_ioctl, s->tty, TIOCSPGRP, &self) < 0)
			fail(HW_STEP_TERMINAL, errno, 0);
	}

	lay_descriptors(s);
	for (int i = 0; i < s->rlimits_len; i++) {
		struct rlimit64 { uint64_t cur, max; } l = {s->rlimits[i].soft, s->rlimits[i].hard};
		if (syscall(SYS_prlimit64, 0, s->rlimits[i].resource, &l, NULL) < 0)
			fail(HW_STEP_RLIMIT, errno, s->rlimits[i].resource);
	}
	if (s->umask >= 0)
		syscall(SYS_umask, s->umask);
	if (syscall(SYS_chdir, s->cwd) < 0)
		fail(HW_STEP_CHDIR, errno, 0);

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail(HW_STEP_NNP, errno, 0);
	if (s->ruleset_fd >= 0 && syscall(SYS_landlock_restrict_self, RULESET_FD, s->ruleset_flags) < 0)
		fail(HW_STEP_LANDLOCK, errno, 0);
	syscall(SYS_close, RULESET_FD);

	int guard = -1;
	if (s->guard && s->guard->n > 0) {
		int r = hw_guard_start(s->guard, &guard);
		if (r < 0)
			fail(HW_STEP_GUARD, -r, 1);
	}
	if (guard < 0) {
		int r = hw_guard_absent();
		if (r < 0)
			fail(HW_STEP_GUARD, -r, 3);
	}
	/* After the guard, whose broker may need CAP_SYS_PTRACE for itself. */
	drop_capabilities();
	if (guard >= 0) {
		int r = hw_guard_arm(guard, s->guard);
		if (r < 0)
			fail(HW_STEP_GUARD, -r, 2);
	}
	reset_signals(s);
	if (s->filter_len) {
		struct sock_fprog prog = {s->filter_len, (struct sock_filter *)s->filter};
		if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
			fail(HW_STEP_SECCOMP, errno, 0);
	}
	for (int i = 0; i < s->probes_len; i++)
		if (!held(&s->probes[i]))
			fail(HW_STEP_SELFTEST, 0, i);

	if (s->starter) {
		/* After the self-test: files in /proc/self change their owner. */
		int r = hw_starter_hide();
		if (r < 0)
			fail(HW_STEP_STARTER, -r, 0);
		syscall(SYS_close, REPORT_FD); /* its end says that all of this held */
		hw_starter_serve(s->inherited.blocked);
	}
	syscall(SYS_execve, s->path, s->argv, s->envp);
	fail(HW_STEP_EXEC, errno, 0);
}

pid_t hw_spawn(const struct hw_spawn *s)
{
	uint64_t all = ~0ULL, before;
	/* No Go signal handler may run in the child. */
	if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, 8) < 0)
		return -errno;
	unsigned long flags = SIGCHLD | (s->new_userns ? CLONE_NEWUSER : 0);
	long pid = syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
	int err = errno;
	if (pid == 0)
		child(s);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8);
	return pid < 0 ? -err : (pid_t)pid;
}
