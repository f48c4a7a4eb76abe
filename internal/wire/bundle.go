package wire

import (
	"fmt"
	"iter"
	"regexp"
	"strings"
)

// Bundle is the script that runs several calls at once: see bundle.lua. Only calls of scripts with a [Script.Letter] can be among
// them.
var Bundle = newScript("bundle", strings.Replace(file("bundle"), "-- include scripts\n", bundled(), 1))

// inBundles are the scripts of what a client does often, and with many locks at the same moment.
var inBundles = []*Script{acquire, release, renew, raise, guardedAcquire, share, guardedShare}

var (
	comment  = regexp.MustCompile(`(?m)^\s*--.*\n`)
	argument = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d)\]`)
	other    = regexp.MustCompile(`\b(KEYS|ARGV)\b|\bKEYS[^1-4]|\bARGV[^1-6]`) // none of the parameters in bundle.lua
)

// bundled gives the scripts their letters, and returns the part of bundle.lua that runs the one with a letter.
func bundled() string {
	var b strings.Builder
	for i, s := range inBundles {
		s.Letter = 'a' + byte(i)
		source := strings.ReplaceAll(comment.ReplaceAllString(s.Source, ""), "ARGV[#ARGV]", "last")
		source = argument.ReplaceAllString(source, "$1$2")
		if other.MatchString(source) {
			panic("quorumlock: " + s.Name + ".lua cannot be in a bundle") // while the program starts: the script is wrong
		}
		fmt.Fprintf(&b, "if script == %d then\n%s\nend\n", s.Letter, source)
	}
	return b.String()
}

// Unbundled returns the calls that a bundle of these keys and arguments runs: the script, its keys and its arguments. It is for servers
// in the process, and trusts them.
func Unbundled(keys, args []string) iter.Seq2[*Script, [2][]string] {
	return func(yield func(*Script, [2][]string) bool) {
		for len(args) > 0 {
			call := args[0]
			k, a := int(call[1]-'0'), int(call[2]-'0')
			if !yield(inBundles[call[0]-'a'], [2][]string{keys[:k], args[1 : 1+a]}) {
				return
			}
			keys, args = keys[k:], args[1+a:]
		}
	}
}
