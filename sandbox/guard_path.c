/*
 * From a path of the caller to the directory that would hold its last
 * component. The kernel walks where it can; what leads through procfs is walked
 * by hand, because "self" and the links to descriptors mean the caller there.
 */
#include "guard_internal.h"

#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <string.h>
#include <sys/statfs.h>

#define PROC_ROOT_INO 1

static int is_proc(int fd)
{
	struct statfs fs;

	return SYS(SYS_fstatfs, fd, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC;
}

static long identity(int fd, uint64_t *dev, uint64_t *ino, unsigned *mode)
{
	struct statx st;
	long r = SYS(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_TYPE, &st);

	if (r < 0)
		return r;
	*dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
	*ino = st.stx_ino;
	*mode = st.stx_mode;
	return 0;
}

static int own_id(const struct hw_call *c, const char *s)
{
	long v = 0;

	while (*s >= '0' && *s <= '9' && v < 0x7fffffff)
		v = v * 10 + (*s++ - '0');
	return v == c->task->tgid || v == c->task->tid;
}

/*
 * Whether a procfs directory is one where the broker may act for the caller:
 * it has rights over processes that the caller has not (itself, above all), so
 * only the caller's own directory and what belongs to no process will do.
 */
static int proc_dir_allowed(const struct hw_call *c, int fd)
{
	char link[32] = "self/fd/", to[256];
	uint64_t dev, ino;
	unsigned mode;
	long n;

	if (identity(fd, &dev, &ino, &mode) < 0 || dev != hw_broker.proc_dev)
		return 0;
	hw_decimal(link + 8, (unsigned)fd);
	n = SYS(SYS_readlinkat, hw_broker.proc, link, to, sizeof(to) - 1);
	if (n < 0 || n == (long)sizeof(to) - 1)
		return 0;
	to[n] = 0;
	if (strncmp(to, "/proc", 5) != 0)
		return 0;
	if (!to[5])
		return 1;
	return to[5] == '/' && (to[6] < '0' || to[6] > '9' || own_id(c, to + 6));
}

/* What a component of the procfs root means to the caller; NULL when it may not be used. Plain otherwise. */
static const char *proc_component(const struct hw_call *c, const char *comp, char *buf)
{
	char *end;

	if (strcmp(comp, "self") == 0) {
		hw_decimal(buf, (unsigned)c->task->tgid);
		return buf;
	}
	if (strcmp(comp, "thread-self") == 0) {
		end = hw_decimal(buf, (unsigned)c->task->tgid);
		memcpy(end, "/task/", 6);
		hw_decimal(end + 6, (unsigned)c->task->tid);
		return buf;
	}
	if (*comp >= '0' && *comp <= '9' && !own_id(c, comp))
		return NULL;
	return comp;
}

/* A walk by hand. cur is owned; rest is the unwalked part inside buf. */
struct walk {
	int cur, links;
	char *rest;
	char buf[2 * HW_PATH_MAX];
};
static struct walk w;

static void step_to(int fd)
{
	hw_close(w.cur);
	w.cur = fd;
}

/* Puts a link's target before the rest. */
static long put_before(const char *target, size_t n)
{
	size_t rest = strlen(w.rest);

	if (++w.links > HW_SYMLINKS)
		return -ELOOP;
	if (n + 1 + rest + 1 > sizeof(w.buf))
		return -ENAMETOOLONG;
	memmove(w.buf + n + 1, w.rest, rest + 1);
	memcpy(w.buf, target, n);
	w.buf[n] = '/';
	w.rest = w.buf;
	if (*target == '/') {
		long fd = SYS(SYS_openat, hw_broker.root, "/", O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			return fd;
		step_to((int)fd);
	}
	return 0;
}

static long step_link(const struct hw_call *c, int link, const char *comp, int magic)
{
	static char target[HW_PATH_MAX];
	long n;

	if (magic) {
		if (!proc_dir_allowed(c, w.cur))
			return -EACCES;
		n = SYS(SYS_openat, w.cur, comp, O_PATH | O_CLOEXEC);
		if (n < 0)
			return n;
		step_to((int)n);
		return ++w.links > HW_SYMLINKS ? -ELOOP : 0;
	}
	n = SYS(SYS_readlinkat, link, "", target, sizeof(target));
	if (n <= 0)
		return n < 0 ? n : -ENOENT;
	if (n == (long)sizeof(target))
		return -ENAMETOOLONG;
	return put_before(target, (size_t)n);
}

static long step(const struct hw_call *c, const char *comp)
{
	char buf[64];
	uint64_t dev, ino;
	unsigned mode;
	int proc = is_proc(w.cur), in_root = 0;
	long r, fd;

	if (proc) {
		r = identity(w.cur, &dev, &ino, &mode);
		if (r < 0)
			return r;
		in_root = ino == PROC_ROOT_INO;
		if (in_root && dev != hw_broker.proc_dev)
			return -EACCES;
		if (in_root && !(comp = proc_component(c, comp, buf)))
			return -EACCES;
	}
	/* A link is only opened itself when it is the last component, so each step names one. */
	fd = SYS(SYS_openat, w.cur, comp, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fd;
	r = identity((int)fd, &dev, &ino, &mode);
	if (r == 0 && S_ISLNK(mode)) {
		r = step_link(c, (int)fd, comp, proc && !in_root);
		hw_close((int)fd);
		return r;
	}
	step_to((int)fd);
	return r;
}

/* Walks parent from base; gives an O_PATH descriptor of a directory. */
static long walk_by_hand(const struct hw_call *c, int base, const char *parent)
{
	uint64_t dev, ino;
	unsigned mode;
	long r;

	w.links = 0;
	w.rest = w.buf;
	strcpy(w.buf, parent);
	r = SYS(SYS_openat, *parent == '/' ? hw_broker.root : base, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	w.cur = (int)r;
	while (r >= 0) {
		char comp[NAME_MAX + 1];
		size_t n;

		while (*w.rest == '/')
			w.rest++;
		n = strcspn(w.rest, "/");
		if (!n)
			break;
		r = -ENAMETOOLONG;
		if (n > NAME_MAX)
			break;
		memcpy(comp, w.rest, n);
		comp[n] = 0;
		w.rest += n;
		r = step(c, comp);
	}
	if (r >= 0)
		r = identity(w.cur, &dev, &ino, &mode);
	if (r >= 0 && !S_ISDIR(mode))
		r = -ENOTDIR;
	if (r < 0) {
		hw_close(w.cur);
		return r;
	}
	return w.cur;
}

/* Splits the path in p->buf in two: gives the parent ("" for base itself) and sets p->name. */
static const char *split(struct hw_place *p)
{
	char *end = p->buf + strlen(p->buf), *slash;

	while (end > p->buf && end[-1] == '/')
		end--;
	if (end == p->buf) { /* "/" */
		p->name = (char *)(uintptr_t) ".";
		return "/";
	}
	while (end > p->buf && end[-1] != '/')
		end--;
	p->name = end;
	if (end == p->buf)
		return "";
	slash = end - 1;
	*slash = 0;
	while (slash > p->buf && slash[-1] == '/')
		slash--;
	return slash == p->buf ? "/" : p->buf;
}

/* Finds the place of the path in p->buf; base is the directory a relative one starts from, or negative. */
long hw_place_find(struct hw_call *c, int base, struct hw_place *p)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_NO_MAGICLINKS,
	};
	const char *parent;
	unsigned mode;
	long r;

	p->dir = -1;
	if (!p->buf[0])
		return -ENOENT;
	parent = split(p);
	p->direct = 1;
	if (*parent)
		r = SYS(SYS_openat2, base, parent, &how, sizeof(how));
	else
		r = SYS(SYS_fcntl, base, F_DUPFD_CLOEXEC, 0L);
	if (r < 0 || is_proc((int)r)) {
		if (r >= 0)
			hw_close((int)r);
		p->direct = 0;
		r = walk_by_hand(c, base, parent);
		if (r < 0)
			return r;
	}
	p->dir = (int)r;
	p->proc = !p->direct && is_proc(p->dir);
	if (p->proc && !proc_dir_allowed(c, p->dir))
		r = -EACCES;
	if (r >= 0)
		r = identity(p->dir, &p->dev, &p->ino, &mode);
	if (r < 0)
		hw_place_drop(p);
	return r < 0 ? r : 0;
}

/* Takes p, whose name is a symbolic link outside procfs, one link further. */
long hw_place_follow(struct hw_call *c, struct hw_place *p)
{
	int base = p->dir;
	long n = SYS(SYS_readlinkat, base, p->name, p->buf, HW_PATH_MAX);

	if (n >= HW_PATH_MAX)
		n = -ENAMETOOLONG;
	if (n >= 0) {
		p->buf[n] = 0;
		n = hw_place_find(c, base, p);
	} else {
		p->dir = -1;
	}
	hw_close(base);
	return n;
}

void hw_place_drop(struct hw_place *p)
{
	hw_close(p->dir);
	p->dir = -1;
}

/* The first entry from i on that the place is, or -1. */
static int entry_of(const struct hw_place *p, int i)
{
	size_t n = strcspn(p->name, "/");

	for (; i < hw_broker.n; i++)
		if (hw_broker.entry[i].ino == p->ino && hw_broker.entry[i].dev == p->dev &&
		    hw_broker.entry[i].len == n && memcmp(hw_broker.entry[i].name, p->name, n) == 0)
			return i;
	return -1;
}

int hw_place_protected(const struct hw_place *p)
{
	return entry_of(p, 0) >= 0;
}

/*
 * Whether the file of a descriptor lies at a protected name. The agent cannot
 * rename what leads to one, so where it lies is known as long as this is asked.
 */
int hw_object_protected(int fd)
{
	static struct hw_place at;
	char link[32];
	char *name;
	unsigned mode;
	long n, r = -ENOENT;

	hw_decimal(strcpy(hw_decimal(link, (unsigned)hw_broker.pid), "/fd/") + 4, (unsigned)fd);
	n = SYS(SYS_readlinkat, hw_broker.proc, link, at.buf + 1, HW_PATH_MAX);
	if (n < 1 || n >= HW_PATH_MAX)
		return n != -ENOENT; /* it cannot be told, so it counts as one */
	at.buf[0] = '.';
	at.buf[n + 1] = 0;
	name = strrchr(at.buf, '/');
	if (!name)
		return 0; /* no file of a directory */
	*name = 0;
	at.name = name + 1;
	at.dir = (int)SYS(SYS_openat, hw_broker.root, at.buf, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at.dir >= 0)
		r = identity(at.dir, &at.dev, &at.ino, &mode);
	hw_place_drop(&at);
	return r >= 0 && hw_place_protected(&at);
}

/* Whether the name is protected, but may be that of a directory. */
int hw_place_makeable(const struct hw_place *p)
{
	int i = entry_of(p, 0);

	if (i < 0)
		return 0;
	for (; i >= 0; i = entry_of(p, i + 1))
		if (!hw_broker.entry[i].below)
			return 0;
	return 1;
}

/*
 * Takes up the directory that now has the name: what may not appear in it is
 * protected from here on. No other call of the agent that creates or renames is
 * carried out meanwhile. A directory that cannot be looked at would stay
 * unprotected, so the broker ends, and with it all that creates names.
 */
void hw_place_made(const struct hw_place *p)
{
	uint64_t dev, ino;
	unsigned mode;

	for (int i = entry_of(p, 0); i >= 0; i = entry_of(p, i + 1)) {
		int below = hw_broker.entry[i].below;
		long fd;

		if (hw_broker.entry[below].fd >= 0)
			hw_close(hw_broker.entry[below].fd);
		hw_broker.entry[below].fd = -1;
		hw_broker.entry[below].ino = 0;
		fd = SYS(SYS_openat, p->dir, p->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
			continue; /* removed again, or never a directory */
		if (fd < 0 || identity((int)fd, &dev, &ino, &mode) < 0)
			SYS(SYS_exit_group, 1);
		hw_broker.entry[below].fd = (int)fd;
		hw_broker.entry[below].dev = dev;
		hw_broker.entry[below].ino = ino;
	}
}
