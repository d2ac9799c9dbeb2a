package escape

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// variant is one value of $VARIANT.
type variant struct {
	Value string
	// Random ones come from the seed. One that does not work bare is no attack,
	// and is dropped.
	Random bool `json:",omitempty"`
}

// generator makes spellings of its arguments. fixed are the classic ones, in
// every run; random makes another, by chance.
type generator struct {
	fixed  func(args []string) []string
	random func(r *rand.Rand, args []string) string
}

// generators are what "variants:" can name. A value may hold $OUTSIDE,
// $HOST_HOME, $WS, $VICTIM and $PORT, which are filled in for each run.
var generators = map[string]generator{ //nolint:gochecknoglobals // a constant
	"words":    {fixed: slices.Clone[[]string]},
	"paths":    {fixedPaths, randomPath},
	"hosts":    {fixedHosts, randomHost},
	"urlpaths": {fixedURLPaths, randomURLPath},
	"syscalls": {fixed: fixedCalls},
	"highbits": {fixedBits, randomBits},
	"headers":  {fixedFields, randomField},
	"timing":   {fixedDelays, randomDelay},
}

// variantsOf gives the values of $VARIANT for a case: all that are fixed, and n
// that the seed decides. A case without variants has one, empty.
func variantsOf(c Case, seed int64, n int) ([]variant, error) {
	words := strings.Fields(c.Variants)
	switch {
	case len(words) == 0:
		return []variant{{}}, nil
	case words[0] == "lines":
		var out []variant
		for line := range strings.Lines(c.Sections["lines"]) {
			if line = strings.TrimRight(line, "\n"); line != "" {
				out = append(out, variant{Value: line})
			}
		}
		return out, nil
	}
	g, ok := generators[words[0]]
	if !ok {
		return nil, fmt.Errorf("variants: %q: no such generator", words[0])
	}
	if len(words) == 1 && words[0] != "timing" {
		return nil, fmt.Errorf("variants: %s: no arguments", words[0])
	}
	return generate(g, words[1:], source(c.ID, seed), n), nil
}

// source gives the numbers of a case: adding another case changes none of them.
func source(id string, seed int64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return rand.New(rand.NewPCG(uint64(seed), h.Sum64())) // #nosec: must be reproducible
}

func generate(g generator, args []string, r *rand.Rand, n int) []variant {
	var out []variant
	seen := map[string]bool{}
	add := func(v string, random bool) {
		if !seen[v] {
			seen[v] = true
			out = append(out, variant{v, random})
		}
	}
	for _, v := range g.fixed(args) {
		add(v, false)
	}
	if g.random == nil {
		return out
	}
	// The same value can come twice; after many tries there are no more.
	for want, tries := len(out)+n, 0; len(out) < want && tries < 100*n; tries++ {
		add(g.random(r, args), true)
	}
	return out
}

// fill puts the values of this run into a variant.
func (v variant) fill(vars map[string]string) string {
	var pairs []string
	for _, name := range []string{"OUTSIDE", "HOST_HOME", "WS", "VICTIM", "PORT"} {
		pairs = append(pairs, "$"+name, vars[name])
	}
	return strings.NewReplacer(pairs...).Replace(v.Value)
}

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

// each applies every form to every argument.
func each(args []string, forms ...func(string) string) []string {
	var out []string
	for _, a := range args {
		for _, f := range forms {
			out = append(out, f(a))
		}
	}
	return out
}

func same(s string) string { return s }

// Ways to say "the root directory" before an absolute path.
var roots = []string{"", "/", "/.", "/..", "/proc/..", "/usr/../", "/proc/self/root", "/proc/thread-self/root", "/dev/../", "/tmp/../proc/self/root", "/proc/self/root/proc/self/root", "/bin/../../"} //nolint:gochecknoglobals // a constant

func fixedPaths(args []string) []string {
	var forms []func(string) string
	for _, root := range roots {
		forms = append(forms, func(p string) string { return root + p })
	}
	forms = append(forms,
		func(p string) string { return separated(p, "//") }, func(p string) string { return separated(p, "/./") },
		func(p string) string { return "/proc/self/cwd" + strings.Repeat("/..", 40) + p },
		func(p string) string { return strings.Repeat("../", 40) + p })
	return each(args, forms...)
}

// separated writes another separator for the last one of a path.
func separated(p, by string) string {
	i := strings.LastIndexByte(p, '/')
	if i < 0 {
		return p
	}
	return p[:i] + by + p[i+1:]
}

func randomPath(r *rand.Rand, args []string) string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(pick(r, roots[1:]))
	}
	return b.String() + separated(pick(r, args), "/"+strings.Repeat(pick(r, []string{"/", "./"}), r.IntN(5)))
}

func fixedHosts(args []string) []string {
	var out []string
	for _, h := range args {
		if a, err := netip.ParseAddr(h); err == nil {
			out = append(out, addressForms(a)...)
			continue
		}
		out = append(out, h, strings.ToUpper(h), h+".", strings.ToUpper(h)+".", wide(h), strings.ReplaceAll(h, ".", "。"), strings.ReplaceAll(h, ".", "%2e"), escaped(h, func(int) bool { return true }))
	}
	return out
}

// addressForms are the spellings that inet_aton(3) and URL parsers take.
func addressForms(a netip.Addr) []string {
	if !a.Is4() {
		return []string{a.String(), a.StringExpanded(), strings.ToUpper(a.StringExpanded()), "[" + a.String() + "]"}
	}
	b := a.As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	return []string{
		a.String(), strconv.FormatUint(uint64(n), 10), fmt.Sprintf("0x%x", n), fmt.Sprintf("0%o", n),
		fmt.Sprintf("0x%x.0x%x.0x%x.0x%x", b[0], b[1], b[2], b[3]), fmt.Sprintf("0%o.0%o.0%o.0%o", b[0], b[1], b[2], b[3]),
		fmt.Sprintf("%d.%d", b[0], n&0xffffff), fmt.Sprintf("%d.%d.%d", b[0], b[1], n&0xffff), fmt.Sprintf("0x%x.%d", b[0], n&0xffffff),
		"::ffff:" + a.String(), fmt.Sprintf("::ffff:%x:%x", n>>16, n&0xffff), fmt.Sprintf("64:ff9b::%x:%x", n>>16, n&0xffff), fmt.Sprintf("2002:%x:%x::1", n>>16, n&0xffff),
	}
}

// wide writes letters and digits in their full width, which IDNA maps back.
func wide(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c + 0xfee0
		}
		return c
	}, s)
}

func randomHost(r *rand.Rand, args []string) string {
	h := pick(r, args)
	if a, err := netip.ParseAddr(h); err == nil {
		if !a.Is4() {
			return pick(r, addressForms(a))
		}
		var parts []string
		for _, b := range a.As4() {
			parts = append(parts, fmt.Sprintf(pick(r, []string{"%d", "0x%x", "0%o", "0X%X", "00%o"}), b))
		}
		return strings.Join(parts, ".")
	}
	mixed := strings.Map(func(c rune) rune {
		switch {
		case r.IntN(3) == 0 && c >= 'a' && c <= 'z':
			return c - 32
		case r.IntN(8) == 0 && c >= 'a' && c <= 'z':
			return c + 0xfee0
		}
		return c
	}, h)
	return mixed + pick(r, []string{"", "", "."})
}

// escaped writes bytes as percent escapes.
func escaped(s string, which func(i int) bool) string {
	var b strings.Builder
	for i := range len(s) {
		if s[i] != '/' && which(i) {
			fmt.Fprintf(&b, "%%%02x", s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// Ways out of /public.
var climbs = []string{ //nolint:gochecknoglobals // a constant
	"/public/..", "/public/%2e%2e", "/public/%2E%2E", "/public/.%2e", "/public/%252e%252e", "/public/./..", "/public//..", "/public/..;", "/public/..;x=y", "/public/x/../..",
	"/public\\..", "/public/..%5c..", "/public/%2e%2e%2f..", "/public/..%00/..", "/public/%c0%ae%c0%ae", "/public/..%2f",
}

func fixedURLPaths(args []string) []string {
	var forms []func(string) string
	for _, c := range climbs {
		forms = append(forms, func(p string) string { return c + p })
	}
	forms = append(forms, same, strings.ToUpper,
		func(p string) string { return "/" + p }, func(p string) string { return "/." + p }, func(p string) string { return escaped(p, func(int) bool { return true }) },
		func(p string) string { return "/public%2f.." + p }, func(p string) string { return "/public?/.." + p }, func(p string) string { return "/public#/.." + p })
	return each(args, forms...)
}

func randomURLPath(r *rand.Rand, args []string) string {
	p := pick(r, args)
	p = escaped(p, func(int) bool { return r.IntN(4) == 0 })
	if r.IntN(3) == 0 {
		p = strings.ReplaceAll(p, "%", "%25")
	}
	up := "/public"
	for range 1 + r.IntN(3) {
		up += pick(r, []string{"/.", "//", "/x/..", "/%2e", "/;a=b"})
	}
	up += "/" + pick(r, []string{"..", "%2e%2e", ".%2E", "%2e.", "..;", "%252e%252e"})
	for range r.IntN(2) {
		up += "/" + pick(r, []string{"..", "%2e%2e"})
	}
	return up + p
}

// fixedCalls are the ways into the kernel: the library's function, the
// instruction, the 32-bit gate, and the x32 number.
func fixedCalls(args []string) []string {
	return each(args, func(n string) string { return n + " libc" }, func(n string) string { return n + " raw" },
		func(n string) string { return n + " int80" }, func(n string) string { return n + " x32" })
}

func fixedBits(args []string) []string {
	var out []string
	for _, a := range args {
		v, err := strconv.ParseUint(a, 0, 32)
		if err != nil {
			return []string{a}
		}
		for _, high := range []uint64{0, 1, 1 << 31, 0xffffffff, 0x7fffffff} {
			out = append(out, fmt.Sprintf("0x%x", v|high<<32))
		}
	}
	return out
}

func randomBits(r *rand.Rand, args []string) string {
	v, _ := strconv.ParseUint(pick(r, args), 0, 32)
	return fmt.Sprintf("0x%x", v|uint64(r.Uint32())<<32)
}

// fixedFields are spellings of a field "Name:value" whose line ends are written
// as \r\n in the value of $VARIANT.
func fixedFields(args []string) []string {
	var out []string
	for _, a := range args {
		name, value, _ := strings.Cut(a, ":")
		out = append(out, name+": "+value, strings.ToLower(name)+":"+value, strings.ToUpper(name)+":\t"+value, name+" : "+value, name+":\\r\\n "+value,
			strings.ReplaceAll(name, "-", "_")+": "+value, "X: 1\\n"+name+": "+value, "X: 1\\r"+name+": "+value, name+": "+value+"\\r\\n"+name+": "+value, " "+name+": "+value)
	}
	return out
}

func randomField(r *rand.Rand, args []string) string {
	name, value, _ := strings.Cut(pick(r, args), ":")
	name = strings.Map(func(c rune) rune {
		if r.IntN(2) == 0 && c >= 'a' && c <= 'z' {
			return c - 32
		}
		return c
	}, name)
	before := ""
	for i := range r.IntN(4) {
		before += fmt.Sprintf("X-%d: %d\\r\\n", i, r.IntN(100))
	}
	return before + name + pick(r, []string{":", ": ", ":\\t", ":  "}) + value
}

// fixedDelays are milliseconds.
func fixedDelays([]string) []string { return []string{"0", "1", "10", "50"} }

func randomDelay(r *rand.Rand, _ []string) string { return strconv.Itoa(r.IntN(120)) }
