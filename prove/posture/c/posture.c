// posture prints everything that a process can tell of how it is held, a line
// each: "GROUP NAME: VALUE". It is run bare and inside, and the two are compared.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void value(const char *group, const char *name, long r) {
	if (r < 0)
		printf("%s %s: %s\n", group, name, strerrorname_np(errno));
	else
		printf("%s %s: %ld\n", group, name, r);
}

static void status(void) {
	static const char *const skip[] = {"Name", "State", "Tgid", "Ngid", "Pid", "PPid", "NStgid", "NSpid", "NSpgid", "NSsid", "FDSize", "Kthread", "untag_mask",
		"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "Mems_allowed", "x86_Thread_features", "SigQ"};
	char line[1024];
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f)) {
		size_t n = strcspn(line, ":");
		int keep = strncmp(line, "Vm", 2) && strncmp(line, "Rss", 3) && strncmp(line, "Huge", 4);
		for (size_t i = 0; i < sizeof skip / sizeof *skip; i++)
			keep = keep && (strlen(skip[i]) != n || strncmp(line, skip[i], n));
		if (keep && line[n]) {
			char *v = line + n + 1;
			v += strspn(v, " \t");
			v[strcspn(v, "\n")] = 0;
			line[n] = 0;
			printf("status %s: %s\n", line, v);
		}
	}
	if (f)
		fclose(f);
}

static void capabilities(void) {
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2];
	if (syscall(SYS_capget, &head, d) < 0) {
		printf("capget all: %s\n", strerrorname_np(errno));
		return;
	}
	printf("capget effective: %08x%08x\ncapget permitted: %08x%08x\ncapget inheritable: %08x%08x\n", d[1].effective, d[0].effective, d[1].permitted, d[0].permitted,
	       d[1].inheritable, d[0].inheritable);
	uint64_t bound = 0, ambient = 0;
	for (int c = 0; c < 64; c++) {
		if (prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1)
			bound |= 1ULL << c;
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, c, 0, 0) == 1)
			ambient |= 1ULL << c;
	}
	printf("capget bounding: %016llx\ncapget ambient: %016llx\n", (unsigned long long)bound, (unsigned long long)ambient);
}

static void gets(void) {
	int out = 0;
	value("prctl", "dumpable", prctl(PR_GET_DUMPABLE));
	value("prctl", "pdeathsig", prctl(PR_GET_PDEATHSIG, &out) < 0 ? -1 : out);
	value("prctl", "keepcaps", prctl(PR_GET_KEEPCAPS));
	value("prctl", "timing", prctl(PR_GET_TIMING));
	value("prctl", "seccomp", prctl(PR_GET_SECCOMP));
	value("prctl", "tsc", prctl(PR_GET_TSC, &out) < 0 ? -1 : out);
	value("prctl", "securebits", prctl(PR_GET_SECUREBITS));
	value("prctl", "timerslack", prctl(PR_GET_TIMERSLACK));
	value("prctl", "mce_kill", prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
	value("prctl", "child_subreaper", prctl(PR_GET_CHILD_SUBREAPER, &out) < 0 ? -1 : out);
	value("prctl", "no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	value("prctl", "thp_disable", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	value("prctl", "unaligned", prctl(PR_GET_UNALIGN, &out) < 0 ? -1 : out);
	value("prctl", "fpemu", prctl(PR_GET_FPEMU, &out) < 0 ? -1 : out);
	value("prctl", "fpexc", prctl(PR_GET_FPEXC, &out) < 0 ? -1 : out);
	value("prctl", "endian", prctl(PR_GET_ENDIAN, &out) < 0 ? -1 : out);
	for (unsigned long i = 0; i < 3; i++) {
		static const char *const names[] = {"speculation_store_bypass", "speculation_indirect_branch", "speculation_l1d_flush"};
		value("prctl", names[i], prctl(52, i, 0, 0, 0));
	}
	value("prctl", "tagged_addr", prctl(56, 0, 0, 0, 0));
	value("prctl", "io_flusher", prctl(58, 0, 0, 0, 0));
	value("prctl", "mdwe", prctl(66, 0, 0, 0, 0));
	value("prctl", "memory_merge", prctl(68, 0, 0, 0, 0));
	value("prctl", "shadow_stack", prctl(74, &out, 0, 0, 0));
	value("prctl", "timer_create_restore_ids", prctl(77, 2, 0, 0, 0));
}

static void limits(void) {
	static const char *const names[] = {"cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime"};
	for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
		struct rlimit r;
		if (getrlimit(i, &r))
			continue;
		printf("limit %s soft: %llu\nlimit %s hard: %llu\n", names[i], (unsigned long long)r.rlim_cur, names[i], (unsigned long long)r.rlim_max);
	}
}

static void namespaces(void) {
	static const char *const names[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[64], to[128];
		snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
		ssize_t n = readlink(path, to, sizeof to - 1);
		to[n < 0 ? 0 : n] = 0;
		printf("namespace %s: %s\n", names[i], n < 0 ? "unreadable" : to);
	}
}

static void descriptors(void) {
	for (int fd = 0; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("descriptor %d: open\n", fd);
}

static void environment(char **env) {
	for (char **e = env; *e; e++) {
		uint64_t h = 14695981039346656037ULL;
		size_t n = strcspn(*e, "=");
		for (char *c = *e + n; *c; c++)
			h = (h ^ (unsigned char)*c) * 1099511628211ULL;
		printf("env %.*s: %016llx\n", (int)n, *e, (unsigned long long)h);
	}
}

static void whole(const char *name) {
	char path[64], text[4096];
	snprintf(path, sizeof path, "/proc/self/%s", name);
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n < 0) {
		printf("self %s: %s\n", name, strerrorname_np(errno));
	} else {
		text[n] = 0;
		while (n > 0 && strchr(" \n", text[n - 1]))
			text[--n] = 0;
		for (char *c = text; *c; c++)
			if (*c == '\n' || *c == '\t')
				*c = ' ';
		printf("self %s: %s\n", name, text);
	}
	if (fd >= 0)
		close(fd);
}

static void mounts(void) {
	char line[8192];
	FILE *f = fopen("/proc/self/mountinfo", "r");
	while (f && fgets(line, sizeof line, f))
		printf("mount %s", line);
	if (f)
		fclose(f);
}

// walk prints what there is below a directory, and what of it could be written.
// A file is opened for writing, which changes nothing, and not through links.
static void walk(const char *group, const char *dir, int deep, int fresh) {
	DIR *d = opendir(dir);
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		char path[4096];
		struct stat st;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (fresh && e->d_name[0] >= '0' && e->d_name[0] <= '9')
			continue; // processes
		snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		if (lstat(path, &st))
			continue;
		const char *can = "-";
		if (S_ISREG(st.st_mode)) {
			int r = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW), w = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW);
			can = w >= 0 ? "written" : r >= 0 ? "read" : "-";
			if (r >= 0)
				close(r);
			if (w >= 0)
				close(w);
		} else if (S_ISDIR(st.st_mode))
			can = access(path, W_OK) == 0 ? "written" : "-";
		printf("%s %s: %s\n", group, path, can);
		if (S_ISDIR(st.st_mode) && deep > 0)
			walk(group, path, deep - 1, 0);
	}
	closedir(d);
}

int main(int argc, char **argv, char **env) {
	(void)argc, (void)argv;
	descriptors();
	status();
	capabilities();
	gets();
	limits();
	namespaces();
	environment(env);
	for (const char *const *n = (const char *const[]){"uid_map", "gid_map", "setgroups", "cgroup", "oom_score_adj", "timerslack_ns", "coredump_filter", "loginuid", "personality", NULL}; *n; n++)
		whole(*n);
	value("self", "nice", getpriority(PRIO_PROCESS, 0) + 20);
	value("self", "scheduler", sched_getscheduler(0));
	value("self", "io priority", syscall(SYS_ioprio_get, 1, 0));
	value("self", "persona", personality(0xffffffff));
	printf("self leader of its group: %d\n", getpgrp() == getpid());
	mounts();
	walk("proc", "/proc", 0, 1);
	walk("proc", "/proc/self", 0, 0);
	walk("proc", "/proc/self/attr", 1, 0);
	walk("sysctl", "/proc/sys", 12, 0);
	walk("sys", "/sys", 2, 0);
	return 0;
}
