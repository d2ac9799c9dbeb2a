// Package readers asks the programs that an agent and its servers use how they
// read a URL or a JSON text: Python's and Node's own libraries and curl's. What
// is judged must be what they read.
package readers

import (
	"bufio"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

//go:embed reader.py
var python string

//go:embed reader.js
var node string

// URL is how a URL was read.
type URL struct {
	// Accepted is false when the program refuses the text; nothing else is set then.
	Accepted bool
	Host     string
	Port     int
	// Path is what the program sends, Query what stands behind its question mark.
	Path, Query string
	// Decoded is the path as a server on this library understands it: escapes
	// are decoded once. Raw bytes, which need not be UTF-8.
	Decoded []byte
}

// Reader is a program that runs until the test ends. It answers one question
// after the other.
type Reader struct {
	// Name is what it is called in messages.
	Name string
	kind string // added to the questions
	run  *process
}

// process is what one or several Readers ask.
type process struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Scanner
}

// question is a line to a program. Text is base64.
type question struct {
	Kind string `json:"kind"`
	Text []byte `json:"text"`
}

// URLs gives all that read URLs: Python, Node and curl.
func URLs(t testing.TB) []Reader {
	t.Helper()
	harness.Require(t, has("curl"), "curl")
	py, js := startPython(t), startNode(t)
	return []Reader{{"python", "url", py}, {"python's request", "request", py}, {"curl", "curl", py}, {"node", "url", js}}
}

// JSONs gives all that read JSON: Python and Node.
func JSONs(t testing.TB) []Reader {
	t.Helper()
	return []Reader{{"python", "json", startPython(t)}, {"node", "json", startNode(t)}}
}

func has(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

func startPython(t testing.TB) *process {
	t.Helper()
	harness.Require(t, has("python3"), "python3")
	return start(t, exec.Command("python3", "-I", "-c", python))
}

func startNode(t testing.TB) *process {
	t.Helper()
	harness.Require(t, has("node"), "node")
	return start(t, exec.Command("node", "-e", node))
}

// start runs a program. It ends with its standard input, also when the test's
// process is killed.
func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	s := bufio.NewScanner(out)
	s.Buffer(nil, 64<<20)
	return &process{in: in, out: s}
}

// URL asks how the program reads a URL.
func (r Reader) URL(t testing.TB, text string) (u URL) {
	t.Helper()
	r.ask(t, text, &u)
	return u
}

// JSON gives the value of a text in a form that is the same for the same value,
// see Form. ok is false when the program refuses the text.
func (r Reader) JSON(t testing.TB, text string) (form string, ok bool) {
	t.Helper()
	var a struct {
		Accepted bool
		Form     json.RawMessage
	}
	r.ask(t, text, &a)
	return string(a.Form), a.Accepted
}

func (r Reader) ask(t testing.TB, text string, answer any) {
	t.Helper()
	line, err := json.Marshal(question{r.kind, []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	r.run.mu.Lock()
	defer r.run.mu.Unlock()
	if _, err := fmt.Fprintln(r.run.in, base64.StdEncoding.EncodeToString(line)); err != nil {
		t.Fatalf("%s: ask about %q: %v", r.Name, text, err)
	}
	if !r.run.out.Scan() {
		t.Fatalf("%s: it ended over %q: %v", r.Name, text, r.run.out.Err())
	}
	if err := json.Unmarshal(r.run.out.Bytes(), answer); err != nil {
		t.Fatalf("%s: about %q it says %q: %v", r.Name, text, r.run.out.Bytes(), err)
	}
}
