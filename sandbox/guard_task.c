/* The task that raised a notification: its memory, umask, directories, descriptors, terminal. */
#include "guard_internal.h"

#include <linux/stat.h>
#include <sys/uio.h>

/* Tasks seen lately, by tid. */
#define TASKS 64
static struct hw_task tasks[TASKS];

/* Tasks whose umask(2) has been let go but may not have happened yet. */
#define CHANGING 32
static struct {
	int tid, tgid;
} changing[CHANGING];
/* Set once a umask change did not fit: then no umask is ever remembered. */
static int changing_overflow;

/* Writes v in decimal and a NUL; gives the NUL's place. */
char *hw_decimal(char *to, unsigned v)
{
	char digit[10];
	int n = 0;

	do
		digit[n++] = (char)('0' + v % 10);
	while (v /= 10);
	while (n)
		*to++ = digit[--n];
	*to = 0;
	return to;
}

/* Finds "\nkey:" in a status file and reads up to max numbers of the base after it; gives how many. */
static int status_numbers(const char *s, const char *key, unsigned base, unsigned *out, int max)
{
	int n = 0;

	for (; *s; s++) {
		const char *k = key;

		while (*k && *s == *k)
			s++, k++;
		if (!*k)
			break;
		while (*s && *s != '\n')
			s++;
		if (!*s)
			return 0;
	}
	while (n < max && *s) {
		unsigned v = 0;

		while (*s == ' ' || *s == '\t')
			s++;
		if (*s < '0' || *s > '9')
			break;
		for (; *s >= '0' && *s < '0' + (int)base; s++)
			v = v * base + (unsigned)(*s - '0');
		out[n++] = v;
	}
	return n;
}

/* Reads a file of the task whole, as far as it fits, and ends it with NUL. */
static long task_file(const struct hw_task *t, const char *name, char *buf, size_t size)
{
	long fd = SYS(SYS_openat, t->dir, name, O_RDONLY | O_CLOEXEC), n;

	if (fd < 0)
		return fd;
	n = SYS(SYS_read, fd, buf, size - 1);
	hw_close((int)fd);
	if (n >= 0)
		buf[n] = 0;
	return n;
}

/* Reads tgid and umask, and makes sure that the task's ids are the broker's: its rights are what the call is tried with. */
static long task_status(struct hw_task *t)
{
	static char buf[2048];
	unsigned id[4];
	long r = task_file(t, "status", buf, sizeof(buf));

	if (r < 0)
		return r;
	if (status_numbers(buf, "Umask:", 8, &t->umask, 1) != 1)
		return -EACCES;
	if (status_numbers(buf, "Tgid:", 10, id, 1) != 1)
		return -EACCES;
	t->tgid = (int)id[0];
	if (status_numbers(buf, "Uid:", 10, id, 4) != 4 || (int)id[1] != hw_broker.uid || (int)id[3] != hw_broker.uid)
		return -EACCES;
	if (status_numbers(buf, "Gid:", 10, id, 4) != 4 || (int)id[1] != hw_broker.gid || (int)id[3] != hw_broker.gid)
		return -EACCES;
	return 0;
}

static void task_forget(struct hw_task *t)
{
	if (t->tid)
		hw_close(t->dir);
	t->tid = 0;
	t->umask_known = 0;
}

static long task_open(struct hw_task *t, int tid)
{
	char name[16];
	long r;

	hw_decimal(name, (unsigned)tid);
	r = SYS(SYS_openat, hw_broker.proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (r < 0)
		return -EACCES;
	t->tid = tid;
	t->dir = (int)r;
	r = task_status(t);
	if (r < 0)
		task_forget(t);
	return r;
}

/* Whether the task walks from the root the broker walks from. Fails once the task is gone. */
static long same_root(const struct hw_task *t)
{
	struct statx st;
	long r = SYS(SYS_statx, t->dir, "root", AT_STATX_DONT_SYNC, STATX_INO | HW_STATX_MNT_ID, &st);

	if (r < 0)
		return r;
	if (st.stx_ino != hw_broker.root_ino || ((uint64_t)st.stx_mnt_id != hw_broker.root_mnt))
		return -EXDEV;
	return 0;
}

static int umask_in_flight(const struct hw_task *t)
{
	for (int i = 0; i < CHANGING; i++)
		if (changing[i].tid && changing[i].tgid == t->tgid)
			return 1;
	return changing_overflow;
}

/* A thread that raises a new notification has finished its umask(2). */
static void umask_settled(int tid)
{
	for (int i = 0; i < CHANGING; i++)
		if (changing[i].tid == tid)
			changing[i].tid = 0;
}

/* Finds the caller of a notification. A remembered entry is only used while the very task it was made for lives. */
long hw_task_find(struct hw_call *c)
{
	int tid = (int)c->n->pid;
	struct hw_task *t = &tasks[tid % TASKS];
	long r;

	c->task = t;
	if (tid <= 0) /* not in our pid namespace */
		return -EACCES;
	umask_settled(tid);
	if (t->tid == tid) {
		r = same_root(t);
		if (r == 0)
			return 0;
		if (r != -ESRCH && r != -ENOENT)
			return -EACCES;
	}
	task_forget(t);
	r = task_open(t, tid);
	if (r == 0) {
		t->umask_known = !umask_in_flight(t);
		r = same_root(t);
	}
	return r < 0 ? -EACCES : 0;
}

static int task_gone(int tid)
{
	char name[16];
	struct statx st;

	hw_decimal(name, (unsigned)tid);
	return SYS(SYS_statx, hw_broker.proc, name, AT_STATX_DONT_SYNC, STATX_TYPE, &st) == -ENOENT;
}

/* A task is about to change its umask: what is remembered of anyone may be stale until the change has happened. */
void hw_task_umask_changes(const struct seccomp_notif *n)
{
	struct hw_call c = { .n = (struct seccomp_notif *)(uintptr_t)n };
	int slot = -1;

	for (int i = 0; i < TASKS; i++)
		tasks[i].umask_known = 0;
	if (hw_task_find(&c) < 0)
		return; /* nothing of it is remembered, and nothing will be done for it */
	c.task->umask_known = 0;
	for (int i = 0; i < CHANGING; i++) {
		if (changing[i].tid && task_gone(changing[i].tid))
			changing[i].tid = 0;
		if (!changing[i].tid)
			slot = i;
	}
	if (slot < 0) {
		changing_overflow = 1;
		return;
	}
	changing[slot].tid = c.task->tid;
	changing[slot].tgid = c.task->tgid;
}

/* Takes on the caller's umask. */
long hw_task_umask(struct hw_call *c)
{
	struct hw_task *t = c->task;

	if (!t->umask_known) {
		long r = task_status(t);

		if (r < 0)
			return -EACCES;
		t->umask_known = !umask_in_flight(t);
	}
	if (hw_broker.umask != t->umask) {
		SYS(SYS_umask, t->umask);
		hw_broker.umask = t->umask;
	}
	return 0;
}

/* Opens the directory that a relative path of the caller starts from. */
long hw_task_base(struct hw_call *c, int dirfd)
{
	char name[24] = "fd/";
	long r;

	if (dirfd == AT_FDCWD)
		return SYS(SYS_openat, c->task->dir, "cwd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -EBADF;
	hw_decimal(name + 3, (unsigned)dirfd);
	r = SYS(SYS_openat, c->task->dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (r == -ENOENT)
		return -EBADF;
	if (r == -EACCES) /* a non-dumpable caller hides the list but not, from CAP_SYS_PTRACE, the descriptor */
		r = hw_task_fd(c, dirfd);
	return r;
}

/* Takes a copy of the caller's descriptor. */
long hw_task_fd(struct hw_call *c, int fd)
{
	long r, p = SYS(SYS_pidfd_open, c->task->tid, PIDFD_THREAD);

	if (p == -EINVAL) /* before 6.9 */
		p = SYS(SYS_pidfd_open, c->task->tgid, 0);
	if (p < 0)
		return -EACCES;
	r = SYS(SYS_pidfd_getfd, p, fd, 0);
	hw_close((int)p);
	if (r == -EPERM)
		r = -EACCES;
	return r;
}

/* Reads exactly len bytes of the caller's memory. */
long hw_task_read(struct hw_call *c, uint64_t addr, void *buf, size_t len)
{
	struct iovec to = { buf, len }, from = { (void *)(uintptr_t)addr, len };
	long r;

	if (!len)
		return 0;
	r = SYS(SYS_process_vm_readv, c->n->pid, &to, 1L, &from, 1L, 0L);
	if (r == -EPERM || r == -ESRCH)
		return -EACCES;
	return r == (long)len ? 0 : -EFAULT;
}

/* Copies a path of the caller, HW_PATH_MAX at most with its NUL; gives its length. */
long hw_task_string(struct hw_call *c, uint64_t addr, char *buf)
{
	size_t have = 0;

	while (have < HW_PATH_MAX) {
		/* Never across a page: the next one may be missing. Most paths fit the first piece. */
		size_t piece = have ? 4096 : 256, page = 4096 - ((addr + have) & 4095);
		long r;

		if (piece > page)
			piece = page;
		if (piece > HW_PATH_MAX - have)
			piece = HW_PATH_MAX - have;
		r = hw_task_read(c, addr + have, buf + have, piece);
		if (r < 0)
			return r;
		for (size_t end = have + piece; have < end; have++)
			if (!buf[have])
				return (long)have;
	}
	return -ENAMETOOLONG;
}

/* Reads a 64-bit hexadecimal set after key. */
static uint64_t status_set(const char *s, const char *key)
{
	uint64_t v = 0;
	const char *k = key;

	while (*s && *k) {
		k = *s == *k ? k + 1 : *s == *key ? key + 1 : key;
		s++;
	}
	while (*s == '\t' || *s == ' ')
		s++;
	for (; (*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'f'); s++)
		v = v << 4 | (uint64_t)(*s <= '9' ? *s - '0' : *s - 'a' + 10);
	return v;
}

/*
 * Gives the result with which a waiting call of the caller ends because of a
 * signal, 0 if none waits.
 */
long hw_task_signalled(struct hw_call *c)
{
	static char buf[2048];
	long r = task_file(c->task, "status", buf, sizeof(buf));
	uint64_t open;
	unsigned threads;

	if (r < 0 || status_numbers(buf, "Threads:", 10, &threads, 1) != 1)
		return 0; /* gone, which shows elsewhere */
	open = ~status_set(buf, "\nSigBlk:") & ~status_set(buf, "\nSigIgn:");
	/* ERESTARTSYS: the kernel restarts the call or says EINTR, as the handler asks. It may only be used where this
	 * very thread is about to handle a signal, or the program would see it. */
	if ((status_set(buf, "\nSigPnd:") & open) || (threads == 1 && (status_set(buf, "\nShdPnd:") & open)))
		return -512;
	return status_set(buf, "\nShdPnd:") & open ? -EINTR : 0;
}

/*
 * Gives the number of the caller's terminal in devpts, -ENXIO without one, or
 * HW_DEFERRED when /dev/tty means the same to the broker.
 */
long hw_task_tty(struct hw_call *c)
{
	static char buf[1024];
	unsigned tty = 0;
	long sid = SYS(SYS_getsid, (long)c->task->tgid), r;
	char *s;
	int field;

	if (sid >= 0 && sid == SYS(SYS_getsid, 0L))
		return HW_DEFERRED;
	r = task_file(c->task, "stat", buf, sizeof(buf));
	if (r < 0)
		return -EACCES;
	for (s = buf + r; s > buf && *s != ')'; s--) /* the command's name may hold anything */
		;
	for (field = 2; *s && field < 7; s++)
		field += *s == ' ';
	for (; *s >= '0' && *s <= '9'; s++)
		tty = tty * 10 + (unsigned)(*s - '0');
	if (!tty)
		return -ENXIO;
	/* Unix98 slaves have majors 136 to 143; a minor is split around the major in this number. */
	if ((tty >> 8 & 0xfff) < 136 || (tty >> 8 & 0xfff) > 143)
		return -EACCES;
	return (long)(((tty >> 8 & 0xfff) - 136) * 256 + (tty & 0xff));
}
