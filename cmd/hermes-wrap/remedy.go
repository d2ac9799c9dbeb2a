package main

import (
	"cmp"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// located names the step at which the launch was, for an error that does not say
// it itself. What is wrong in a policy or on the command line has its own place,
// and no step.
func located(at sandbox.Step, err error) error {
	var (
		no       unix.Errno
		step     *sandbox.StepError
		problems policy.Problems
		problem  policy.Problem
	)
	if errors.As(err, &step) || errors.As(err, &problems) || errors.As(err, &problem) || codeOf(err) != exitFailed {
		return err
	}
	// Beyond the command line and the policy it is always about the machine.
	if !errors.As(err, &no) && (hintOf(err) != "" || at != sandbox.StepRuntime && at != sandbox.StepProxy) {
		return err
	}
	return &hintedError{&sandbox.StepError{Step: at, Err: err}, hintOf(err)}
}

// remedies say what to do about an error of the kernel. The words count too:
// what another process reports, libcontainer's for one, arrives as text.
var remedies = []struct {
	errors []unix.Errno
	hint   string
}{
	{[]unix.Errno{unix.ENOSPC, unix.EDQUOT}, "make room where the message says; df and df -i show whether bytes or inodes are short"},
	{[]unix.Errno{unix.EMFILE}, "let each process open more files: ulimit -n"},
	{[]unix.Errno{unix.ENFILE}, "let the machine open more files: sysctl fs.file-max"},
	{[]unix.Errno{unix.ENOMEM}, "free memory, or raise what this session may use: ulimit -v, and memory.max of its control group"},
	{[]unix.Errno{unix.EAGAIN}, "let your user have more processes and threads: ulimit -u, and pids.max of the session's control group"},
	{[]unix.Errno{unix.EFBIG}, "let a process write larger files: ulimit -f"},
	{[]unix.Errno{unix.ENAMETOOLONG, unix.EINVAL}, "see whether the paths of the workspace and of XDG_RUNTIME_DIR are short and plain; hermes-wrap doctor tries everything else that a launch needs"},
	{[]unix.Errno{unix.EROFS}, "make that place writable, or name another one: XDG_RUNTIME_DIR for the run's directory, XDG_STATE_HOME for records"},
	{[]unix.Errno{unix.EIO}, "look in the kernel's log for errors of the disk: dmesg"},
	{[]unix.Errno{unix.EACCES, unix.EPERM}, "see what this machine refuses: hermes-wrap doctor"},
	{[]unix.Errno{unix.EPIPE, unix.ECONNRESET}, hintEnded},
}

const hintEnded = "start it again; if it ends again, the kernel's log says whether memory ran out: dmesg"

// endings are how errors tell that a process was gone.
var endings = []string{"EOF", "was killed", "ended before", "procReady not received"}

// remedied adds one thing to do to the error of a failed launch that has none.
func remedied(err error) error {
	var step *sandbox.StepError
	if codeOf(err) != exitFailed || hintOf(err) != "" || !errors.As(err, &step) {
		return err
	}
	return &hintedError{err, cmp.Or(machineRemedy(err), "see whether everything that a launch needs is there: hermes-wrap doctor")}
}

// machineRemedy is what to do when the machine is the cause, "" when it is not.
func machineRemedy(err error) string {
	text := err.Error()
	for _, r := range remedies {
		for _, no := range r.errors {
			if errors.Is(err, no) || strings.Contains(strings.ToLower(text), no.Error()) {
				return r.hint
			}
		}
	}
	for _, words := range endings {
		if strings.Contains(text, words) {
			return hintEnded
		}
	}
	return ""
}
