package proxy

import (
	"errors"
	"io"
	"net/http"
	"sort"
	"strconv"
	"time"
)

// respond writes the server's answer. keep is set to false when the connection
// cannot carry another one. An error means that the answer is not whole.
func (h *http1) respond(hd *head, resp *http.Response, idle *time.Timer, keep *bool) error {
	length := resp.ContentLength
	bodiless := hd.method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	chunked := !bodiless && length < 0 && hd.minor > 0
	if !bodiless && length < 0 && hd.minor == 0 {
		*keep = false
	}
	delete(resp.Header, "Content-Length")
	if length >= 0 && resp.StatusCode != http.StatusNoContent && (!bodiless || length > 0 || hd.method == http.MethodHead) {
		resp.Header["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	if chunked {
		resp.Header["Transfer-Encoding"] = []string{"chunked"}
		if len(resp.Trailer) > 0 {
			resp.Header["Trailer"] = sortedKeys(resp.Trailer)
		}
	}
	if err := h.writeHead(resp.StatusCode, resp.Header, !*keep); err != nil {
		return err
	}
	if bodiless {
		return h.out.Flush()
	}
	if length < 0 { // perhaps a stream, whose first piece may come much later
		if err := h.out.Flush(); err != nil {
			return err
		}
	}
	if err := h.copyBody(resp.Body, chunked, length, idle); err != nil {
		return err
	}
	if chunked {
		return h.endChunks(resp.Trailer)
	}
	return h.out.Flush()
}

// writeHead writes a status line and fields, which are already checked.
func (h *http1) writeHead(status int, header http.Header, last bool) error {
	h.mu.Lock()
	h.answered = true
	h.mu.Unlock()
	if err := h.conn.SetWriteDeadline(time.Now().Add(h.s.limits.Idle)); err != nil {
		return err
	}
	text := http.StatusText(status)
	if text == "" {
		text = "Status"
	}
	w := h.out
	_, _ = w.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " " + text + "\r\n")
	for name, values := range header {
		for _, v := range values {
			writeField(w, name, v)
		}
	}
	if last {
		writeField(w, "Connection", "close")
	}
	_, err := w.WriteString("\r\n") // a bufio.Writer keeps its first error
	return err
}

func writeField(w io.StringWriter, name, value string) {
	_, _ = w.WriteString(name)
	_, _ = w.WriteString(": ")
	_, _ = w.WriteString(value)
	_, _ = w.WriteString("\r\n")
}

// copyBody passes each piece on as it comes: streams of events must not wait
// for a buffer to fill.
func (h *http1) copyBody(src io.Reader, chunked bool, length int64, idle *time.Timer) error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	var copied int64
	for {
		n, err := src.Read(*buf)
		copied += int64(n)
		idle.Reset(h.s.limits.Idle)
		if n > 0 {
			// The last piece leaves together with what ends the body.
			if werr := h.writePiece((*buf)[:n], chunked, err == nil && copied != length); werr != nil {
				return werr
			}
		}
		switch {
		case err == io.EOF && length >= 0 && copied != length:
			return io.ErrUnexpectedEOF
		case err == io.EOF:
			return nil
		case err != nil:
			_ = h.out.Flush()
			return err
		}
	}
}

func (h *http1) writePiece(p []byte, chunked, flush bool) error {
	if err := h.conn.SetWriteDeadline(time.Now().Add(h.s.limits.Idle)); err != nil {
		return err
	}
	if chunked {
		_, _ = h.out.WriteString(strconv.FormatInt(int64(len(p)), 16) + "\r\n")
	}
	_, err := h.out.Write(p)
	if chunked {
		_, err = h.out.WriteString("\r\n")
	}
	if err != nil || !flush {
		return err
	}
	return h.out.Flush()
}

func (h *http1) endChunks(trailer http.Header) error {
	if bad := badFields(trailer); bad != "" {
		return errors.New("malformed trailer " + bad)
	}
	_, _ = h.out.WriteString("0\r\n")
	for name, values := range trailer {
		if !mayTrail(name) {
			continue
		}
		for _, v := range values {
			writeField(h.out, name, v)
		}
	}
	_, _ = h.out.WriteString("\r\n")
	return h.out.Flush()
}

func sortedKeys(h http.Header) []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		if mayTrail(k) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	return keys
}
