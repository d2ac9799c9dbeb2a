package credential

// machine finds many texts in one pass (Aho and Corasick, 1975), whatever pieces
// the text comes in. Upper and lower case are one, and so are the characters in
// which the alphabets of base64 and of query strings differ: "+", "-" and the
// space; "/" and "_". It is not changed once it is made.
type machine struct {
	class [256]uint8
	width int      // classes
	next  []uint32 // state*width + class → state*width, with found set when a text ends there
	ends  []int32  // of each state: the longest text that ends there, or -1
	depth []int32  // of each state: how much of some text was read
	hold  []int32  // of each state: how much of what was read must not be passed on yet
	texts []variant
	owner []int32 // of each text: whose it is
}

const (
	// found marks, in next, a state in which a text ends.
	found = 1 << 31
	// escape marks, in class, a character that may stand for another.
	escape = 0x80
	// slack is how many characters of a text may be passed on before it is clear
	// whether the rest follows. Without it, a stream whose piece happens to end
	// with the first character of a secret would wait for the next piece.
	slack = 4
)

// build makes a machine of texts and their owners.
func build(texts []variant, owner []int32) *machine {
	m := &machine{texts: texts, owner: owner}
	m.classes()
	edges := m.trie()
	m.link(edges)
	return m
}

// fold gives one character for all that count as the same.
func fold(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c | 0x20
	case c == '-' || c == ' ':
		return '+'
	case c == '_':
		return '/'
	}
	return c
}

func (m *machine) classes() {
	m.width = 1 // class 0 is in no text
	for _, v := range m.texts {
		for i := range len(v.text) {
			if c := fold(v.text[i]); m.class[c] == 0 {
				m.class[c] = uint8(m.width)
				m.width++
			}
		}
	}
	for c := range 256 {
		m.class[c] = m.class[fold(byte(c))]
	}
	for _, c := range []byte("%\\\r\n") {
		m.class[c] |= escape
	}
}

func (m *machine) classOf(c byte) int { return int(m.class[c] &^ escape) }

// trie lays the texts out; edges holds the states by state and class.
func (m *machine) trie() [][]int32 {
	edges := [][]int32{make([]int32, m.width)}
	m.ends, m.depth, m.hold = []int32{-1}, []int32{0}, []int32{0}
	for t, v := range m.texts {
		at := int32(0)
		for i := range len(v.text) {
			c := m.classOf(v.text[i])
			if edges[at][c] == 0 {
				edges[at][c] = int32(len(edges))
				edges = append(edges, make([]int32, m.width))
				m.ends, m.depth, m.hold = append(m.ends, -1), append(m.depth, int32(i+1)), append(m.hold, 0)
			}
			at = edges[at][c]
			// At its end it was found, and dealt with.
			if i >= max(v.known, min(slack, len(v.text)/4)) && i+1 < len(v.text) {
				m.hold[at] = int32(i + 1)
			}
		}
		if m.ends[at] < 0 {
			m.ends[at] = int32(t)
		}
	}
	return edges
}

// link completes the transitions, breadth first: where no text goes on, the
// longest end of what was read that begins a text does.
func (m *machine) link(edges [][]int32) {
	fail := make([]int32, len(edges))
	queue := []int32{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if m.ends[at] < 0 {
			m.ends[at] = m.ends[fail[at]]
		}
		m.hold[at] = max(m.hold[at], m.hold[fail[at]])
		for c := range edges[at] {
			to := edges[at][c]
			switch {
			case to == 0 && at != 0:
				edges[at][c] = edges[fail[at]][c]
			case to != 0:
				if at != 0 {
					fail[to] = edges[fail[at]][c]
				}
				queue = append(queue, to)
			}
		}
	}
	m.next = make([]uint32, len(edges)*m.width)
	for at := range edges {
		for c, to := range edges[at] {
			e := uint32(to) * uint32(m.width)
			if m.ends[to] >= 0 {
				e |= found
			}
			m.next[at*m.width+c] = e
		}
	}
}

// step reads one character.
func (m *machine) step(at uint32, c byte) uint32 {
	return m.next[(at&^found)+uint32(m.class[c]&^escape)]
}

// state is the number of a state, for ends, depth and hold.
func (m *machine) state(at uint32) int { return int(at&^found) / m.width }
