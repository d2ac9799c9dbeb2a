/* open(2) that may create or change. */
#include "guard_internal.h"

#include <linux/stat.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>

#define TTY_MAJOR 5

/* The kernel's own struct: libc's differs and its sigaction(3) may take a lock. */
struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

#if defined(__x86_64__)
#define SA_RESTORER 0x04000000UL
/* Returning from a handler needs this on x86-64; elsewhere the vDSO has it. */
__attribute__((naked, noinline)) static void restore(void)
{
	__asm__ volatile("mov $15, %eax\n\tsyscall");
}
#endif

static void on_alarm(int sig) { (void)sig; }

static long as_fd(long fd) { return fd < 0 ? fd : HW_FD + fd; }

/* In the worker: interrupts a waiting open(2) every 20 ms, to see whether the caller still wants it. */
static void tick(void)
{
	struct kernel_sigaction sa = { .handler = on_alarm };
	struct itimerval every = { { 0, 20000 }, { 0, 20000 } };
	uint64_t none = 0;

#if defined(__x86_64__)
	sa.flags = SA_RESTORER;
	sa.restorer = restore;
#endif
	SYS(SYS_rt_sigaction, SIGALRM, &sa, NULL, 8L);
	/* Everything stays blocked except the alarm. */
	none = ~(1ULL << (SIGALRM - 1));
	SYS(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8L);
	SYS(SYS_setitimer, ITIMER_REAL, &every, NULL);
}

/*
 * Opens a FIFO in a process of its own: it may wait for the other end for ever,
 * and the broker may not. The worker creates nothing. It dies with the broker.
 */
static long open_waiting(struct hw_call *c, int dir, const char *name, int flags)
{
	long r = SYS(SYS_clone, (unsigned long)SIGCHLD, 0L, 0L, 0L, 0L);

	if (r != 0)
		return r < 0 ? r : HW_DEFERRED;
	SYS(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0L, 0L, 0L);
	if (SYS(SYS_getppid) != hw_broker.pid)
		SYS(SYS_exit_group, 0);
	tick();
	for (;;) {
		r = SYS(SYS_openat, dir, name, flags);
		if (r != -EINTR)
			break;
		if (!hw_guard_valid(c->n))
			SYS(SYS_exit_group, 0);
		r = hw_task_signalled(c);
		if (r != 0)
			break;
	}
	hw_guard_answer(c->n, r < 0 ? r : HW_FD + r);
	SYS(SYS_exit_group, 0);
	__builtin_unreachable();
}

/* Opens /dev/tty as the caller's terminal: the device itself would mean the broker's. */
static long open_tty(struct hw_call *c, int dir, const char *name, int flags)
{
	char pts[24] = "/dev/pts/";
	long n = hw_task_tty(c);

	if (n == HW_DEFERRED)
		return as_fd(SYS(SYS_openat, dir, name, flags));
	if (n < 0)
		return n;
	hw_decimal(pts + 9, (unsigned)n);
	return as_fd(SYS(SYS_openat, hw_broker.root, pts, flags | O_NOCTTY));
}

/* Opens what exists, of the given kind. */
static long open_existing(struct hw_call *c, int dir, const char *name, int flags, const struct statx *st)
{
	long r;

	if (S_ISFIFO(st->stx_mode) && !(flags & O_NONBLOCK) && (flags & O_ACCMODE) != O_RDWR)
		return open_waiting(c, dir, name, flags & ~O_CREAT);
	if (S_ISCHR(st->stx_mode) && st->stx_rdev_major == TTY_MAJOR && st->stx_rdev_minor == 0)
		return open_tty(c, dir, name, flags & ~O_CREAT);
	r = SYS(SYS_openat, dir, name, flags, 0);
	return S_ISCHR(st->stx_mode) && r >= 0 ? HW_FD_SHARED + r : as_fd(r);
}

static long stat_at(int dir, const char *name, int flags, struct statx *st)
{
	return SYS(SYS_statx, dir, name, flags | AT_STATX_DONT_SYNC, STATX_TYPE, st);
}

/* Opens a regular file that a link of procfs leads to, to change it. */
static long open_object(struct hw_place *p, int flags)
{
	char link[32];
	/* What is asked about and what is opened is one object, whatever the link leads to by then. */
	long r, fd = SYS(SYS_openat, p->dir, p->name, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return fd;
	hw_decimal(strcpy(hw_decimal(link, (unsigned)hw_broker.pid), "/fd/") + 4, (unsigned)fd);
	r = hw_object_protected((int)fd) ? -EROFS : SYS(SYS_openat, hw_broker.proc, link, flags);
	hw_close((int)fd);
	return as_fd(r);
}

/* Inside procfs nothing can be created, and its links lead to objects rather than names. */
static long open_proc(struct hw_call *c, struct hw_place *p, int flags)
{
	struct statx st;
	long r = stat_at(p->dir, p->name, AT_SYMLINK_NOFOLLOW, &st);

	if (r < 0)
		return r;
	if (flags & O_EXCL)
		return -EEXIST;
	if (!S_ISLNK(st.stx_mode))
		return as_fd(SYS(SYS_openat, p->dir, p->name, (flags & ~O_CREAT) | O_NOFOLLOW));
	if (flags & O_NOFOLLOW)
		return -ELOOP;
	r = stat_at(p->dir, p->name, 0, &st);
	if (r < 0)
		return r;
	if (S_ISREG(st.stx_mode) && ((flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC))
		return open_object(p, flags & ~O_CREAT);
	return open_existing(c, p->dir, p->name, flags & ~O_CREAT, &st);
}

/* A protected name, as on a read-only file system. */
static long open_protected(struct hw_place *p, int flags)
{
	struct statx st;
	long r = stat_at(p->dir, p->name, AT_SYMLINK_NOFOLLOW, &st);

	if (r < 0)
		return r == -ENOENT && flags & O_CREAT ? -EROFS : r;
	if (flags & O_EXCL)
		return -EEXIST;
	if (!S_ISREG(st.stx_mode) || (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
		return -EROFS;
	return as_fd(SYS(SYS_openat, p->dir, p->name, (flags & ~O_CREAT) | O_NOFOLLOW));
}

/* Opens p->name, not following it; 1 says that it is a symbolic link to follow, -EAGAIN that it has just appeared. */
static long open_here(struct hw_call *c, struct hw_place *p, int flags, unsigned mode)
{
	size_t n = strcspn(p->name, "/");
	struct statx st;
	long r;

	if (p->proc)
		return open_proc(c, p, flags);
	if (hw_place_protected(p))
		return open_protected(p, flags);
	/* "name/", "." and "..": the kernel has an error for each, and O_EXCL never follows or waits. */
	if (p->name[n] || strcmp(p->name, ".") == 0 || strcmp(p->name, "..") == 0 || (flags & O_EXCL))
		return as_fd(SYS(SYS_openat, p->dir, p->name, flags | O_NOFOLLOW, mode));
	r = stat_at(p->dir, p->name, AT_SYMLINK_NOFOLLOW, &st);
	if (r == -ENOENT && flags & O_CREAT) {
		r = SYS(SYS_openat, p->dir, p->name, flags | O_EXCL, mode);
		return r == -EEXIST ? -EAGAIN : as_fd(r);
	}
	if (r < 0)
		return r;
	if (S_ISLNK(st.stx_mode) && !(flags & O_NOFOLLOW))
		return 1;
	return open_existing(c, p->dir, p->name, flags | O_NOFOLLOW, &st);
}

/* Carries out open(2). Agents cannot slip a link or a FIFO in between two steps: they create only through here. */
long hw_guard_open(struct hw_call *c, int dirfd, uint64_t path, int flags, unsigned mode)
{
	static struct hw_place p;
	long r = hw_place_arg(c, dirfd, path, &p);
	int links = 0, again = 0;

	if (r < 0)
		return r;
	r = hw_task_umask(c);
	flags |= O_CLOEXEC;
	if (!(flags & O_CREAT))
		flags &= ~O_EXCL; /* it means something for devices of blocks alone */
	while (r >= 0) {
		r = open_here(c, &p, flags, mode);
		if (r == -EAGAIN && again++ < 8) {
			r = 0;
			continue;
		}
		if (r != 1)
			break;
		r = ++links > HW_SYMLINKS ? -ELOOP : hw_place_follow(c, &p);
	}
	hw_place_drop(&p);
	return r;
}
