package proxy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// requireTool fails where the tests must work, and skips elsewhere, when a
// program is missing.
func requireTool(t testing.TB, name string, places ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	for _, dir := range places {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, name))
	}
	switch {
	case err == nil:
		return path
	case os.Getenv("HERMES_MUST_WORK") == "1":
		t.Fatalf("%s is needed: %v", name, err)
	default:
		t.Skipf("%s is needed: %v", name, err)
	}
	return ""
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startNginx starts nginx before the server on a socket, and gives its own.
func startNginx(t testing.TB, backend string) string {
	t.Helper()
	nginx := requireTool(t, "nginx", "/usr/sbin")
	dir := shortDir(t)
	socket := filepath.Join(dir, "nginx")
	conf := fmt.Sprintf(`daemon off; master_process off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/log crit;
events { worker_connections 64; }
http {
  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  server {
    listen unix:%[2]s; server_name _; underscores_in_headers on; merge_slashes off; proxy_ignore_client_abort on; lingering_close off;
    location / { proxy_pass http://unix:%[3]s:; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection ""; }
  }
}
`, dir, socket, backend)
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	startServer(t, exec.Command(nginx, "-p", dir, "-e", filepath.Join(dir, "log"), "-c", filepath.Join(dir, "conf")), socket)
	return socket
}

// startNode starts a server on Node's own parser, and gives its socket.
func startNode(t testing.TB) string {
	t.Helper()
	node := requireTool(t, "node")
	socket := filepath.Join(shortDir(t), "node")
	const script = `
const server = require('http').createServer((request, response) => {
  const parts = [];
  request.on('data', part => parts.push(part));
  request.on('error', () => {});
  request.on('end', () => {
    const reading = {Method: request.method, Target: request.url, Host: request.headers.host || '', Body: Buffer.concat(parts).toString('hex')};
    response.setHeader('X-Reading', Buffer.from(JSON.stringify(reading)).toString('base64'));
    response.end();
  });
});
server.on('clientError', (error, socket) => socket.destroy());
server.listen(process.argv[1]);
`
	startServer(t, exec.Command(node, "-e", script, socket), socket)
	return socket
}

// startPython starts a server on Python's http.server, and gives its socket. That
// one leaves bodies to the handler, which reads them as frameworks on it do.
func startPython(t testing.TB) string {
	t.Helper()
	python := requireTool(t, "python3")
	socket := filepath.Join(shortDir(t), "python")
	const script = `
import base64, http.server, json, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def __getattr__(self, name):
        if name.startswith('do_'):
            return self.answer
        raise AttributeError(name)

    def body(self):
        if self.headers.get('Transfer-Encoding', '').strip().lower() != 'chunked':
            size = int(self.headers.get('Content-Length', '0'))
            part = self.rfile.read(size)
            if len(part) != size:
                raise ValueError('cut off')
            return part
        parts = []
        while size := int(self.rfile.readline().split(b';')[0], 16):
            part = self.rfile.read(size)
            if len(part) != size or self.rfile.readline() not in (b'\r\n', b'\n'):
                raise ValueError('cut off')
            parts.append(part)
        while self.rfile.readline() not in (b'\r\n', b'\n', b''):
            pass
        return b''.join(parts)

    def answer(self):
        reading = {'Method': self.command, 'Target': self.path, 'Host': self.headers.get('Host', ''), 'Body': self.body().hex()}
        self.send_response(200)
        self.send_header('X-Reading', base64.b64encode(json.dumps(reading).encode()).decode())
        self.send_header('Content-Length', '0')
        self.end_headers()

    def log_message(self, *args):
        pass

class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, address):
        pass

Server(sys.argv[1], Handler).serve_forever()
`
	startServer(t, exec.Command(python, "-I", "-c", script, socket), socket)
	return socket
}

// startServer starts a program and waits until it accepts connections.
func startServer(t testing.TB, cmd *exec.Cmd, socket string) {
	t.Helper()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v", cmd.Path, err)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen", cmd.Path)
		}
	}
}
