/* The two seccomp programs of the guard: what the agent's calls raise, and what the broker may do. */
#include "guard_internal.h"

#include <linux/audit.h>
#include <stddef.h>
#include <sys/prctl.h>

#if defined(__x86_64__)
#define HW_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define HW_ARCH AUDIT_ARCH_AARCH64
#else
#error "the guard knows x86-64 and aarch64"
#endif

#define HW_X32_BIT 0x40000000U
#define NR offsetof(struct seccomp_data, nr)
#define ARCH offsetof(struct seccomp_data, arch)
/* The low half of an argument; both machines are little-endian. */
#define ARG(i) (offsetof(struct seccomp_data, args) + 8 * (i))

#define LOAD(off) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (off))
#define RET(v) BPF_STMT(BPF_RET | BPF_K, (v))
#define FAIL(e) RET(SECCOMP_RET_ERRNO | (e))
#define ALLOW RET(SECCOMP_RET_ALLOW)
#define NOTIFY RET(SECCOMP_RET_USER_NOTIF)
#define UNLESS(v, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (v), 0, (skip))
#define ON(call, what) UNLESS(SYS_##call, 1), what

/*
 * open(2) that may create or change. O_PATH makes the kernel drop O_CREAT;
 * O_TMPFILE refuses it, and makes no name. Opening what exists for writing is
 * among them because a cover is gone once somebody outside replaces the entry.
 */
#define CHANGES (O_CREAT | O_ACCMODE | O_TRUNC)
#define ON_CHANGE(call, arg)                                                                                           \
	UNLESS(SYS_##call, 5), LOAD(ARG(arg)),                                                                         \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_PATH | (O_TMPFILE & ~O_DIRECTORY), 1, 0),                       \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CHANGES, 1, 0), ALLOW, NOTIFY

/*
 * chmod(2) with both bits of a set-group-id program: right for a directory, and
 * which it is no filter can see. The set-user-id bit is refused by the base filter.
 */
#define ON_SETGID(call, arg, value)                                                                                    \
	UNLESS(call, 5), LOAD(ARG(arg)), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, S_ISGID | S_IXGRP),                       \
		UNLESS(S_ISGID | S_IXGRP, 1), RET(value), ALLOW

#if defined(__x86_64__)
#define ON_CHMOD(value)                                                                                                 \
	ON_SETGID(SYS_fchmod, 1, value), ON_SETGID(SYS_fchmodat, 2, value), ON_SETGID(HW_SYS_FCHMODAT2, 2, value),        \
		ON_SETGID(SYS_chmod, 1, value)
#else
#define ON_CHMOD(value)                                                                                                 \
	ON_SETGID(SYS_fchmod, 1, value), ON_SETGID(SYS_fchmodat, 2, value), ON_SETGID(HW_SYS_FCHMODAT2, 2, value)
#endif

/* ioctls that take a name and create it, by type and number; the direction and size bits are left out. */
#define NAMING_IOCTL(type, nr) UNLESS(((type) << 8) | (nr), 1), FAIL(EPERM)

static const struct sock_filter agent_filter[] = {
	LOAD(ARCH),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HW_ARCH, 1, 0),
	FAIL(ENOSYS),
	LOAD(NR),
#if defined(__x86_64__)
	BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, HW_X32_BIT, 0, 1),
	FAIL(ENOSYS),
#endif
	ON_CHANGE(openat, 2),
#if defined(__x86_64__)
	ON_CHANGE(open, 1),
	ON(creat, NOTIFY),
	ON(mkdir, NOTIFY),
	ON(mknod, NOTIFY),
	ON(symlink, NOTIFY),
	ON(link, NOTIFY),
	ON(rename, NOTIFY),
#endif
	ON(mkdirat, NOTIFY),
	ON(mknodat, NOTIFY),
	ON(symlinkat, NOTIFY),
	ON(linkat, NOTIFY),
	ON(renameat, NOTIFY),
	ON(renameat2, NOTIFY),
	ON(bind, NOTIFY),
	ON_CHMOD(SECCOMP_RET_USER_NOTIF),
	/* Takes a number, so it may continue; tells the broker when a remembered umask is stale. */
	ON(umask, NOTIFY),
	/* Callers fall back to openat(2). */
	ON(openat2, FAIL(ENOSYS)),
	/* Its requests pass no seccomp filter. */
	ON(io_uring_setup, FAIL(ENOSYS)),
	/* "not enabled at boot": callers go on without. */
	ON(landlock_create_ruleset, FAIL(EOPNOTSUPP)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 1, 0),
	ALLOW,
	LOAD(ARG(1)),
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
	NAMING_IOCTL(0x94, 1),  /* BTRFS_IOC_SNAP_CREATE */
	NAMING_IOCTL(0x94, 14), /* BTRFS_IOC_SUBVOL_CREATE */
	NAMING_IOCTL(0x94, 23), /* BTRFS_IOC_SNAP_CREATE_V2 */
	NAMING_IOCTL(0x94, 24), /* BTRFS_IOC_SUBVOL_CREATE_V2 */
	NAMING_IOCTL(0xbc, 16), /* BCH_IOCTL_SUBVOLUME_CREATE */
	NAMING_IOCTL('o', 4),   /* OCFS2_IOC_REFLINK */
	ALLOW,
};

/* Where there is no broker: what it would have to look into. */
static const struct sock_filter alone_filter[] = {
	LOAD(ARCH),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HW_ARCH, 1, 0),
	FAIL(ENOSYS),
	LOAD(NR),
	/* Its mode, set-user-id for example, lies in memory. */
	ON(openat2, FAIL(ENOSYS)),
	ON_CHMOD(SECCOMP_RET_ERRNO | EPERM),
	ALLOW,
};

/* What the broker needs; everything else fails there with EPERM. */
static const struct sock_filter broker_filter[] = {
	LOAD(ARCH),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HW_ARCH, 1, 0),
	RET(SECCOMP_RET_KILL_PROCESS),
	LOAD(NR),
	/* receiving, answering, injecting */
	ON(ioctl, ALLOW),
	ON(ppoll, ALLOW),
	ON(recvmsg, ALLOW),
	ON(write, ALLOW),
	/* looking at the caller */
	ON(process_vm_readv, ALLOW),
	ON(pidfd_open, ALLOW),
	ON(pidfd_getfd, ALLOW),
	ON(getsid, ALLOW),
	ON(read, ALLOW),
	/* resolving */
	ON(openat2, ALLOW),
	ON(openat, ALLOW),
	ON(fcntl, ALLOW),
	ON(close, ALLOW),
	ON(statx, ALLOW),
	ON(fstatfs, ALLOW),
	ON(readlinkat, ALLOW),
	ON(fchdir, ALLOW),
	/* carrying out */
	ON(umask, ALLOW),
	ON(fchmodat, ALLOW),
	ON(mkdirat, ALLOW),
	ON(mknodat, ALLOW),
	ON(symlinkat, ALLOW),
	ON(linkat, ALLOW),
	ON(renameat2, ALLOW),
	ON(bind, ALLOW),
	/* the worker that waits for the other end of a FIFO */
	ON(clone, ALLOW),
	ON(prctl, ALLOW),
	ON(setitimer, ALLOW),
	ON(rt_sigaction, ALLOW),
	ON(rt_sigprocmask, ALLOW),
	ON(rt_sigreturn, ALLOW),
	ON(getppid, ALLOW),
	ON(exit_group, ALLOW),
	ON(restart_syscall, ALLOW),
	FAIL(EPERM),
};

static long load(const struct sock_filter *f, unsigned short len, unsigned long flags)
{
	struct sock_fprog prog = { .len = len, .filter = (struct sock_filter *)(uintptr_t)f };

	return SYS(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

/* Loads what stands in for the guard where no names are guarded; 0 or -errno. */
int hw_guard_absent(void)
{
	return (int)load(alone_filter, sizeof(alone_filter) / sizeof(alone_filter[0]), 0);
}

/* Loads the notifying filter into the calling thread and gives the listener. */
int hw_guard_listen(int names_only)
{
	const unsigned short len = sizeof(agent_filter) / sizeof(agent_filter[0]);
	struct sock_filter filter[sizeof(agent_filter) / sizeof(agent_filter[0])];
	long fd;

	for (int i = 0; i < len; i++) {
		filter[i] = agent_filter[i];
		if (names_only && filter[i].code == (BPF_JMP | BPF_JSET | BPF_K) && filter[i].k == CHANGES)
			filter[i].k = O_CREAT;
	}

	/* Without the second flag (before 5.19) a signal can make the kernel restart a call that the broker has
	 * already carried out; the restarted one then says EEXIST. */
	fd = load(filter, len, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
	if (fd == -EINVAL)
		fd = load(filter, len, SECCOMP_FILTER_FLAG_NEW_LISTENER);
	return (int)fd;
}

/* Confines the broker: its own allow-list, then the filter it was given. */
int hw_guard_confine(const struct hw_guard *g)
{
	long r = load(broker_filter, sizeof(broker_filter) / sizeof(broker_filter[0]), 0);

	if (r == 0 && g->base_len)
		r = load(g->base_filter, g->base_len, 0);
	return (int)r;
}
