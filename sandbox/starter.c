/* Starting processes in the domain of the first; see starter.h. */
#define _GNU_SOURCE
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spawn.h"

#define ORDERS 0 /* the socket */
#define ORDER_FDS 4

/* What the child works from. It shares the starter's memory until it executes,
 * and the starter sleeps that long. */
static struct {
	uint64_t sig_blocked;
	struct hw_order order;
	int stdio[3];
	char **programs, **argv, **envp, *cwd;
	int step, err; /* what failed */
} task;

static _Alignas(16) char child_stack[32 << 10];

int hw_starter_hide(void)
{
	prctl(PR_SET_NAME, "hw-starter", 0, 0, 0);
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

static void say(uint32_t kind, pid_t pid, int step, int err)
{
	struct hw_word w = {kind, task.order.id, pid, step, err};
	while (syscall(SYS_write, ORDERS, &w, sizeof w) < 0 && errno == EINTR)
		;
}

/* Ends the child, which is no thread: the exit is its own. */
static _Noreturn void give_up(int step)
{
	task.err = errno;
	task.step = step;
	for (;;)
		syscall(SYS_exit_group, 127);
}

static void take_place(void)
{
	int tty = task.order.tty < 0 ? -1 : task.stdio[task.order.tty];

	if (task.order.flags & HW_ORDER_SESSION) {
		if (syscall(SYS_setsid) < 0)
			give_up(HW_STEP_GROUP);
		if (tty >= 0 && syscall(SYS_ioctl, tty, TIOCSCTTY, 0) < 0)
			give_up(HW_STEP_TERMINAL);
		return;
	}
	if (syscall(SYS_setpgid, 0, 0) < 0)
		give_up(HW_STEP_GROUP);
	if (tty >= 0) {
		/* SIGTTOU is blocked here like every other signal. */
		pid_t self = (pid_t)syscall(SYS_getpid);
		if (syscall(SYS_ioctl, tty, TIOCSPGRP, &self) < 0)
			give_up(HW_STEP_TERMINAL);
	}
}

/* Tries the programs in turn, as execvp(3) does. */
static void execute(void)
{
	int denied = 0;

	errno = ENOENT;
	for (char **p = task.programs; *p; p++) {
		syscall(SYS_execve, *p, task.argv, task.envp);
		if (errno == EACCES)
			denied = 1;
		else if (errno != ENOENT && errno != ENOTDIR)
			break;
	}
	if (denied && (errno == ENOENT || errno == ENOTDIR))
		errno = EACCES;
	give_up(HW_STEP_EXEC);
}

static int child(void *unused)
{
	(void)unused;
	take_place();
	for (int i = 0; i < 3; i++)
		if (syscall(SYS_dup3, task.stdio[i], i, 0) < 0)
			give_up(HW_STEP_STDIO);
	if (syscall(SYS_chdir, task.cwd) < 0)
		give_up(HW_STEP_CHDIR);
	if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &task.sig_blocked, NULL, 8) < 0)
		give_up(HW_STEP_SIGNALS);
	execute();
	return 0;
}

/* Turns the offsets of a list into pointers. */
static char **point(char *base, uint64_t size, uint64_t at)
{
	if (at % 8 || at >= size)
		return NULL;
	/* Only now: a pointer far outside of the block must not even be computed. */
	uint64_t *list = (uint64_t *)(base + at);
	for (uint64_t *p = list; (char *)(p + 1) <= base + size; p++) {
		if (!*p)
			return (char **)list;
		if (*p >= size)
			return NULL;
		*p += (uint64_t)(uintptr_t)base;
	}
	return NULL;
}

static int read_order(char *base, uint64_t size)
{
	uint64_t head[4];

	if (size < 5 * 8 || base[size - 1])
		return 0;
	/* A copy: lists are changed in place, and one could lie over the offsets. */
	memcpy(head, base, sizeof head);
	if (head[3] >= size)
		return 0;
	task.programs = point(base, size, head[0]);
	task.argv = point(base, size, head[1]);
	task.envp = point(base, size, head[2]);
	task.cwd = base + head[3];
	return task.programs && task.argv && task.envp;
}

/* Starts the child, which has executed, or failed and ended, when this returns. */
static void run_child(void)
{
	task.step = HW_STEP_NONE;
	int pid = clone(child, child_stack + sizeof child_stack, CLONE_PARENT | CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	if (pid < 0)
		say(HW_WORD_FAILED, 0, HW_STEP_FORK, errno);
	else if (task.step != HW_STEP_NONE)
		say(HW_WORD_FAILED, 0, task.step, task.err);
	else
		say(HW_WORD_STARTED, pid, 0, 0);
}

static void carry_out(int memory)
{
	uint64_t size = task.order.size;
	char *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory, 0);

	if (base == MAP_FAILED) {
		say(HW_WORD_FAILED, 0, HW_STEP_ORDER, errno);
		return;
	}
	if (read_order(base, size))
		run_child();
	else
		say(HW_WORD_FAILED, 0, HW_STEP_ORDER, EINVAL);
	munmap(base, size);
}

/* Takes one order. Gives 0 when there is none and flags say not to wait. */
static int take_order(int flags)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(ORDER_FDS * sizeof(int))];
	} control;
	struct iovec iov = {&task.order, sizeof task.order};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control,
	};
	int fd[ORDER_FDS], n = 0;

	ssize_t got = syscall(SYS_recvmsg, ORDERS, &msg, MSG_CMSG_CLOEXEC | flags);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got <= 0)
		syscall(SYS_exit_group, 0); /* init is gone */
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_type == SCM_RIGHTS) {
		n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fd, CMSG_DATA(c), (size_t)n * sizeof(int));
	}
	if (n == ORDER_FDS && got == sizeof task.order && task.order.tty < 3) {
		memcpy(task.stdio, fd + 1, sizeof task.stdio);
		carry_out(fd[0]);
	} else {
		/* Descriptors are missing where the limit of open files is reached. */
		say(HW_WORD_FAILED, 0, HW_STEP_ORDER, EMFILE);
	}
	for (int i = 0; i < n; i++)
		syscall(SYS_close, fd[i]);
	return 1;
}

struct range {
	uintptr_t from, to;
};

/* Whole pages around an address. */
static struct range around(uintptr_t at, uintptr_t page)
{
	const uintptr_t reach = 64 << 10;
	uintptr_t low = at > reach ? at - reach : 0;
	return (struct range){low & ~(page - 1), (at + reach + page - 1) & ~(page - 1)};
}

/*
 * Gives back what was copied from init and is of no use here: everything but
 * the program's own image, this thread's storage (errno, and what the kernel
 * and the C library keep about the thread) and the part of the stack in use. The
 * copies would cost memory as soon as init changes its pages, and address
 * space counts against RLIMIT_AS. Only for the static binary: the code of
 * another one lies outside of its image.
 */
static void shed(void)
{
	extern char __executable_start[], _end[];
	uintptr_t page = getauxval(AT_PAGESZ), at = 1 << 20;
	/* The kernel's own pages lie above the first stack; some kernels seal them. */
	uintptr_t top = (getauxval(AT_RANDOM) & ~(page - 1)) - (1 << 20);
	struct range keep[] = {
		{(uintptr_t)__executable_start & ~(page - 1), ((uintptr_t)_end + page - 1) & ~(page - 1)},
		around((uintptr_t)&errno, page),
		around((uintptr_t)__builtin_frame_address(0), page),
	};

	if (getauxval(AT_BASE) != 0)
		return;
	while (at < top) {
		/* The next range to keep that ends above "at". */
		struct range next = {top, top};
		for (int i = 0; i < 3; i++)
			if (keep[i].to > at && keep[i].from < next.from)
				next = keep[i];
		if (next.from > at)
			syscall(SYS_munmap, at, (next.from < top ? next.from : top) - at);
		at = next.to;
	}
}

_Noreturn void hw_starter_serve(uint64_t sig_blocked)
{
	task.sig_blocked = sig_blocked;
	while (take_order(MSG_DONTWAIT))
		;
	/* The command runs by now, or there is none. */
	shed();
	for (;;)
		take_order(0);
}
