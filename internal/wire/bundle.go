package wire

import (
	"fmt"
	"iter"
	"regexp"
	"strings"
)

// Bundle is the script that runs several calls at once: see bundle.lua. Only calls of scripts with a [Script.Letter] can be among
// them.
var Bundle = newScript("bundle", strings.Replace(lua("bundle"), "-- include scripts\n", bundled(), 1))

// inBundles are the scripts of what a client does often, and with many locks at the same moment.
var inBundles = []*Script{acquire, release, renew, raise, guardedAcquire, share, guardedShare}

var (
	comment  = regexp.MustCompile(`(?m)^\s*--.*\n`)
	argument = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d)\]`)
)

// bundled gives the scripts their letters, and returns the part of bundle.lua that runs the one with a letter.
func bundled() string {
	var b strings.Builder
	for i, s := range inBundles {
		s.Letter = 'a' + byte(i)
		source := strings.ReplaceAll(comment.ReplaceAllString(s.Source, ""), "ARGV[#ARGV]", "last")
		fmt.Fprintf(&b, "if script == %d then\n%s\nend\n", s.Letter, argument.ReplaceAllString(source, "$1$2"))
	}
	return b.String()
}

// Unbundled returns the calls that a bundle of these keys and arguments runs: the script, its keys and its arguments.
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
