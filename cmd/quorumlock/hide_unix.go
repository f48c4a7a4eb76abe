//go:build unix

package main

import (
	"slices"
	"strings"
	"unsafe"
)

// hidePasswords returns a copy of args, and overwrites each byte of users and passwords in the
// original with x. ps and /proc show that original memory.
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

// userinfos returns the beginnings and ends of users and passwords in the URLs of an argument,
// which may have several URLs.
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
