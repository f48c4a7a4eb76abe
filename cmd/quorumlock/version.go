package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is the version of a release, set by -ldflags. A binary from go install has its version in
// the build info.
var version string

type versionCommand struct{}

func (versionCommand) manual() manual {
	return manual{
		description: `Prints the version of quorumlock, with the commit if it was built from a
checkout, and the version of Go.`,
		statuses: "0  all is well",
		examples: "quorumlock version",
	}
}

func (versionCommand) Run(e *env) error {
	_, err := fmt.Fprintf(e.text, "quorumlock %s %s %s/%s\n", versionOf(debug.ReadBuildInfo()), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// versionOf returns the version and, for an unreleased one, the commit.
func versionOf(info *debug.BuildInfo, ok bool) string {
	switch {
	case version != "":
		return version
	case !ok || info.Main.Version == "":
		return "(devel)"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v += " " + s.Value
		}
	}
	return v
}
