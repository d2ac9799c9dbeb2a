package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// layer turns the flags into the last layer. Its positions name the flag.
func (f Flags) layer() *layer {
	l := newLayer(Source{Name: "flags"}, "flags")
	fs := &l.pol.Filesystem
	fs.Read = l.flagPaths("--read", "filesystem.read", f.Read)
	fs.Write = l.flagPaths("--write", "filesystem.write", f.Write)
	fs.Exec = l.flagPaths("--exec", "filesystem.exec", f.Exec)
	l.flagEnv(f.Env)
	for i, s := range f.Publish {
		path := l.flagItem("--publish", "network.publish", i)
		l.flagCheck(path, "publish", s)
		l.pol.Network.Publish = append(l.pol.Network.Publish, shortPublish(s, l.at(path)))
	}
	for i, s := range f.AllowHost {
		l.flagHost(i, s)
	}
	for i, s := range f.Enable {
		path := l.flagItem("--enable", "enable", i)
		l.flagCheck(path, "fragment", s)
		l.pol.Enable = append(l.pol.Enable, Name{s, l.at(path)})
	}
	return l
}

// flagItem notes where an item came from and gives its path.
func (l *layer) flagItem(flag, key string, i int) string {
	pos := Pos{File: "flag " + flag}
	section, _, _ := strings.Cut(key, ".")
	l.where[section], l.where[key] = pos, pos
	path := key + "[" + strconv.Itoa(i) + "]"
	l.where[path] = pos
	return path
}

func (l *layer) flagCheck(path, form, value string) {
	what, hint := textValue(&node{value: value})
	if what == "" {
		what, hint = checkValue(form, value)
	}
	if what != "" {
		l.add(l.at(path), path, what, hint)
	}
}

func (l *layer) flagPaths(flag, key string, args []string) []Path {
	var ps []Path
	for i, s := range args {
		path := l.flagItem(flag, key, i)
		l.flagCheck(path, "", s)
		ps = append(ps, Path{Text: s, Pos: l.at(path)})
	}
	return ps
}

func (l *layer) flagEnv(args []string) {
	for i, s := range args {
		name, value, set := strings.Cut(s, "=")
		if !set {
			path := l.flagItem("--env", "env.allow", i)
			l.flagCheck(path, "env-name", name)
			l.pol.Env.Allow = append(l.pol.Env.Allow, Name{name, l.at(path)})
			continue
		}
		path := l.flagItem("--env", "env.set", i)
		l.flagCheck(path, "env-name", name)
		if strings.ContainsRune(value, 0) {
			l.add(l.at(path), path, "the value holds a NUL character", "remove it")
		}
		if l.pol.Env.Set == nil {
			l.pol.Env.Set = map[string]string{}
		}
		l.pol.Env.Set[name] = value
		l.where["env.set."+name] = l.at(path)
	}
}

// flagHost makes a rule of HOST[:PORT]. Without a port it is http on 80 and
// 443; with one it is passed through as it is.
func (l *layer) flagHost(i int, s string) {
	path := l.flagItem("--allow-host", "network.rules", i)
	r := Rule{Name: fmt.Sprintf("flag-allow-host-%d", i+1), Host: strings.Trim(s, "[]"), Pos: l.at(path)}
	if host, port, ok := cutPort(s); ok {
		r.Host = host
		what, hint := checkPort(port)
		if what != "" {
			l.add(l.at(path), path, what, hint)
		}
		n, _ := strconv.Atoi(port) // checked just above
		r.Ports = []int{n}
	}
	l.flagCheck(path, "host", r.Host)
	l.pol.Network.Rules = append(l.pol.Network.Rules, r)
}
