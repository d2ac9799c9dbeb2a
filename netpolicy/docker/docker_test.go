package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

func testSet(t testing.TB, change ...func(*policy.Docker)) *Set {
	t.Helper()
	d := policy.Docker{Images: []policy.Name{{Text: "python:3.12*"}, {Text: "ghcr.io/acme/tools:1"}, {Text: "alpine"}}}
	for _, f := range change {
		f(&d)
	}
	s := Compile(d, "run-1")
	if s == nil {
		t.Fatal("got no set")
	}
	return s
}

// cliBody is what the docker command (28.2.2) sends for
// docker run -i --rm --memory 512m --cpus 1 --pids-limit 100 python:3.12-slim sh.
const cliBody = `{"Hostname":"","Domainname":"","User":"","AttachStdin":true,"AttachStdout":true,"AttachStderr":true,"Tty":false,"OpenStdin":true,"StdinOnce":true,` +
	`"Env":null,"Cmd":["sh"],"Image":"python:3.12-slim","Volumes":{},"WorkingDir":"","Entrypoint":null,"OnBuild":null,"Labels":{},` +
	`"HostConfig":{"Binds":null,"ContainerIDFile":"","LogConfig":{"Type":"","Config":{}},"NetworkMode":"default","PortBindings":{},` +
	`"RestartPolicy":{"Name":"no","MaximumRetryCount":0},"AutoRemove":true,"VolumeDriver":"","VolumesFrom":null,"ConsoleSize":[0,0],"CapAdd":null,"CapDrop":null,` +
	`"CgroupnsMode":"","Dns":[],"DnsOptions":[],"DnsSearch":[],"ExtraHosts":null,"GroupAdd":null,"IpcMode":"","Cgroup":"","Links":null,"OomScoreAdj":0,"PidMode":"",` +
	`"Privileged":false,"PublishAllPorts":false,"ReadonlyRootfs":false,"SecurityOpt":null,"UTSMode":"","UsernsMode":"","ShmSize":0,"Isolation":"","CpuShares":0,` +
	`"Memory":536870912,"NanoCpus":1000000000,"CgroupParent":"","BlkioWeight":0,"BlkioWeightDevice":[],"BlkioDeviceReadBps":[],"BlkioDeviceWriteBps":[],` +
	`"BlkioDeviceReadIOps":[],"BlkioDeviceWriteIOps":[],"CpuPeriod":0,"CpuQuota":0,"CpuRealtimePeriod":0,"CpuRealtimeRuntime":0,"CpusetCpus":"","CpusetMems":"",` +
	`"Devices":[],"DeviceCgroupRules":null,"DeviceRequests":null,"MemoryReservation":0,"MemorySwap":0,"MemorySwappiness":-1,"OomKillDisable":false,"PidsLimit":100,` +
	`"Ulimits":[],"CpuCount":0,"CpuPercent":0,"IOMaximumIOps":0,"IOMaximumBandwidth":0,"MaskedPaths":null,"ReadonlyPaths":null},` +
	`"NetworkingConfig":{"EndpointsConfig":{"default":{"IPAMConfig":null,"Links":null,"Aliases":null,"MacAddress":"","DriverOpts":null,"GwPriority":0,"NetworkID":"","EndpointID":"","Gateway":"","IPAddress":"","IPPrefixLen":0,"IPv6Gateway":"",` +
	`"GlobalIPv6Address":"","GlobalIPv6PrefixLen":0,"DNSNames":null}}}}`

func create(body string) Request {
	return Request{Method: "POST", Path: "/v1.47/containers/create", Body: []byte(body)}
}

func TestCreateIsWrittenAnew(t *testing.T) {
	c, err := testSet(t).Judge(create(cliBody))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"AttachStdin":true,"AttachStdout":true,"AttachStderr":true,"Tty":false,"OpenStdin":true,"StdinOnce":true,"Cmd":["sh"],"Image":"python:3.12-slim",` +
		`"Labels":{"hermes-wrap.run":"run-1"},"HostConfig":{"NetworkMode":"none","IpcMode":"private","CgroupnsMode":"private","AutoRemove":true,"ReadonlyRootfs":false,` +
		`"ConsoleSize":[0,0],"CapAdd":["CHOWN","DAC_OVERRIDE","FOWNER","SETGID","SETUID"],"CapDrop":["ALL"],"SecurityOpt":["no-new-privileges:true"],` +
		`"Memory":536870912,"MemorySwap":536870912,"NanoCpus":1000000000,"PidsLimit":100}}`
	if got := string(c.Body); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c.Kind != Create || c.Path != "/v1.47/containers/create" {
		t.Errorf("got %v, %q", c.Kind, c.Path)
	}
}

// "-0" is zero to the engine, and zero is no limit.
func TestMinusZeroIsNoLimit(t *testing.T) {
	c, err := testSet(t).Judge(create(`{"Image":"alpine","HostConfig":{"Memory":-0,"MemorySwap":-0,"NanoCpus":-0,"PidsLimit":-0}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `"Memory":2147483648,"MemorySwap":2147483648,"NanoCpus":2000000000,"PidsLimit":256`; !strings.Contains(string(c.Body), want) {
		t.Errorf("got %s, want %s in it", c.Body, want)
	}
}

func TestCreateGetsCeilings(t *testing.T) {
	c, err := testSet(t).Judge(create(`{"Image":"alpine","HostConfig":{"CapAdd":["cap_chown"],"Tmpfs":{"/tmp":"rw,noexec,size=64m"},"Ulimits":[{"Name":"nofile","Soft":1,"Hard":2}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Image":"alpine:latest"`, `"Memory":2147483648,"MemorySwap":2147483648,"NanoCpus":2000000000,"PidsLimit":256`, `"CapAdd":["CHOWN"]`, `"/tmp":"rw,noexec,size=64m"`, `"NetworkMode":"none"`} {
		if !strings.Contains(string(c.Body), want) {
			t.Errorf("got %s, want %s in it", c.Body, want)
		}
	}
}

// HostConfigAttacks are refused in HostConfig, each for itself.
var hostConfigAttacks = map[string]string{
	"privileged":                   `"Privileged":true`,
	"privileged, other case":       `"privileged":true`,
	"privileged, upper case":       `"PRIVILEGED":true`,
	"privileged, escaped":          `"\u0050rivileged":true`,
	"privileged twice":             `"Privileged":false,"Privileged":true`,
	"privileged as text":           `"Privileged":"true"`,
	"privileged as number":         `"Privileged":1`,
	"a long s folds to s":          `"CgroupParentſ":"x"`,
	"all capabilities":             `"CapAdd":["ALL"]`,
	"sys_admin":                    `"CapAdd":["SYS_ADMIN"]`,
	"cap_sys_admin":                `"CapAdd":["CHOWN","cap_sys_admin"]`,
	"net_raw":                      `"CapAdd":["NET_RAW"]`,
	"a capability as text":         `"CapAdd":"SYS_ADMIN"`,
	"old capabilities":             `"Capabilities":["CAP_SYS_ADMIN"]`,
	"capabilities, other case":     `"capadd":["SYS_ADMIN"]`,
	"device":                       `"Devices":[{"PathOnHost":"/dev/sda","PathInContainer":"/dev/sda","CgroupPermissions":"rwm"}]`,
	"device request":               `"DeviceRequests":[{"Driver":"nvidia","Count":-1}]`,
	"device cgroup rule":           `"DeviceCgroupRules":["a *:* rwm"]`,
	"host network":                 `"NetworkMode":"host"`,
	"host network, other case":     `"networkmode":"host"`,
	"another container's network":  `"NetworkMode":"container:db"`,
	"bridge":                       `"NetworkMode":"bridge"`,
	"network by name":              `"NetworkMode":"backend"`,
	"network namespace by path":    `"NetworkMode":"ns:/proc/1/ns/net"`,
	"host pids":                    `"PidMode":"host"`,
	"another container's pids":     `"PidMode":"container:db"`,
	"host ipc":                     `"IpcMode":"host"`,
	"shareable ipc":                `"IpcMode":"shareable"`,
	"another container's ipc":      `"IpcMode":"container:db"`,
	"host uts":                     `"UTSMode":"host"`,
	"host users":                   `"UsernsMode":"host"`,
	"host cgroups":                 `"CgroupnsMode":"host"`,
	"cgroup parent":                `"CgroupParent":"/"`,
	"another container's cgroup":   `"Cgroup":"container:db"`,
	"seccomp off":                  `"SecurityOpt":["seccomp=unconfined"]`,
	"seccomp off, colon":           `"SecurityOpt":["seccomp:unconfined"]`,
	"apparmor off":                 `"SecurityOpt":["no-new-privileges","apparmor=unconfined"]`,
	"labels off":                   `"SecurityOpt":["label=disable"]`,
	"system paths":                 `"SecurityOpt":["systempaths=unconfined"]`,
	"new privileges":               `"SecurityOpt":["no-new-privileges:false"]`,
	"nothing masked":               `"MaskedPaths":[]`,
	"nothing read-only":            `"ReadonlyPaths":[]`,
	"bind":                         `"Binds":["/:/host"]`,
	"bind, read-only":              `"Binds":["/etc:/host:ro"]`,
	"bind with dots":               `"Binds":["/work/../etc:/host:ro"]`,
	"bind of the engine's socket":  `"Binds":["/var/run/docker.sock:/s"]`,
	"bind, other case":             `"binds":["/:/host"]`,
	"named volume":                 `"Binds":["data:/data"]`,
	"mount":                        `"Mounts":[{"Type":"bind","Source":"/","Target":"/host"}]`,
	"mount, other case":            `"mounts":[{"type":"bind","source":"/","target":"/host"}]`,
	"volume that is a bind":        `"Mounts":[{"Type":"volume","Target":"/h","VolumeOptions":{"DriverConfig":{"Name":"local","Options":{"type":"none","o":"bind","device":"/"}}}}]`,
	"named pipe":                   `"Mounts":[{"Type":"npipe","Source":"x","Target":"y"}]`,
	"image as a mount":             `"Mounts":[{"Type":"image","Source":"internal/secret:1","Target":"/h"}]`,
	"another container's volumes":  `"VolumesFrom":["db"]`,
	"volume driver":                `"VolumeDriver":"evil"`,
	"sysctl":                       `"Sysctls":{"kernel.core_pattern":"|/x"}`,
	"runtime":                      `"Runtime":"evil"`,
	"isolation":                    `"Isolation":"process"`,
	"oom score":                    `"OomScoreAdj":-1000`,
	"never killed":                 `"OomKillDisable":true`,
	"published port":               `"PortBindings":{"80/tcp":[{"HostPort":"80"}]}`,
	"all ports":                    `"PublishAllPorts":true`,
	"restart":                      `"RestartPolicy":{"Name":"always"}`,
	"restart, other case":          `"RestartPolicy":{"name":"always"}`,
	"links":                        `"Links":["db:db"]`,
	"extra hosts":                  `"ExtraHosts":["a:host-gateway"]`,
	"name servers":                 `"Dns":["10.0.0.1"]`,
	"log driver":                   `"LogConfig":{"Type":"syslog","Config":{"syslog-address":"tcp://10.0.0.1"}}`,
	"log options":                  `"LogConfig":{"Type":"","Config":{"tag":"x"}}`,
	"storage":                      `"StorageOpt":{"size":"1T"}`,
	"file for the identifier":      `"ContainerIDFile":"/etc/x"`,
	"groups":                       `"GroupAdd":["0"]`,
	"annotations":                  `"Annotations":{"run.oci.x":"y"}`,
	"too much memory":              `"Memory":99999999999999`,
	"memory without bound":         `"Memory":-1`,
	"swap without bound":           `"MemorySwap":-1`,
	"too many processors":          `"NanoCpus":3000000000`,
	"a quota instead":              `"CpuQuota":-1`,
	"pids without bound":           `"PidsLimit":-1`,
	"too many pids":                `"PidsLimit":257`,
	"shared memory without bound":  `"ShmSize":99999999999`,
	"memory with a fraction":       `"Memory":1e30`,
	"tmpfs over a system tree":     `"Tmpfs":{"/proc/sys":""}`,
	"tmpfs on the root":            `"Tmpfs":{"/":""}`,
	"tmpfs with dots":              `"Tmpfs":{"/a/../proc":""}`,
	"tmpfs that is a bind":         `"Tmpfs":{"/a":"bind,device=/"}`,
	"tmpfs with devices":           `"Tmpfs":{"/a":"dev"}`,
	"limit that is none":           `"Ulimits":[{"Name":"memlock","Soft":-1,"Hard":-1}]`,
	"limit, another field":         `"Ulimits":[{"Name":"nofile","Soft":1,"Hard":1,"Evil":1}]`,
	"a field of a later version":   `"SomethingNew":"x"`,
	"a nested field of no version": `"X":{"Privileged":true}`,
}

func configAttacks() map[string]string {
	return map[string]string{
		"our label":                `"Labels":{"hermes-wrap.run":"run-2"}`,
		"our label, other case":    `"Labels":{"Hermes-Wrap.Run":"run-2"}`,
		"our label twice":          `"Labels":{"a":"1"},"Labels":{"hermes-wrap.run":"run-2"}`,
		"labels, other case":       `"labels":{"hermes-wrap.run":"run-2"}`,
		"anonymous volume":         `"Volumes":{"/:/host":{}}`,
		"exposed port":             `"ExposedPorts":{"80/tcp":{}}`,
		"health check":             `"Healthcheck":{"Test":["CMD","x"]}`,
		"privileged at the top":    `"Privileged":true`,
		"binds at the top":         `"Binds":["/:/host"]`,
		"host config, other case":  `"hostconfig":{"Privileged":true}`,
		"host config twice":        `"HostConfig":{"Privileged":true},"HostConfig":{}`,
		"host config twice, again": `"HostConfig":{},"HostConfig":{"Privileged":true}`,
		"host config as a list":    `"HostConfig":[{"Privileged":true}]`,
		"network by name":          `"NetworkingConfig":{"EndpointsConfig":{"backend":{}}}`,
		"network with an address":  `"NetworkingConfig":{"EndpointsConfig":{"default":{"IPAMConfig":{"IPv4Address":"10.0.0.9"}}}}`,
		"hardware address":         `"MacAddress":"02:42:ac:11:00:02"`,
		"build triggers":           `"OnBuild":["RUN x"]`,
	}
}

func TestCreateRefuses(t *testing.T) {
	s := testSet(t)
	if _, err := s.Judge(create(`{"Image":"alpine","HostConfig":{}}`)); err != nil {
		t.Fatalf("the control: %v", err)
	}
	refused := func(t *testing.T, body string) {
		t.Helper()
		c, err := s.Judge(create(body))
		if err == nil {
			t.Fatalf("%s was allowed: %s", body, c.Body)
		}
		if c.Body != nil {
			t.Errorf("a body came with the error: %s", c.Body)
		}
		var r *Refused
		if !errors.As(err, &r) || r.Status != 403 && r.Status != 400 {
			t.Errorf("got %#v", err)
		}
	}
	for name, field := range hostConfigAttacks {
		t.Run(name, func(t *testing.T) { refused(t, `{"Image":"alpine","HostConfig":{`+field+`}}`) })
	}
	for name, field := range configAttacks() {
		t.Run(name, func(t *testing.T) { refused(t, `{"Image":"alpine",`+field+`}`) })
	}
	for name, image := range map[string]string{
		"not listed": "debian:12", "another tag": "python:3.11", "a tag with a digest": "python:3.12@sha256:" + strings.Repeat("a", 64),
		"a digest": "python@sha256:" + strings.Repeat("a", 64), "an identifier": "sha256:" + strings.Repeat("a", 64), "the beginning of one": "abcdef012345",
		"another registry": "evil.example/python:3.12", "the pattern goes on": "python:3.12/x:1", "dots": "../python:3.12", "a space": "python:3.12 ", "empty": "",
		"upper case": "PYTHON:3.12", "no tag": "python",
	} {
		t.Run("image, "+name, func(t *testing.T) { refused(t, `{"Image":"`+image+`"}`) })
	}
	for name, body := range map[string]string{"no image": `{}`, "two values": `{"Image":"alpine"}{}`, "a list": `[]`, "null": `null`, "empty": ``} {
		t.Run("body, "+name, func(t *testing.T) { refused(t, body) })
	}
}

func TestImagesInTheirSpellings(t *testing.T) {
	for text, want := range map[string]string{
		"alpine": "alpine:latest", "docker.io/library/alpine": "alpine:latest", "library/alpine:latest": "alpine:latest",
		"python:3.12-slim": "python:3.12-slim", "ghcr.io/acme/tools:1": "ghcr.io/acme/tools:1",
	} {
		if got, err := testSet(t).image(text); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestEndpointsRefuse(t *testing.T) {
	s := testSet(t)
	own := strings.Repeat("a", 64)
	for _, r := range []Request{
		{Method: "GET", Path: "/v1.47//containers/json"},
		{Method: "GET", Path: "/v1.47/containers%2Fjson"},
		{Method: "GET", Path: "/v1.47/./containers/json"},
		{Method: "GET", Path: "/v1.47/containers/../volumes"},
		{Method: "GET", Path: "/v1.47/containers/a/../b/json"},
		{Method: "GET", Path: "/v1.24/containers/json"},
		{Method: "GET", Path: "/v1.047/containers/json"},
		{Method: "GET", Path: "/v2.0/containers/json"},
		{Method: "GET", Path: "/v1.47/v1.47/containers/json"},
		{Method: "GET", Path: "//containers/json"},
		{Method: "GET", Path: "/containers/json/"},
		{Method: "GET", Path: "*"},
		{Method: "GET", Path: ""},
		{Method: "POST", Path: "/build"},
		{Method: "POST", Path: "/commit"},
		{Method: "POST", Path: "/images/load"},
		{Method: "POST", Path: "/images/alpine/tag"},
		{Method: "DELETE", Path: "/images/alpine"},
		{Method: "GET", Path: "/images/alpine/get"},
		{Method: "GET", Path: "/images/debian/json"},
		{Method: "GET", Path: "/images/a/json/../../../containers/db/json"},
		{Method: "POST", Path: "/images/create", Query: "fromImage=alpine"},
		{Method: "POST", Path: "/images/create", Query: "fromSrc=-"},
		{Method: "POST", Path: "/volumes/create"},
		{Method: "GET", Path: "/volumes"},
		{Method: "POST", Path: "/networks/create"},
		{Method: "GET", Path: "/events"},
		{Method: "GET", Path: "/system/df"},
		{Method: "POST", Path: "/session", Upgrade: true},
		{Method: "POST", Path: "/grpc", Upgrade: true},
		{Method: "POST", Path: "/plugins/pull"},
		{Method: "POST", Path: "/swarm/init"},
		{Method: "GET", Path: "/secrets"},
		{Method: "POST", Path: "/containers/prune"},
		{Method: "POST", Path: "/containers/x/update"},
		{Method: "POST", Path: "/containers/x/rename", Query: "name=y"},
		{Method: "GET", Path: "/containers/x/export"},
		{Method: "GET", Path: "/containers/x/archive", Query: "path=/"},
		{Method: "PUT", Path: "/containers/x/archive", Query: "path=/"},
		{Method: "GET", Path: "/containers/x/top", Query: "ps_args=-ef"},
		{Method: "GET", Path: "/containers/x/attach/ws"},
		{Method: "POST", Path: "/containers/x/start", Body: []byte(`{"Privileged":true}`)},
		{Method: "POST", Path: "/containers/x/start", Query: "checkpoint=a&checkpoint-dir=/etc"},
		{Method: "GET", Path: "/containers/x/json", Upgrade: true},
		{Method: "GET", Path: "/containers/x/start"},
		{Method: "POST", Path: "/containers/x:y/start"},
		{Method: "GET", Path: "/containers/json", Query: "filters={\"label\":[\"a\"],\"label\":[\"b\"]}"},
		{Method: "GET", Path: "/containers/json", Query: "filters=%7B%22ancestor%22%3A%5B%22a%22%5D%7D"},
		{Method: "GET", Path: "/containers/json", Query: "filters=a&filters=b"},
		{Method: "GET", Path: "/containers/json", Query: "Filters=a"},
		{Method: "DELETE", Path: "/containers/x", Query: "link=1"},
		{Method: "GET", Path: "/containers/x/logs", Query: "details=1"},
		{Method: "POST", Path: "/containers/create", Query: "name=" + own, Body: []byte(`{"Image":"alpine"}`)},
		{Method: "POST", Path: "/containers/create", Query: "name=deadbeef0123", Body: []byte(`{"Image":"alpine"}`)},
		{Method: "POST", Path: "/containers/create", Query: "name=../x", Body: []byte(`{"Image":"alpine"}`)},
		{Method: "POST", Path: "/containers/create", Query: "name=a&name=b", Body: []byte(`{"Image":"alpine"}`)},
		{Method: "POST", Path: "/containers/x/exec", Body: []byte(`{"Cmd":["sh"],"Privileged":true}`)},
		{Method: "POST", Path: "/containers/x/exec", Body: []byte(`{"Cmd":["sh"],"privileged":true}`)},
		{Method: "POST", Path: "/exec/abc/start", Body: []byte(`{}`)},
		{Method: "POST", Path: "/exec/" + own + "/start", Body: []byte(`{"Privileged":true}`)},
	} {
		if c, err := s.Judge(r); err == nil {
			t.Errorf("%s %s?%s was allowed: %+v", r.Method, r.Path, r.Query, c)
		}
	}
	for _, r := range []Request{
		{Method: "HEAD", Path: "/_ping"},
		{Method: "GET", Path: "/v1.47/version"},
		{Method: "GET", Path: "/v1.47/info"},
		{Method: "GET", Path: "/v1.47/images/ghcr.io/acme/tools:1/json"},
		{Method: "GET", Path: "/v1.47/containers/json", Query: "all=1&filters=%7B%22label%22%3A%7B%22a%22%3Atrue%7D%7D"},
		{Method: "POST", Path: "/v1.47/containers/x/wait", Query: "condition=next-exit"},
		{Method: "POST", Path: "/v1.47/containers/x/attach", Query: "stderr=1&stdin=1&stdout=1&stream=1", Upgrade: true},
		{Method: "POST", Path: "/containers/x/kill", Query: "signal=SIGKILL"},
		{Method: "POST", Path: "/v1.47/containers/create", Query: "name=hermes-1", Body: []byte(`{"Image":"alpine"}`)},
		{Method: "DELETE", Path: "/v1.47/containers/x", Query: "force=1&v=1"},
		{Method: "POST", Path: "/v1.47/exec/" + own + "/start", Body: []byte(`{"Detach":false,"Tty":false}`), Upgrade: true},
	} {
		if _, err := s.Judge(r); err != nil {
			t.Errorf("%s %s?%s: %v", r.Method, r.Path, r.Query, err)
		}
	}
}

func TestZeroSetRefuses(t *testing.T) {
	if Compile(policy.Docker{}, "run") != nil {
		t.Error("a policy without images opens the engine")
	}
	if _, err := (*Set)(nil).Judge(Request{Method: "GET", Path: "/_ping"}); err == nil {
		t.Error("no set allows something")
	}
}

func TestPullNeedsLeave(t *testing.T) {
	s := testSet(t, func(d *policy.Docker) { d.Pull = true })
	c, err := s.Judge(Request{Method: "POST", Path: "/v1.47/images/create", Query: "fromImage=python&tag=3.12-slim"})
	if err != nil || c.Query.Encode() != "fromImage=python%3A3.12-slim" {
		t.Errorf("got %q, %v", c.Query.Encode(), err)
	}
	if _, err := s.Judge(Request{Method: "POST", Path: "/v1.47/images/create", Query: "fromImage=python"}); err == nil {
		t.Error("every tag was allowed to be fetched")
	}
}

// FuzzCreate looks for a body that gets more than any may have, whatever it says.
func FuzzCreate(f *testing.F) {
	f.Add([]byte(cliBody))
	for _, field := range hostConfigAttacks {
		f.Add([]byte(`{"Image":"alpine","HostConfig":{` + field + `}}`))
	}
	for _, field := range configAttacks() {
		f.Add([]byte(`{"Image":"alpine",` + field + `}`))
	}
	s := testSet(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := s.Judge(create(string(body)))
		if err != nil {
			return
		}
		v, err := strictjson.Parse(c.Body)
		if err != nil {
			t.Fatalf("what goes out cannot be read: %v", err)
		}
		host := v.Get("HostConfig")
		for _, m := range host.Members() {
			if indexOf(hostOrder(), m.Name) < 0 {
				t.Fatalf("%q went out", m.Name)
			}
		}
		for name, want := range map[string]string{"NetworkMode": "none", "CgroupnsMode": "private"} {
			if !host.Get(name).IsString(want) {
				t.Fatalf("%s is %s", name, host.Get(name).Text())
			}
		}
		if !v.Get("Labels").Get(Label).IsString("run-1") || string(host.Get("CapDrop").Append(nil)) != `["ALL"]` ||
			string(host.Get("SecurityOpt").Append(nil)) != `["no-new-privileges:true"]` {
			t.Fatalf("something is missing in %s", c.Body)
		}
		if n, ok := host.Get("Memory").Int(); !ok || n <= 0 || n > s.policy.MemoryLimit() {
			t.Fatalf("the memory of %s", c.Body)
		}
		if n, ok := host.Get("PidsLimit").Int(); !ok || n <= 0 || n > int64(s.policy.PidsLimit()) {
			t.Fatalf("the processes of %s", c.Body)
		}
		again, err := s.Judge(create(string(host.Append([]byte(`{"Image":"alpine","HostConfig":`))) + "}"))
		if err != nil || len(again.Body) == 0 {
			t.Fatalf("what was written would be refused: %v", err)
		}
	})
}
