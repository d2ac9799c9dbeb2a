package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
)

// Memory is what a run must not forget when its proxy is killed: what was used
// of budgets, which address stands for which name, and the tokens that were got.
// It lies in shared memory that the launcher keeps, and every change is in it
// before anything follows from the change. So whoever crashes the proxy gains
// nothing: what is not known of what was under way counts as used.
type Memory struct {
	all []byte
	*memoryHead

	mu sync.Mutex // writes to the journal and to the tokens
}

// memoryHead is the beginning of the memory. Only whole words are changed in
// place: a process can be killed between any two instructions.
type memoryHead struct {
	magic   uint64
	lines   atomic.Uint64 // of the record that the last proxy wrote
	journal atomic.Int64  // bytes of it that count
	traffic counters
	// Which of two copies counts: the other one is written, then they change roles.
	ledger, tokens atomic.Uint32
}

// counters is what the run has sent.
type counters struct {
	bytes atomic.Int64
	// spent is the budget that a write no longer fitted into: from then on
	// nothing goes out, however small, until a reload raises the budget.
	spent atomic.Int64
	// slices is what tunnels may be sending at the moment and nobody has counted.
	slices atomic.Int64
}

// The layout. The journal takes the rest.
const (
	memoryMagic  = 0x68772d6d656d3031
	ledgerAt     = 4 << 10
	ledgerRoom   = 4 << 10
	tokensAt     = 16 << 10
	tokensRoom   = 512 << 10
	journalAt    = tokensAt + 2*tokensRoom
	journalEntry = 2 + 255 // at most
)

// The bounds of a memory (bytes). MemorySize has room for all names and hosts
// that a run may have. It is sparse.
const (
	MemorySize = journalAt + (maxNames+maxCountedHosts)*journalEntry
	minMemory  = journalAt + 4<<10
)

// OpenMemory maps a file of the launcher's, and closes it. A file of zeros is a
// new memory. What tunnels were sending when the last proxy ended counts as sent.
func OpenMemory(f *os.File) (*Memory, error) {
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < minMemory {
		return nil, errors.New("BUG: the run's memory is too small")
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the run's memory: %w", err)
	}
	m := &Memory{all: b, memoryHead: (*memoryHead)(unsafe.Pointer(&b[0]))} // page-aligned
	if m.magic != 0 && m.magic != memoryMagic {
		return nil, errors.New("BUG: the run's memory is another version's")
	}
	m.magic = memoryMagic
	if n := m.journal.Load(); n < 0 || n > int64(len(b)-journalAt) {
		return nil, errors.New("BUG: the run's memory is damaged")
	}
	m.traffic.bytes.Add(m.traffic.slices.Load())
	m.traffic.slices.Store(0)
	return m, nil
}

// Lines takes note of how many lines of the record were written.
func (m *Memory) Lines(n uint64) { m.lines.Store(n) }

// NoLines says that the next proxy has written none yet.
func NoLines(f *os.File) error {
	if _, err := f.WriteAt(make([]byte, 8), int64(unsafe.Offsetof(memoryHead{}.lines))); err != nil {
		return fmt.Errorf("write the run's memory: %w", err)
	}
	return nil
}

// LinesIn gives how many lines of the record the last proxy wrote, or one less if
// it was killed in that moment.
func LinesIn(f *os.File) (int64, error) {
	var b [8]byte
	if _, err := f.ReadAt(b[:], int64(unsafe.Offsetof(memoryHead{}.lines))); err != nil {
		return 0, fmt.Errorf("read the run's memory: %w", err)
	}
	return int64(binary.NativeEndian.Uint64(b[:])), nil
}

// The kinds of entries in the journal.
const (
	entryAllowed = 'n' // a name got the next address
	entryDenied  = 'd' // a name that no rule mentions did
	entryHost    = 'h' // a host was counted
)

// note adds an entry. It gives false where there is no room.
func (m *Memory) note(kind byte, h netpolicy.Host) bool {
	if m == nil {
		return true
	}
	text := h.String()
	if len(text) > 255 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	end := m.journal.Load()
	free := m.all[journalAt+end:]
	if len(free) < 2+len(text) {
		return false
	}
	free[0], free[1] = kind, byte(len(text))
	copy(free[2:], text)
	m.journal.Store(end + 2 + int64(len(text)))
	return true
}

// entries gives what the journal holds, in order.
func (m *Memory) entries(take func(kind byte, h netpolicy.Host)) error {
	if m == nil {
		return nil
	}
	for b := m.all[journalAt : journalAt+m.journal.Load()]; len(b) > 0; {
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return errors.New("BUG: the run's memory is damaged")
		}
		h, err := netpolicy.ParseHost(string(b[2 : 2+int(b[1])]))
		if err != nil {
			return fmt.Errorf("BUG: the run's memory is damaged: %w", err)
		}
		take(b[0], h)
		b = b[2+int(b[1]):]
	}
	return nil
}

// recall takes over what an earlier proxy of the run left. It is called before
// anything is served.
func (s *Server) recall() error {
	err := s.Memory.entries(func(kind byte, h netpolicy.Host) {
		if kind == entryHost {
			s.traffic.lockedTake(h)
			return
		}
		s.names.lockedTake(h, kind == entryAllowed)
	})
	if err != nil || s.Memory == nil {
		return err
	}
	if err := s.recallTokens(); err != nil {
		return err
	}
	lost, err := s.models.Restore(s.now(), *s.Memory.balance(s.Memory.ledger.Load()))
	if err != nil {
		return err
	}
	s.models.Save = s.Memory.saveBalance
	s.models.Flush()
	if lost != (inference.Totals{}) {
		s.recordLost(lost)
	}
	return nil
}

// A balance must fit its room.
var _ [ledgerRoom - unsafe.Sizeof(inference.Balance{})]byte

// balance is one of the two copies of what models used. It holds no pointers.
func (m *Memory) balance(which uint32) *inference.Balance {
	return (*inference.Balance)(unsafe.Pointer(&m.all[ledgerAt+ledgerRoom*int(which&1)]))
}

// saveBalance is called under the ledger's lock.
func (m *Memory) saveBalance(b *inference.Balance) {
	other := m.ledger.Load() ^ 1
	*m.balance(other) = *b
	m.ledger.Store(other)
}
