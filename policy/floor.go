package policy

// applyFloor puts the administrator's floor under a policy.
func applyFloor(p Policy, l *layer) (Policy, Problems) {
	return p, Problems{{Pos: Pos{l.file, 1, 1}, What: "BUG: the floor is not applied", Hint: "please report this"}}
}
