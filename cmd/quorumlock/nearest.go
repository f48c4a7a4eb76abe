package main

import (
	"fmt"

	"github.com/alecthomas/kong"
)

// nearest returns the command most similar to a mistyped one, or "".
func nearest(program *kong.Node, typed string) string {
	best, name := 3, "" // at most two mistakes, and fewer mistakes than correct letters
	for _, c := range program.Children {
		if d := distance(typed, c.Name); d < best && 2*d < len(c.Name) {
			best, name = d, c.Name
		}
	}
	return name
}

// distance returns how many letters must be added, dropped, replaced, or swapped with the next, to
// turn a into b. (It is the optimal string alignment distance.)
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
		for j := 1; j <= len(b); j++ {
			if i == 0 {
				d[i][j] = j
				continue
			}
			d[i][j] = min(d[i-1][j], d[i][j-1]) + 1
			if a[i-1] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-1][j-1])
			} else {
				d[i][j] = min(d[i][j], d[i-1][j-1]+1)
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// unknown returns the error text for an unknown command.
func unknown(program *kong.Node, typed string) string {
	if name := nearest(program, typed[:min(len(typed), 80)]); name != "" {
		return fmt.Sprintf("unknown command %.80q: did you mean %s? See quorumlock help", typed, name)
	}
	return fmt.Sprintf("unknown command %.80q: use one of\n\n%s", typed, overview(program))
}
