// trace runs a command and makes one system call of one of its processes fail.
//
//   trace -o LOG [-u UID:GID] [-t MS] [-g MS] [-f ROLE:CALL:N:ACTION] -- ARGV
//
// strace(1) can make calls fail too, but it counts them per thread, and a Go
// process makes the same call from another thread each time. Here they are
// counted per role: launcher, child (forked by it, not yet executed), proxy,
// runc, stage, init, starter, forked (by the starter, not yet the command).
// What the command itself does is left alone.
//
// ACTION is error=ERRNO (a number), value=N (the call is not made and returns N),
// kill (SIGKILL to the process), crash (SIGSEGV to the thread) or delay=MS. CALL is a name of the table or "*".
// The log says, a line each: "call ROLE NAME N DETAIL" (only without -f), "fault
// ROLE NAME N DETAIL", "step NAME" (the launcher's own --trace), "exit CODE" or
// "signal N" of the command line, "left ROLE PID WHERE", "timeout ROLE PID WHERE".
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <grp.h>
#include <time.h>
#include <unistd.h>

enum { NONE, PATH0, PATH1, FD0, FLAGS0, NUM0, ADDR };
static const struct call { const char *name; long nr; int detail; } calls[] = {
#define C(n, d) {#n, SYS_##n, d}
	C(openat, PATH1), C(openat2, PATH1), C(mkdirat, PATH1), C(unlinkat, PATH1), C(renameat, PATH1), C(renameat2, PATH1),
	C(linkat, PATH1), C(symlinkat, PATH0), C(fchmodat, PATH1), C(fchmod, FD0), C(fchown, FD0), C(fchownat, PATH1),
	C(ftruncate, FD0), C(fallocate, FD0), C(fsync, FD0), C(fdatasync, FD0), C(flock, FD0), C(read, FD0), C(write, FD0),
	C(pread64, FD0), C(pwrite64, FD0), C(readlinkat, PATH1), C(getdents64, FD0), C(newfstatat, PATH1), C(statx, PATH1),
	C(fstat, FD0), C(faccessat2, PATH1), C(statfs, PATH0), C(fstatfs, FD0), C(fcntl, FD0), C(dup3, FD0), C(pipe2, NONE),
	C(socketpair, NUM0), C(memfd_create, PATH0), C(eventfd2, NONE), C(epoll_create1, NONE), C(epoll_ctl, NONE), C(pidfd_open, NUM0),
	C(socket, NUM0), C(bind, FD0), C(listen, FD0), C(accept4, FD0), C(connect, ADDR), C(setsockopt, FD0), C(getsockopt, FD0),
	C(getsockname, FD0), C(getpeername, FD0), C(sendmsg, FD0), C(recvmsg, FD0), C(sendto, FD0), C(recvfrom, FD0), C(shutdown, FD0),
	C(mount, PATH1), C(umount2, PATH0), C(move_mount, FD0), C(open_tree, PATH1), C(fsopen, PATH0), C(fsconfig, FD0),
	C(fsmount, FD0), C(mount_setattr, PATH1), C(pivot_root, NONE), C(chdir, PATH0), C(fchdir, FD0), C(chroot, PATH0),
	C(clone, FLAGS0), C(clone3, NONE), C(execve, PATH0), C(execveat, PATH1), C(wait4, NUM0), C(waitid, NUM0), C(kill, NUM0),
	C(prctl, NUM0), C(seccomp, NUM0), C(landlock_create_ruleset, NONE), C(landlock_add_rule, FD0), C(landlock_restrict_self, FD0),
	C(capset, NONE), C(capget, NONE), C(setuid, NUM0), C(setgid, NUM0), C(setresuid, NUM0), C(setresgid, NUM0), C(setgroups, NUM0),
	C(unshare, FLAGS0), C(setns, FD0), C(prlimit64, NUM0), C(keyctl, NUM0), C(setpgid, NUM0), C(setsid, NONE), C(sethostname, PATH0),
	C(ioctl, FD0), C(getrandom, NONE), C(mmap, NONE), C(mprotect, NONE), C(brk, NONE), C(ppoll, NONE), C(getcwd, NONE),
	C(close_range, NUM0), C(umask, NUM0),
#ifdef SYS_fork
	C(fork, NONE), C(vfork, NONE),
#endif
#ifdef SYS_setrlimit
	C(setrlimit, NUM0),
#endif
};
enum { NCALLS = sizeof calls / sizeof calls[0], NROLES = 10, NTASKS = 4096 };
static const char *const roles[NROLES] = {"launcher", "child", "proxy", "runc", "runc-child", "stage", "init", "starter", "forked", "command"};
enum { LAUNCHER, CHILD, PROXY, RUNC, RUNCCHILD, STAGE, INIT, STARTER, FORKED, COMMAND };

static struct task { pid_t tid, tgid; int role, known, held; int64_t until; } tasks[NTASKS];
static int ntasks, begun; // begun: the launcher is executed
static long counts[NROLES][NCALLS], all[NROLES];
static FILE *out;
static struct { int role, call, action; long n, value; int done; } fault = {-1, -1, 0, 0, 0, 0};
enum { ERROR = 1, VALUE, KILL, CRASH, DELAY };

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void die(const char *what) {
	fprintf(stderr, "trace: %s: %s\n", what, strerror(errno));
	exit(99);
}

static struct task *find(pid_t tid) {
	for (int i = 0; i < ntasks; i++)
		if (tasks[i].tid == tid)
			return &tasks[i];
	return NULL;
}

static struct task *add(pid_t tid) {
	struct task *t = find(tid);
	if (t)
		return t;
	if (ntasks == NTASKS)
		die("too many tasks");
	t = &tasks[ntasks++];
	memset(t, 0, sizeof *t);
	t->tid = tid;
	return t;
}

static void drop(pid_t tid) {
	struct task *t = find(tid);
	if (t)
		*t = tasks[--ntasks];
}

static pid_t tgid_of(pid_t tid) {
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/%d/status", tid);
	FILE *f = fopen(path, "r");
	int id = tid;
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "Tgid: %d", &id) == 1)
			break;
	if (f)
		fclose(f);
	return id;
}

static void text_of(pid_t tid, uint64_t addr, char *buf, size_t size) {
	size_t n = 0;
	while (n + sizeof(long) < size) {
		errno = 0;
		long word = ptrace(PTRACE_PEEKDATA, tid, addr + n, 0);
		if (errno)
			break;
		memcpy(buf + n, &word, sizeof word);
		if (memchr(&word, 0, sizeof word))
			break;
		n += sizeof word;
	}
	buf[n + sizeof(long) < size ? n + sizeof(long) : size - 1] = 0;
	for (char *c = buf; *c; c++)
		if (*c <= ' ' || *c > '~')
			*c = '_';
}

static void detail(pid_t tid, const struct call *c, const uint64_t *a, char *buf, size_t size) {
	char path[64];
	buf[0] = 0;
	switch (c->detail) {
	case PATH0:
		text_of(tid, a[0], buf, size);
		break;
	case PATH1:
		text_of(tid, a[1], buf, size);
		break;
	case FD0:
		snprintf(path, sizeof path, "/proc/%d/fd/%d", tid, (int)a[0]);
		ssize_t n = readlink(path, buf, size - 1);
		buf[n < 0 ? 0 : n] = 0;
		for (char *p = buf; *p; p++)
			if (*p == ' ')
				*p = '_';
		break;
	case FLAGS0:
		snprintf(buf, size, "%#lx", (long)a[0]);
		break;
	case NUM0:
		snprintf(buf, size, "%ld", (long)a[0]);
		break;
	case ADDR: {
		errno = 0;
		long w = ptrace(PTRACE_PEEKDATA, tid, a[1], 0);
		unsigned char *b = (unsigned char *)&w;
		if (!errno)
			snprintf(buf, size, "family=%d,port=%d", b[0] | b[1] << 8, b[2] << 8 | b[3]);
	}
	}
}

// answer skips the call and gives it a value.
static void answer(pid_t tid, long value) {
#if defined(__x86_64__)
	struct user_regs_struct r;
	if (ptrace(PTRACE_GETREGS, tid, 0, &r))
		return;
	r.orig_rax = -1;
	r.rax = value;
	ptrace(PTRACE_SETREGS, tid, 0, &r);
#elif defined(__aarch64__)
	int none = -1;
	struct iovec v = {&none, sizeof none};
	ptrace(PTRACE_SETREGSET, tid, (void *)NT_ARM_SYSTEM_CALL, &v);
	struct user_pt_regs r;
	struct iovec w = {&r, sizeof r};
	ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &w);
	r.regs[0] = value;
	ptrace(PTRACE_SETREGSET, tid, (void *)NT_PRSTATUS, &w);
#else
#error "not ported"
#endif
}

// marked notes the steps that the launcher says are done.
static void marked(pid_t tid, const uint64_t *a) {
	char text[256];
	static const char begin[] = "hermes-wrap:_note:_trace:_";
	if (a[0] != 2)
		return;
	text_of(tid, a[1], text, sizeof text);
	if (!strncmp(text, begin, sizeof begin - 1)) {
		char *name = text + sizeof begin - 1, *end = strchr(name, '_');
		if (end)
			*end = 0;
		fprintf(out, "step %s\n", name);
	}
}

static int ids(long nr) {
	return nr == SYS_setuid || nr == SYS_setgid || nr == SYS_setresuid || nr == SYS_setresgid || nr == SYS_setgroups;
}

// called handles the entry of a traced call; it tells whether the task goes on.
static int called(struct task *t) {
	struct __ptrace_syscall_info info;
	if (ptrace(PTRACE_GET_SYSCALL_INFO, t->tid, sizeof info, &info) <= 0 || t->role == COMMAND || !begun)
		return 1;
	int c = 0;
	while (c < NCALLS && calls[c].nr != (long)info.seccomp.nr)
		c++;
	if (c == NCALLS)
		return 1;
	uint64_t a[6];
	memcpy(a, info.seccomp.args, sizeof a);
	long n = ++counts[t->role][c], m = ++all[t->role];
	if (t->role == LAUNCHER && calls[c].nr == SYS_write)
		marked(t->tid, a);
	if (fault.role < 0) {
		char text[300];
		detail(t->tid, &calls[c], a, text, sizeof text);
		fprintf(out, "call %s %s %ld %s\n", roles[t->role], calls[c].name, n, text);
		return 1;
	}
	// All threads of a process change their ids, or none: a C library that saw the
	// one without the other would not know how to go on.
	if (fault.done && fault.action == ERROR && t->role == fault.role && c == fault.call && ids(calls[c].nr)) {
		answer(t->tid, -fault.value);
		return 1;
	}
	if (fault.done || t->role != fault.role || (fault.call >= 0 ? c != fault.call || n != fault.n : m != fault.n))
		return 1;
	char text[300];
	detail(t->tid, &calls[c], a, text, sizeof text);
	fprintf(out, "fault %s %s %ld %s\n", roles[t->role], calls[c].name, n, text);
	fflush(out);
	fault.done = 1;
	switch (fault.action) {
	case ERROR:
		answer(t->tid, -fault.value);
		break;
	case VALUE:
		answer(t->tid, fault.value);
		break;
	case KILL:
		kill(t->tgid, SIGKILL);
		break;
	case CRASH:
		syscall(SYS_tgkill, t->tgid, t->tid, SIGSEGV);
		break;
	case DELAY:
		t->until = now() + fault.value;
		return 0;
	}
	return 1;
}

// executed finds out what a process is after execve(2).
static void executed(struct task *t) {
	begun = 1;
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/%d/cmdline", t->tgid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		n = 0;
	const char *arg1 = text + strlen(text) + 1 < text + n ? text + strlen(text) + 1 : "";
	if (!strcmp(text, "hermes-wrap: proxy"))
		t->role = PROXY;
	else if (t->role == CHILD && !strcmp(arg1, "init"))
		t->role = RUNC;
	else if (t->role == STAGE && !strcmp(arg1, "pid1"))
		t->role = INIT;
	else if (t->role == STARTER || t->role == FORKED || t->role == CHILD || t->role == INIT)
		t->role = COMMAND;
}

static int child_role(int of) {
	switch (of) {
	case LAUNCHER: return CHILD;
	case RUNC: return RUNCCHILD;
	case RUNCCHILD: return STAGE;
	case INIT: return STARTER;
	case STARTER: return FORKED;
	}
	return of;
}

static void forked(struct task *parent, pid_t tid) {
	pid_t tgid = tgid_of(tid), was = parent->tgid;
	int role = parent->role;
	struct task *t = add(tid); // tasks do not move
	t->tgid = tgid;
	t->role = tgid == was ? role : child_role(role);
	t->known = 1;
	if (t->held) {
		t->held = 0;
		ptrace(PTRACE_CONT, tid, 0, 0);
	}
}

static void stopped(pid_t tid, int status) {
	struct task *t = find(tid);
	int event = status >> 16, sig = WSTOPSIG(status);
	if (!t || !t->known) { // its parent's event is still to come
		t = add(tid);
		t->held = 1;
		return;
	}
	unsigned long other = 0;
	switch (event) {
	case PTRACE_EVENT_CLONE:
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
		ptrace(PTRACE_GETEVENTMSG, tid, 0, &other);
		forked(t, (pid_t)other);
		sig = 0;
		break;
	case PTRACE_EVENT_EXEC: {
		ptrace(PTRACE_GETEVENTMSG, tid, 0, &other);
		int role = t->role;
		for (int i = ntasks - 1; i >= 0; i--)
			if (tasks[i].tgid == tid && tasks[i].tid != tid)
				drop(tasks[i].tid);
		t = add(tid);
		t->tgid = tid, t->role = role, t->known = 1;
		executed(t);
		sig = 0;
		break;
	}
	case PTRACE_EVENT_SECCOMP:
		if (!called(t))
			return;
		sig = 0;
		break;
	case PTRACE_EVENT_STOP:
		if (sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU) {
			ptrace(PTRACE_LISTEN, tid, 0, 0);
			return;
		}
		sig = 0;
		break;
	default:
		if (event)
			sig = 0;
	}
	ptrace(PTRACE_CONT, tid, 0, sig);
}

static void filter(void) {
	static struct sock_filter f[NCALLS + 6];
	int n = 0;
	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < NCALLS; i++)
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].nr, (unsigned char)(NCALLS - i), 0);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	struct sock_fprog p = {(unsigned short)n, f};
	if (geteuid() != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		die("set no_new_privs");
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p))
		die("load filter");
}

static void begin(char **argv, const char *ids) {
	raise(SIGSTOP);
	filter();
	unsigned uid, gid;
	if (ids && sscanf(ids, "%u:%u", &uid, &gid) == 2)
		if (setgroups(1, &gid) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
			die("change user");
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(argv[0], argv);
	die(argv[0]);
}

static void parse(char *rule) {
	char *role = strtok(rule, ":"), *call = strtok(NULL, ":"), *n = strtok(NULL, ":"), *action = strtok(NULL, ":");
	if (!action)
		die("parse rule");
	for (int i = 0; i < NROLES; i++)
		if (!strcmp(role, roles[i]))
			fault.role = i;
	for (int i = 0; i < NCALLS; i++)
		if (!strcmp(call, calls[i].name))
			fault.call = i;
	if (fault.role < 0 || (fault.call < 0 && strcmp(call, "*")))
		die("unknown role or call");
	fault.n = atol(n);
	char *value = strchr(action, '=');
	fault.value = value ? atol(value + 1) : 0;
	fault.action = !strncmp(action, "error=", 6) ? ERROR : !strncmp(action, "value=", 6) ? VALUE : !strncmp(action, "delay=", 6) ? DELAY : !strcmp(action, "crash") ? CRASH : KILL;
}

static void resume(void) {
	for (int i = 0; i < ntasks; i++)
		if (tasks[i].until && tasks[i].until <= now()) {
			tasks[i].until = 0;
			ptrace(PTRACE_CONT, tasks[i].tid, 0, 0);
		}
}

// waits gives what a thread waits for in the kernel, for whoever looks for a hang.
static void waits(pid_t tid, char *buf, size_t size) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/wchan", tid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);
	buf[n < 0 ? 0 : n] = 0;
	if (fd >= 0)
		close(fd);
}

static void end(const char *word) {
	char at[100];
	for (int i = 0; i < ntasks; i++)
		if (tasks[i].tid == tasks[i].tgid) {
			waits(tasks[i].tid, at, sizeof at);
			fprintf(out, "%s %s %d %s\n", word, roles[tasks[i].role], tasks[i].tgid, at);
		}
	for (int i = 0; i < ntasks; i++)
		kill(tasks[i].tgid, SIGKILL);
}

int main(int argc, char **argv) {
	const char *log = NULL, *ids = NULL;
	int64_t limit = 20000, grace = 5000;
	int o;
	while ((o = getopt(argc, argv, "+o:u:t:g:f:")) != -1)
		switch (o) {
		case 'o': log = optarg; break;
		case 'u': ids = optarg; break;
		case 't': limit = atol(optarg); break;
		case 'g': grace = atol(optarg); break;
		case 'f': parse(optarg); break;
		default: return 99;
		}
	if (!log || optind >= argc || !(out = fopen(log, "we")))
		die("usage: trace -o LOG … -- ARGV");
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	pid_t root = fork();
	if (root == 0)
		begin(argv + optind, ids);
	int status;
	if (waitpid(root, &status, WUNTRACED) != root)
		die("wait");
	long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
	if (ptrace(PTRACE_SEIZE, root, 0, options))
		die("seize");
	struct task *t = add(root);
	t->tgid = root, t->role = LAUNCHER, t->known = 1;
	kill(root, SIGCONT);
	int64_t over = now() + limit;
	int code = -1, stuck = 0;
	for (;;) {
		pid_t tid;
		while ((tid = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
			if (WIFSTOPPED(status)) {
				stopped(tid, status);
				continue;
			}
			drop(tid);
			if (tid == root) {
				code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
				fprintf(out, WIFEXITED(status) ? "exit %d\n" : "signal %d\n", WIFEXITED(status) ? code : WTERMSIG(status));
				if (!stuck)
					over = now() + grace;
			}
		}
		if (tid < 0 && errno == ECHILD)
			break;
		resume();
		int64_t next = over;
		for (int i = 0; i < ntasks; i++)
			if (tasks[i].until && tasks[i].until < next)
				next = tasks[i].until;
		int64_t wait = next - now();
		if (now() >= over) {
			if (stuck++ > 50)
				die("cannot end what is left");
			end(code < 0 ? "timeout" : "left");
			over = now() + 200;
			continue;
		}
		struct timespec ts = {wait > 0 ? wait / 1000 : 0, wait > 0 ? wait % 1000 * 1000000 : 1};
		sigtimedwait(&child, NULL, &ts);
	}
	fclose(out);
	return code < 0 ? 98 : code;
}
