package wire

import (
	"fmt"
	"iter"
	"regexp"
	"strings"
)

// Bundle is the script that runs several calls: see bundle.lua. It runs only scripts with a letter.
var Bundle = newScript("bundle", replace(file("bundle"), "-- include scripts\n", bundled()))

// inBundles are the scripts of frequent calls. Script i has the letter 'a'+i.
var inBundles = []*Script{acquire, release, renew, raise, guardedAcquire, share, guardedShare}

var (
	comment  = regexp.MustCompile(`(?m)^\s*--.*\n`)
	argument = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d)\]`)
	// other matches KEYS or ARGV outside the parameters of run in bundle.lua.
	other = regexp.MustCompile(`\b(KEYS|ARGV)\b|\bKEYS[^1-4]|\bARGV[^1-6]`)
)

// bundled gives the scripts their letters, and returns their part of bundle.lua.
func bundled() string {
	var b strings.Builder
	for i, s := range inBundles {
		s.Letter = 'a' + byte(i)
		source := strings.ReplaceAll(comment.ReplaceAllString(s.Source, ""), "ARGV[#ARGV]", "lastArg")
		source = argument.ReplaceAllString(source, "$1$2")
		if other.MatchString(source) {
			panic("quorumlock: " + s.Name + ".lua cannot be in a bundle") // only at start
		}
		fmt.Fprintf(&b, "if script == %d then\n%s\nend\n", s.Letter, source)
	}
	return b.String()
}

// Unbundled iterates over the calls of a bundle, with the script, keys and arguments of each. It is
// for in-process test servers, and does not validate the bundle.
func Unbundled(keys, args []string) iter.Seq2[*Script, [2][]string] {
	return func(yield func(*Script, [2][]string) bool) {
		for len(args) > 0 {
			k, a := int(args[0][1]-'0'), int(args[0][2]-'0')
			if !yield(inBundles[args[0][0]-'a'], [2][]string{keys[:k], args[1 : 1+a]}) {
				return
			}
			keys, args = keys[k:], args[1+a:]
		}
	}
}
