//go:build unix

package main

import (
	"slices"
	"strings"
	"unsafe"
)

// hidePasswords returns a copy of the program's arguments, and writes an x over each byte of the users and passwords in
// the arguments themselves. ps and /proc show the memory that args points to, from then on without them.
func hidePasswords(args []string) []string {
	kept := slices.Clone(args)
	for i, a := range args {
		kept[i] = strings.Clone(a)
		memory := unsafe.Slice(unsafe.StringData(a), len(a))
		for _, hidden := range userinfos(kept[i]) {
			for j := hidden[0]; j < hidden[1]; j++ {
				memory[j] = 'x'
			}
		}
	}
	return kept
}

// userinfos returns where the users and passwords of the URLs in an argument begin and end. A URL may be followed by others.
func userinfos(arg string) (all [][2]int) {
	for from := 0; ; {
		i := strings.Index(arg[from:], "://")
		if i < 0 {
			return all
		}
		from += i + len("://")
		end := len(arg)
		if next := strings.Index(arg[from:], "://"); next >= 0 {
			end = from + next
		}
		if at := strings.LastIndexByte(arg[from:end], '@'); at >= 0 {
			all = append(all, [2]int{from, from + at})
		}
	}
}
