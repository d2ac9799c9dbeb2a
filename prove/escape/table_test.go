package escape

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	cases, err := Parse(strings.NewReader(`Words before the first case.
=== A10 inherited-directory
title: A directory # is inherited
needs: python3, cc    # remark
kernel: landlock>=6
where: strict weak
as: user
kill: 5s
variants: lines

--- host
exec 9</; sandbox sh "$PROBE"

--- probe

cat x # not a remark
echo DONE

--- lines
one
two # kept
=== A2 other
title: Other
--- python
print('DONE')
`), "a.txt")
	if err != nil {
		t.Fatal(err)
	}
	a := cases[0]
	if len(cases) != 2 || a.ID != "A10" || a.Group() != "A" || a.Name != "inherited-directory" || a.Title != "A directory" || a.Kernel != "landlock>=6" ||
		a.As != "user" || a.Kill != 5*time.Second || a.At != "a.txt:2" || a.Control != "bare" {
		t.Errorf("got %+v", a)
	}
	if !slices.Equal(a.Needs, []string{"python3", "cc"}) || !slices.Equal(a.Where, []string{"strict", "weak"}) {
		t.Errorf("got needs %q, where %q", a.Needs, a.Where)
	}
	if got, want := a.Sections["probe"], "cat x # not a remark\necho DONE\n"; got != want {
		t.Errorf("probe: got %q, want %q", got, want)
	}
	if got := values(t, a, 1, 8); !slices.Equal(got, []string{"one", "two # kept"}) {
		t.Errorf("lines: got %q", got)
	}
	if b := cases[1]; b.Language() != "python" || b.As != "both" || b.Kill != defaultKill || !slices.Equal(b.Where, []string{"strict"}) {
		t.Errorf("got %+v", b)
	}
}

func TestParseMistakes(t *testing.T) {
	const good = "=== A1 one\ntitle: One\n"
	for _, c := range []struct{ name, text, want string }{
		{"no title", "=== A1 one\n--- probe\ntrue\n", "no title"},
		{"no script", good, "no script"},
		{"unknown header", good + "titel: x\n--- probe\ntrue\n", `header "titel": unknown`},
		{"unknown section", good + "--- prob\ntrue\n", `section "prob"`},
		{"section twice", good + "--- probe\ntrue\n--- probe\ntrue\n", "there twice"},
		{"account", good + "as: nobody\n--- probe\ntrue\n", `as: "nobody"`},
		{"configuration", good + "where: strikt\n--- probe\ntrue\n", `where: "strikt"`},
		{"feature", good + "kernel: landlok>=1\n--- probe\ntrue\n", `"landlok": no such feature`},
		{"generator", good + "variants: path /x\n--- probe\ntrue\n", `"path": no such generator`},
		{"generator without arguments", good + "variants: paths\n--- probe\ntrue\n", "no arguments"},
		{"lines without section", good + "variants: lines\n--- probe\ntrue\n", "belong together"},
		{"own without control", good + "control: own\n--- probe\ntrue\n", "belong together"},
		{"time", good + "kill: soon\n--- probe\ntrue\n", "invalid duration"},
		{"id", "=== one\n", "want === ID name"},
		{"not a header", good + "hello\n--- probe\ntrue\n", "want key: value"},
	} {
		_, err := Parse(strings.NewReader(c.text), "x.txt")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestTable holds the table itself to its form.
func TestTable(t *testing.T) {
	if _, err := Load("../../testdata/escapes"); err != nil {
		t.Fatal(err)
	}
}

func TestBefore(t *testing.T) {
	ids := []string{"B1", "A10", "A2", "A2b"}
	slices.SortFunc(ids, func(a, b string) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	if want := []string{"A2", "A2b", "A10", "B1"}; !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
}

func TestFeatures(t *testing.T) {
	for _, c := range []struct {
		text string
		lack bool
	}{
		{"", false}, {"kernel>=3.0", false}, {"kernel>=99", true}, {"kernel<99", false}, {"kernel<3.0", true}, {"!kernel", true}, {"kernel>=3.0 kernel<99", false}, {"kernel>=3.0, kernel>=99", true},
	} {
		if got := lacking(c.text); (got != "") != c.lack {
			t.Errorf("%q: got %q, want lack %v", c.text, got, c.lack)
		}
	}
}
