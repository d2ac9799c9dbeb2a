package sandbox

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrEnded is what every request gets once the sandbox has ended.
var ErrEnded = errors.New("the sandbox has ended")

// desk joins init's answers to the launcher's requests.
type desk struct {
	send func(message) error
	over chan struct{} // closed when init is gone

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	tasks   map[int]*Running
}

func newDesk(send func(message) error) *desk {
	return &desk{send: send, over: make(chan struct{}), waiting: map[int]chan message{}, tasks: map[int]*Running{}}
}

// ask sends a request and waits for its answer. A task that it starts is known
// from the moment of the request, so that its end cannot come too early.
func (d *desk) ask(m message, t *Running) (message, error) {
	answer := make(chan message, 1)
	d.mu.Lock()
	d.last++
	m.Id = d.last
	d.waiting[m.Id] = answer
	if t != nil {
		t.id = m.Id
		d.tasks[m.Id] = t
	}
	d.mu.Unlock()
	err := d.send(m)
	if err == nil {
		var a message
		select {
		case a = <-answer:
		case <-d.over:
			return message{}, ErrEnded
		}
		if a.Error == "" {
			return a, nil
		}
		closeAll(a.files)
		err = a.err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, m.Id)
	delete(d.tasks, m.Id)
	return message{}, err
}

// askFile sends a request whose answer is one descriptor.
func (d *desk) askFile(m message) (*os.File, error) {
	a, err := d.ask(m, nil)
	if err != nil {
		return nil, err
	}
	if len(a.files) != 1 {
		closeAll(a.files)
		return nil, errors.New("the sandbox's init gave no socket")
	}
	return a.files[0], nil
}

// deliver hands on an answer or the end of a task; it never waits.
func (d *desk) deliver(m message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.Op == opEnded {
		if t := d.tasks[m.Id]; t != nil {
			t.status = unix.WaitStatus(m.Status)
			close(t.ended)
			delete(d.tasks, m.Id)
		}
		return
	}
	answer := d.waiting[m.Id]
	if answer == nil {
		closeAll(m.files)
		return
	}
	delete(d.waiting, m.Id)
	answer <- m
}

// running lists the tasks that have not ended.
func (d *desk) running() (all []*Running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		all = append(all, t)
	}
	return all
}
