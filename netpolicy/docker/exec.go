package docker

import "github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"

// judgeExec writes the body of a command in a container anew. "Privileged" is
// among what must be empty.
func (s *Set) judgeExec(c *Call, r Request) error {
	f := fields{
		"AttachStdin": flag, "AttachStdout": flag, "AttachStderr": flag, "Tty": flag, "Detach": flag,
		"Cmd": texts, "Env": texts, "User": textOf(isUser), "WorkingDir": textOf(isText), "DetachKeys": textOf(isKeys), "ConsoleSize": sizes,
	}
	return s.rewrite(c, r, f, "Exec", []string{
		"User", "Tty", "ConsoleSize", "AttachStdin", "AttachStdout", "AttachStderr", "Detach", "DetachKeys", "Env", "WorkingDir", "Cmd",
	})
}

func (s *Set) judgeExecStart(c *Call, r Request) error {
	if err := s.judgeExecName(c, r); err != nil {
		return err
	}
	return s.rewrite(c, r, fields{"Detach": flag, "Tty": flag, "ConsoleSize": sizes}, "ExecStart", []string{"Detach", "Tty", "ConsoleSize"})
}

// judgeExecName wants the whole identifier of a command in a container.
func (s *Set) judgeExecName(c *Call, _ Request) error {
	if !isHex(c.Exec, 64) {
		return malformed("%q is not the identifier of a command in a container", clip(c.Exec))
	}
	return nil
}

func (s *Set) rewrite(c *Call, r Request, f fields, what string, order []string) error {
	body, err := strictjson.Parse(r.Body)
	if err != nil {
		return malformed("the body: %v", err)
	}
	out, err := f.read(s, what, body)
	if err != nil {
		return err
	}
	c.Body = objectOf(out, order).Append(nil)
	return nil
}
