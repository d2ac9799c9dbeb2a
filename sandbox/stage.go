package sandbox

// The words by which our own executable knows that it is a stage of a launch
// and not a command that somebody typed.
const (
	stageArgInit   = "init" // libcontainer's own word
	stageArgPidOne = "pid1"
	stageArgCover  = "cover"
)
