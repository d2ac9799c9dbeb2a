package sandbox

import (
	"context"
	"fmt"
	"os"
	"time"
)

// DiskError ends a run whose layers on disk hold more than they may, or whose
// layers can no longer be measured.
type DiskError struct {
	// Key is the limit: "limits.disk" or "limits.disk_files".
	Key         string
	Used, Limit int64
	// Err is what kept the layers from being measured.
	Err error
}

// Error names the limit and what was found.
func (e *DiskError) Error() string {
	switch {
	case e.Err != nil:
		return fmt.Sprintf("the copy-on-write layers cannot be measured, so that %s would not hold: %v", e.Key, e.Err)
	case e.Key == diskKey:
		return fmt.Sprintf("the copy-on-write layers hold %d MiB, more than %s (%d MiB)", e.Used>>20, e.Key, e.Limit>>20)
	}
	return fmt.Sprintf("the copy-on-write layers hold %d files, more than %s (%d)", e.Used, e.Key, e.Limit)
}

// Unwrap gives the cause.
func (e *DiskError) Unwrap() error { return e.Err }

const (
	diskKey  = "limits.disk"
	filesKey = "limits.disk_files"
)

// watchDisk measures the layers on disk until the run ends or is over a limit.
func (r *run) watchDisk(ctx context.Context, over chan<- error) {
	cow, tops := r.Plan.Cow, r.layers.onDisk()
	if cow == nil || cow.Size <= 0 && cow.Inodes <= 0 || len(tops) == 0 {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		u, err := measure(ctx, tops, *cow, r.box.pid())
		if err == nil {
			err = u.judge(*cow)
		} else {
			err = &DiskError{Key: diskKey, Err: err}
		}
		if err != nil && ctx.Err() == nil {
			over <- err
			return
		}
		timer.Reset(u.wait(*cow, time.Since(began)))
	}
}

// onDisk gives the tops of the layers that no tmpfs bounds.
func (h *layerHolder) onDisk() (tops []*os.File) {
	for _, l := range h.list() {
		if !l.Memory {
			tops = append(tops, l.Upper)
		}
	}
	return tops
}

// usage is what layers hold.
type usage struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

func (u usage) judge(c Cow) error {
	if c.Size > 0 && u.Bytes > c.Size {
		return &DiskError{Key: diskKey, Used: u.Bytes, Limit: c.Size}
	}
	if c.Inodes > 0 && u.Files > int64(c.Inodes) {
		return &DiskError{Key: filesKey, Used: u.Files, Limit: int64(c.Inodes)}
	}
	return nil
}

// wait is the time until the next look: what is left at the rate assumed.
func (u usage) wait(c Cow, cost time.Duration) time.Duration {
	d := diskSlowest
	if c.Size > 0 {
		d = min(d, time.Duration(float64(c.Size-u.Bytes)/diskRate*float64(time.Second)))
	}
	if c.Inodes > 0 {
		d = min(d, time.Duration(float64(int64(c.Inodes)-u.Files)/fileRate*float64(time.Second)))
	}
	return max(d, diskFastest, cost*diskShare)
}
