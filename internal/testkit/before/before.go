// Package before has the scripts of the clients before this one's, for tests of fleets in which
// clients of both versions share locks. Those clients kept a token counter for 27 hours. Remove the
// package once no such client is in use.
package before

import (
	"embed"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/scripts"
)

// files has the files of package scripts that have changed since.
//
//go:embed *.lua
var files embed.FS

// Source returns the source that those clients had in place of a script's.
func Source(now string) string { return sources[now] }

// Script returns the script of those clients in place of one of this client.
func Script(now *wire.Script) *wire.Script {
	return &wire.Script{Name: now.Name, Source: Source(now.Source)}
}

var sources = func() map[string]string {
	changed, err := files.ReadDir(".")
	if err != nil {
		panic(err) // it is embedded
	}
	all := make(map[string]string)
	for _, s := range wire.Scripts() {
		all[s.Source] = s.Source
		// First the whole scripts, then the files that they include.
		for _, included := range []bool{false, true} {
			for _, file := range changed {
				name := strings.TrimSuffix(file.Name(), ".lua")
				if (name != s.Name) == included {
					all[s.Source] = strings.ReplaceAll(all[s.Source], text(name, false), text(name, true))
				}
			}
		}
	}
	return all
}()

// text returns a file with its includes, of today or as it was.
func text(name string, was bool) string {
	b, err := scripts.Files.ReadFile(name + ".lua")
	if old, missing := files.ReadFile(name + ".lua"); was && missing == nil {
		b, err = old, nil
	}
	if err != nil {
		panic(fmt.Sprintf("no script includes %s: %v", name, err))
	}
	var all strings.Builder
	for rest := string(b); ; {
		before, after, found := strings.Cut(rest, "-- include ")
		all.WriteString(before)
		if !found {
			return all.String()
		}
		included, after, _ := strings.Cut(after, ".lua\n")
		all.WriteString(text(included, was))
		rest = after
	}
}
