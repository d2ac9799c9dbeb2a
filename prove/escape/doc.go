// Package escape tries to get out of the sandbox: a table of attacks, each run
// bare, where it must succeed, and inside, where nothing outside may be touched.
//
// # The table
//
// testdata/escapes holds a file for each group. An entry is a line "=== ID name",
// header lines "key: value" with remarks behind " # ", and sections "--- name":
//
//	title     what is tried; required
//	needs     commands that the case takes
//	kernel    features without which the attack does not exist: terms NAME, !NAME,
//	          NAME>=N, NAME<N (see probes), all of which must hold
//	where     configurations: strict (the default), any built-in profile, weak (the
//	          tier without namespaces), every
//	as        user, root, both (the default)
//	control   how the twin is run: bare (the default), own (section control), or
//	          naive with the gateway's mistake (web.Naive)
//	kill      the time that one run has (40s)
//	variants  lines (section lines), or a generator (see generators) with arguments
//	only      the one sandbox that the case is about
//
// The section host is a script of sh that runs outside, in the workspace; without
// it, it is: sandbox sh "$PROBE". The program is in probe (sh), python or c. The
// section policy is a layer over the configuration's policy.
//
// The host script has the functions sandbox (the command inside; bare for the
// twin) and baseline (what was done up to here is no damage). Both scripts have
// the variables WS, OUTSIDE, HOST_HOME, PROBE, PROGRAM (of c), VARIANT, SEED, PORT,
// CA, VICTIM, SHM_KEY and SHM_ID; the host script also SANDBOX, RUN, LIB, WRAP,
// POLICY, API_TOKEN and LLM_TOKEN.
//
// # What is said
//
// Lines of the output that begin with ESCAPED, MISSED (of a twin: this way did no
// damage), BROKEN (a legitimate use failed), and DONE at the end.
//
// # The world
//
// Runs happen in worlds: processes in namespaces of their own with a network
// where every address is ours (world.go). What counts as damage is in place.go,
// victim.go, machine.go and world.go.
package escape
