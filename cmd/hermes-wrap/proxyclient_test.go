package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// pairedClient is the launcher's end of a proxy that the test plays.
func pairedClient(t *testing.T) (px *proxyClient, theirs *sandbox.Channel) {
	t.Helper()
	ours, theirs, err := sandbox.NewChannelPair()
	if err != nil {
		t.Fatal(err)
	}
	px = newProxyClient(proxyNeeds{record: func(audit.Event) error { return nil }, say: func(string) {}})
	px.limit = restartLimit{}
	px.doorway = &doors{metrics: -1}
	px.first = newProxyLife("proxy", ours)
	px.serves(px.first)
	close(px.started)
	close(px.ready)
	go px.tend(px.first)
	t.Cleanup(func() {
		_ = theirs.EndSending()
		px.close()
		<-px.gone
	})
	return px, theirs
}

func somePolicy(t testing.TB) policy.Policy {
	t.Helper()
	p, err := policy.Load(policy.Options{Arg: "p", Given: true, Cwd: "/", Home: "/root", Builtin: func(string) ([]byte, bool) {
		return []byte("version: 1\nname: p\nextends: []\n"), true
	}, SearchDirs: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Orders may be answered in any order, between other events.
func TestOrdersAndEvents(t *testing.T) {
	px, theirs := pairedClient(t)
	const n = 5
	go func() {
		var seqs []int
		for range n {
			var o proxyOrder
			files, err := theirs.Receive(&o)
			closeFiles(files)
			if err != nil || len(files) != 2 {
				return
			}
			seqs = append(seqs, o.Seq)
			_ = theirs.Send(proxyEvent{Refresh: "key"})
		}
		for i := range seqs {
			e := proxyEvent{Done: seqs[n-1-i], Closed: seqs[n-1-i]}
			if e.Done%2 == 0 {
				e.Error = fmt.Sprintf("order %d is refused", e.Done)
			}
			_ = theirs.Send(e)
		}
		_ = theirs.Send(proxyEvent{Done: 1 << 20}) // nobody waits for it
		_ = theirs.Send(proxyEvent{Stop: "enough"})
	}()
	p := somePolicy(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for range n {
		wg.Go(func() {
			closed, err := px.update(p, proxySecrets{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				got[err.Error()]++
				return
			}
			got[fmt.Sprint(closed)]++
		})
	}
	wg.Wait()
	for _, want := range []string{"1", "3", "5", "order 2 is refused", "order 4 is refused"} {
		if got[want] != 1 {
			t.Errorf("answers: got %v, want %q once", got, want)
		}
	}
	if err := <-px.events; err == nil || err.Error() != "enough" {
		t.Errorf("event: got %v, want the reason of the stop", err)
	}
	if len(px.refresh) != n {
		t.Errorf("credentials to read again: got %d, want %d", len(px.refresh), n)
	}
}

// A flood of events never makes the launcher's reader wait, so that the proxy
// can always send.
func TestEventsNeverBlockTheReader(t *testing.T) {
	px, theirs := pairedClient(t)
	sent := make(chan error, 1)
	go func() {
		for range 20 * maxRefresh {
			if err := theirs.Send(proxyEvent{Refresh: "key"}); err != nil {
				sent <- err
				return
			}
			if err := theirs.Send(proxyEvent{Fatal: "broken"}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-sent:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the proxy waits for the launcher")
	}
	if err := <-px.events; err == nil || err.Error() != "broken" {
		t.Errorf("event: got %v, want the first failure", err)
	}
}

// The end of the proxy ends an order that waits, and the run.
func TestOrderEndsWithTheProxy(t *testing.T) {
	px, theirs := pairedClient(t)
	go func() {
		var o proxyOrder
		files, _ := theirs.Receive(&o)
		closeFiles(files)
		_ = theirs.EndSending()
	}()
	if _, err := px.update(somePolicy(t), proxySecrets{}); !errors.Is(err, errUnanswered) {
		t.Errorf("got %v, want that the proxy ended", err)
	}
	if px.inForce.policy.Name != "" {
		t.Errorf("in force: got policy %q, want what was before", px.inForce.policy.Name)
	}
	if err := <-px.events; err == nil {
		t.Error("event: got none, want the end of the run")
	}
}

// What the proxy said before it ended counts: the next one begins with it.
func TestAnswerBeforeTheEndCounts(t *testing.T) {
	for range 50 {
		px, theirs := pairedClient(t)
		go func() {
			var o proxyOrder
			files, _ := theirs.Receive(&o)
			closeFiles(files)
			_ = theirs.Send(proxyEvent{Done: o.Seq})
			_ = theirs.EndSending()
		}()
		if _, err := px.update(somePolicy(t), proxySecrets{}); err != nil {
			t.Fatalf("got %v, want the answer", err)
		}
		<-px.events // it has ended
		if px.inForce.policy.Name != "p" {
			t.Fatalf("in force: got policy %q, want the new one", px.inForce.policy.Name)
		}
	}
}

// What is sealed reaches the other end as it was, and nothing else is taken.
func TestSealed(t *testing.T) {
	p := somePolicy(t)
	files, err := sealed(p, proxySecrets{Files: map[string][]byte{"/ca": []byte("pem")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files[1].Write([]byte("x")); err == nil {
		t.Error("write: got no error, want a file that nobody can change")
	}
	got, secrets, err := readSealed(files)
	if err != nil || got.Digest != p.Digest || string(secrets.Files["/ca"]) != "pem" {
		t.Errorf("got %q, %v, %v, want what was sealed", got.Digest, secrets.Files, err)
	}
	if _, _, err := readSealed(nil); err == nil {
		t.Error("no files: got no error")
	}
	broken, err := sandbox.SealedFile("broken", []byte(`{"files":{"/key":"c2VjcmV0"},"x`))
	if err != nil {
		t.Fatal(err)
	}
	good, err := sandbox.SealedFile("good", p.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := readSealed([]*os.File{good, broken}); err == nil || errors.Unwrap(err) != nil || strings.Contains(err.Error(), "c2V") {
		t.Errorf("broken secrets: got %v, want an error without a part of them", err)
	}
}
