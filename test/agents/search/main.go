// Command search looks for a secret, and for the private key that belongs to a
// certificate, in everything that it can read: every file below a directory
// that was changed since a moment, and the environment, arguments and memory of
// every other process. It prints one line for each find, and a last one with
// what it looked at.
//
// The secret is given as hexadecimal digits of its bytes XOR 0x5a, so that the
// arguments of this program are no find.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// window is how much is looked at at a time; pieces overlap by the length of
// the longest find.
const (
	window  = 4 << 20
	overlap = 4 << 10
	// longestKey is how long a P-256 key can be in PEM.
	longestKey = 1 << 10
)

type search struct {
	secret []byte
	public *ecdsa.PublicKey // of the authority; nil: none
	out    io.Writer
	since  int64 // seconds; what is older cannot hold what was made later
	files  int
	maps   int
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: search HEX SINCE DIRECTORY [CERTIFICATES]")
		os.Exit(2)
	}
	secret, err := hex.DecodeString(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "search:", err)
		os.Exit(2)
	}
	for i := range secret {
		secret[i] ^= 0x5a
	}
	s := &search{secret: secret, out: os.Stdout}
	if s.since, err = strconv.ParseInt(os.Args[2], 10, 64); err != nil {
		fmt.Fprintln(os.Stderr, "search:", err)
		os.Exit(2)
	}
	if len(os.Args) > 4 {
		if s.public = authority(os.Args[4]); s.public != nil {
			fmt.Println("knows the authority")
		}
	}
	s.walk(os.Args[3])
	s.processes()
	fmt.Printf("searched %d files and %d mappings\n", s.files, s.maps)
}

// authority gives the key of the run's authority, which is the last certificate
// of the bundle that hermes-wrap made.
func authority(bundle string) *ecdsa.PublicKey {
	rest, err := os.ReadFile(bundle)
	if err != nil {
		return nil
	}
	var key *ecdsa.PublicKey
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return key
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !strings.HasPrefix(c.Subject.CommonName, "hermes-wrap run") {
			continue
		}
		key, _ = c.PublicKey.(*ecdsa.PublicKey)
	}
}

func (s *search) walk(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // closed to us, as it is to everybody inside
		case d.IsDir() && (path == "/proc" || path == "/sys" || path == "/dev"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			var st syscall.Stat_t
			if syscall.Lstat(path, &st) != nil || st.Ctim.Sec >= s.since {
				s.file(path)
			}
		}
		return nil
	})
}

func (s *search) file(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	s.files++
	s.stream(f, path)
}

// stream looks at everything that a reader gives.
func (s *search) stream(r io.Reader, where string) {
	buf := make([]byte, 0, window+overlap)
	for {
		n, err := io.ReadFull(r, buf[len(buf):min(len(buf)+window, cap(buf))])
		buf = buf[:len(buf)+n]
		s.look(buf, where)
		if err != nil {
			return
		}
		keep := min(len(buf), overlap)
		copy(buf, buf[len(buf)-keep:])
		buf = buf[:keep]
	}
}

func (s *search) look(b []byte, where string) {
	if bytes.Contains(b, s.secret) {
		s.found("the secret", where)
	}
	if s.public == nil {
		return
	}
	for rest := b; ; {
		i := bytes.Index(rest, []byte("-----BEGIN "))
		if i < 0 {
			break
		}
		rest = rest[i:]
		if block, _ := pem.Decode(rest[:min(len(rest), longestKey)]); block != nil && s.holds(block) {
			s.found("the authority's key", where)
		}
		rest = rest[len("-----BEGIN "):]
	}
	// SEC 1 and, around it, PKCS #8 hold the number of a P-256 key after these bytes.
	before := []byte{0x02, 0x01, 0x01, 0x04, 0x20}
	for rest := b; ; {
		i := bytes.Index(rest, before)
		if i < 0 || len(rest) < i+len(before)+32 {
			return
		}
		rest = rest[i+len(before):]
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), rest[:32])
		if err == nil && key.PublicKey.Equal(s.public) {
			s.found("the authority's key", where)
		}
	}
}

// holds tells whether a PEM block is the authority's private key.
func (s *search) holds(block *pem.Block) bool {
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if key, ok := parsed.(*ecdsa.PrivateKey); err == nil && ok {
		return key.PublicKey.Equal(s.public)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	return err == nil && key.PublicKey.Equal(s.public)
}

func (s *search) found(what, where string) { fmt.Fprintln(s.out, "found", what, "in", where) }

// processes looks at every other process.
func (s *search) processes() {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if filepath.Base(dir) == strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, name := range []string{"environ", "cmdline"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				s.look(b, filepath.Join(dir, name))
			}
		}
		s.memory(dir)
	}
}

func (s *search) memory(dir string) {
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		return
	}
	mem, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		return
	}
	defer mem.Close()
	there, err := os.Open(filepath.Join(dir, "pagemap"))
	if err != nil {
		return
	}
	defer there.Close()
	for _, line := range strings.Split(string(maps), "\n") {
		span, rest, ok := strings.Cut(line, " ")
		if !ok || !strings.HasPrefix(rest, "rw") {
			continue // what cannot be written holds no secret that was made at run time
		}
		from, to, _ := strings.Cut(span, "-")
		a, err1 := strconv.ParseInt(from, 16, 64)
		z, err2 := strconv.ParseInt(to, 16, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		s.maps++
		for _, r := range present(there, a, z) {
			s.stream(io.NewSectionReader(mem, r[0], r[1]-r[0]), dir+" "+span)
		}
	}
}

// present gives the parts of a mapping that are in memory or in swap. Some
// programs reserve tens of gigabytes that they never touch.
func present(pagemap *os.File, a, z int64) (ranges [][2]int64) {
	page := int64(os.Getpagesize())
	entries := make([]byte, 8*4096)
	for at := a; at < z; {
		n, err := pagemap.ReadAt(entries[:8*min(4096, (z-at)/page)], at/page*8)
		for i := 0; i+8 <= n; i += 8 {
			if bits := binary.NativeEndian.Uint64(entries[i:]); bits>>62 != 0 {
				if k := len(ranges) - 1; k >= 0 && ranges[k][1] == at {
					ranges[k][1] = at + page
				} else {
					ranges = append(ranges, [2]int64{at, at + page})
				}
			}
			at += page
		}
		if err != nil || n < 8 {
			break
		}
	}
	return ranges
}
