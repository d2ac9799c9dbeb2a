// probe runs inside and says how it is held: every line must be the same in each
// run that the launcher calls a success. It needs nothing but a kernel.
//
//   probe RAN SECRET LANDLOCK PORT PROTECTED
//
// RAN is created at once: it tells that the command was started. SECRET is a file
// of the host; LANDLOCK one that only Landlock stands in front of; PORT one of the
// host's loopback; PROTECTED a name that may not come into existence.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static void said(const char *what, long r) {
	printf("%s: %s\n", what, r < 0 ? strerrorname_np(errno) : "ESCAPED");
}

static void refused(const char *what, long r) {
	printf("%s: %s\n", what, r < 0 ? "refused" : "ESCAPED");
}

static void reading(const char *what, const char *path) {
	char b[64];
	int fd = open(path, O_RDONLY);
	said(what, fd < 0 ? -1 : read(fd, b, sizeof b));
}

// asks tells whether somebody answers; how a refusal looks is a matter of time.
static void asks(const char *what, const char *address, int port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct timeval t = {4, 0};
	char b[64];
	inet_pton(AF_INET, address, &a.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
	int answered = connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL) > 0 && recv(fd, b, sizeof b, 0) > 0;
	printf("%s: %s\n", what, answered ? "ESCAPED" : "nobody");
	close(fd);
}

static void status(void) {
	static const char *const keep[] = {"Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "TracerPid"};
	char line[512];
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
			if (!strncmp(line, keep[i], strlen(keep[i])) && line[strlen(keep[i])] == ':')
				fputs(line, stdout);
}

static void limits(void) {
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit r;
		if (!getrlimit(i, &r))
			printf("limit %d: %llu %llu\n", i, (unsigned long long)r.rlim_cur, (unsigned long long)r.rlim_max);
	}
}

static void mounts(void) {
	char line[4096], root[2048], at[2048], options[512], rest[2048];
	FILE *f = fopen("/proc/self/mountinfo", "r");
	while (f && fgets(line, sizeof line, f)) {
		char *dash = strstr(line, " - ");
		if (dash && sscanf(line, "%*d %*d %*s %2047s %2047s %511s", root, at, options) == 3 && sscanf(dash, " - %2047s", rest) == 1)
			printf("mount %s %s %s\n", at, options, rest);
	}
}

static void descriptors(void) {
	printf("descriptors:");
	for (int fd = 0; fd < 64; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf(" %d", fd);
	printf("\n");
}

int main(int argc, char **argv, char **env) {
	if (argc < 6)
		return 99;
	descriptors();
	int ran = open(argv[1], O_CREAT | O_WRONLY, 0600); // the guard may be gone
	if (ran >= 0)
		close(ran);
	status();
	limits();
	mounts();
	for (char **e = env; *e; e++)
		printf("env %.*s\n", (int)strcspn(*e, "="), *e);
	reading("secret", argv[2]);
	reading("landlock", argv[3]);
	asks("host", "127.0.0.1", atoi(argv[4]));
	asks("denied", "198.51.100.66", atoi(argv[4]));
	// Who says no is the guard's broker, or the kernel once that is gone.
	refused("protected", mkdir(argv[5], 0700));
	refused("system", open("/usr/escaped", O_CREAT | O_WRONLY, 0600));
	refused("root", mkdir("/escaped", 0700));
	said("io_uring", syscall(SYS_io_uring_setup, 1, NULL));
	said("namespace", syscall(SYS_unshare, CLONE_NEWUSER));
	said("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL));
	said("keyring", syscall(SYS_keyctl, 0, -3, 0));
	said("bpf", syscall(SYS_bpf, 0, NULL, 0));
	said("init", kill(1, 0) ? -1 : open("/proc/1/environ", O_RDONLY));
	printf("pid: %s\n", getpid() < 100 ? "of its own" : "ESCAPED");
	return fflush(stdout) ? 98 : 7;
}
