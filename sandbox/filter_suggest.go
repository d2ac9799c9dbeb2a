package sandbox

// filterNearest gives the known name or set that is closest to a mistyped
// one, when it is close enough to be meant.
func filterNearest(text string) (string, bool) {
	best, at := "", 1+len(text)/3
	for _, known := range syscallKnown() {
		if d := filterDistance(text, known); d <= at && (best == "" || d < at) {
			best, at = known, d
		}
	}
	return best, best != ""
}

// filterDistance is the number of edits (insert, delete, replace) between two
// names.
func filterDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
